"""The example of watt at real servers: its hooks, its manifests, and the rights that it asks for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from tests.documents import contents
from tests.real.access import Access
from tests.real.cluster import Namespace
from tests.real.consul import Consul
from tests.real.processes import until
from tests.watt.process import WattProcess
from tests.watt.test_example import EXAMPLE, GUIDE, MANIFESTS

Kubeconfig = Callable[[Access], Path]


def test_the_hooks_turn_an_annotation_into_upstreams(
    namespace: Namespace, consul: Consul, prefix: str, kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    name, target = f"{prefix}-web", tmp_path / "upstreams.conf"
    consul.rest.call("PUT", "/v1/agent/service/register", {"Name": name, "Address": "10.0.0.1", "Port": 80})
    kubeconfig(namespace.cluster.access)
    config = yaml.safe_load((EXAMPLE / "watt.yaml").read_text())
    texts = json.dumps(config).replace("python3 examples/watt", f"{sys.executable} {EXAMPLE}")
    (tmp_path / "watt.json").write_text(texts.replace("upstreams.conf", str(target)))
    with WattProcess(
        "--config", str(tmp_path / "watt.json"), "-n", namespace.name, CONSUL_HTTP_ADDR=consul.address
    ) as watt:
        until(target.exists, "the first file")
        namespace.apply({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "annotations": {"example.com/consul-service": name}},
            "spec": {"ports": [{"port": 80}]},
        })  # fmt: skip
        upstream = f"upstream {name} {{\n    server 10.0.0.1:80;\n}}\n"
        until(lambda: target.read_text() == upstream, "the upstream")
        assert watt.stop() == 0
    consul.rest.call("PUT", f"/v1/agent/service/deregister/{name}")


def test_the_manifests_are_taken_and_the_account_has_the_rights_that_are_needed(
    namespace: Namespace, consul: Consul, kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    made = [
        namespace.apply(each)
        for path in sorted(MANIFESTS.iterdir())
        for each in yaml.safe_load_all(path.read_text())
    ]  # fmt: skip
    kinds = {each["kind"] for each in made}
    assert kinds == {"ServiceAccount", "Role", "RoleBinding", "ConsulResolver", "ConfigMap", "Deployment"}
    (config,) = (each["data"]["watt.yaml"] for each in made if each["kind"] == "ConfigMap")
    (tmp_path / "watt.yaml").write_text(config.replace("/run/watt", str(tmp_path / "written")))
    kubeconfig(namespace.account("watt"))
    host, _, port = consul.address.removeprefix("http://").rpartition(":")
    resolver = yaml.safe_load((MANIFESTS / "resolver.yaml").read_text())
    resolver["spec"]["address"] = f"${{HOST_IP}}:{port}"
    namespace.apply(resolver)
    with WattProcess("--config", str(tmp_path / "watt.yaml"), "-n", namespace.name, HOST_IP=host) as watt:
        latest = watt.until(bool, "a snapshot")
        assert set(latest["Kubernetes"]) == {"services", "consulresolvers.wigwag.dev"}
        assert set(latest["Consul"]["Endpoints"]) == {"payment", "search"}
        until((tmp_path / "written/services.json").exists, "the directory")
        assert set(json.loads((tmp_path / "written/endpoints.json").read_text())) >= {"Consul"}
        assert watt.get("/readyz")[0] == 200


def test_the_api_server_takes_the_objects_of_the_guide(namespace: Namespace) -> None:
    blocks = (block for block in contents(GUIDE, "yaml") if "apiVersion" in block)
    made = [namespace.apply(each)["kind"] for block in blocks for each in yaml.safe_load_all(block)]
    assert made == ["ConsulResolver", "ConfigMap", "Role"]
