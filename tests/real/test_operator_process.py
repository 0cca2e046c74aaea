"""`wigwag operator` as a process against a real API server, started as the original's Deployment starts it."""

from __future__ import annotations

import json
import signal
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.request import urlopen
from uuid import uuid4

import pytest
import yaml
from cryptography.x509 import DNSName

from tests.agent.process import TIMEOUT
from tests.documents import ROOT, contents
from tests.real.access import Access
from tests.real.agents import flags
from tests.real.cluster import OPENFEATURE, Cluster
from tests.real.controlplane import ControlPlane
from tests.real.operators import OperatorProcess
from tests.real.processes import until
from tests.real.test_admission import PODS, create, flag, plane, unique
from tests.real.test_operator import SECRET, SOURCE, source
from tests.wire.test_tls import Authority
from wigwag.operator.admission.registration import MUTATING, VALIDATING, WebhookEndpoint, mutating
from wigwag.operator.names import INLINE_FLAGS

__all__ = ["plane"]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/131bf64c.openfeature.dev"
DRY_RUN = {"dryRun": "All"}
ORIGINAL = (
    "--leader-elect",
    "--sidecar-cpu-limit=500m",
    "--sidecar-ram-limit=64Mi",
    "--sidecar-cpu-request=200m",
    "--sidecar-ram-request=32Mi",
    "--image-pull-secrets=pull",
    "--labels=team:shop",
    "--annotations=owner:shop",
    "--metrics-secure=false",
    "--verbose=true",
)
"""What the original's Deployment passes."""
VARIABLES = {
    "SIDECAR_IMAGE": "agents.test/flagd",
    "SIDECAR_TAG": "v0.15.4",
    "SIDECAR_ENV_VAR_PREFIX": "FLAGD",
    "SIDECAR_PROBES_ENABLED": "true",
    "FLAGS_VALIDATION_ENABLED": "true",
    "FLAGD_PROXY_REPLICA_COUNT": "1",
}


@pytest.fixture
def cluster(plane: ControlPlane, kubeconfig: Callable[[Access], Path]) -> Iterator[Cluster]:
    kubeconfig(plane.cluster.access)
    yield plane.cluster
    for kind in (MUTATING, VALIDATING):
        plane.cluster.rest.call("DELETE", kind.path())
    for path in (SECRET, LEASE):
        if plane.cluster.exists(path):
            plane.cluster.delete(path)


def guide() -> list[Any]:
    """Return the manifests of the first injection in the guide, in our namespace instead of theirs."""
    _, *found = list(yaml.safe_load_all(contents((ROOT / "docs/guides/operator.md").read_text(), "yaml")[0]))
    for manifest in found:
        manifest["metadata"]["namespace"] = "default"
    return found


def replica(deployment: Any) -> Any:
    """Return a pod of a Deployment, as the controllers would make it."""
    template = deployment["spec"]["template"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "checkout", "uid": str(uuid4())}
    about = {**template["metadata"], "name": unique("checkout"), "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template["spec"]}


def test_with_the_flags_and_variables_of_the_original_it_serves_and_ends_when_told(cluster: Cluster) -> None:
    flag_object, found, deployment = guide()
    with OperatorProcess(*ORIGINAL, environment=VARIABLES) as operator:
        operator.register(cluster)
        until(lambda: create(cluster, "probe", SOURCE, dryRun="All").status == 403, "the API server calls us")
        assert "orphan" in create(cluster, unique("app"), SOURCE).json["message"]
        cluster.apply(flag_object)
        cluster.apply(found)
        until(lambda: cluster.rest.ask("POST", PODS, replica(deployment), query=DRY_RUN).status == 201, "the source")
        made = cluster.rest.call("POST", PODS, replica(deployment)).json
        [agent] = made["spec"]["initContainers"]
        assert (agent["name"], agent["image"]) == ("flagd", "agents.test/flagd:v0.15.4")
        assert agent["resources"]["limits"] == {"cpu": "500m", "memory": "64Mi"}
        assert {"name": "FLAGD_PORT", "value": "8013"} in made["spec"]["containers"][0]["env"]
        assert cluster.rest.ask("POST", cluster.path(OPENFEATURE, "FeatureFlag", "default"), flag("of")).status == 403
        leads = b'leader_election_master_status{name="131bf64c.openfeature.dev"} 1\n'
        until(lambda: leads in operator.fetch("metrics", "/metrics")[1], "the Lease")
        assert cluster.get(LEASE)["spec"]["holderIdentity"]
        assert operator.fetch("probes", "/healthz") == (200, b"ok")
        assert b"controller_runtime_webhook_requests_total" in operator.fetch("metrics", "/metrics")[1]
        assert operator.stop(signal.SIGTERM) == 0
    assert not cluster.get(LEASE)["spec"].get("holderIdentity"), "released"


def test_a_bare_pod_brings_its_flags_if_bare_pods_get_agents(cluster: Cluster) -> None:
    name = unique("bare")
    about = {"name": name, "annotations": {INLINE_FLAGS: json.dumps(flags("on"))}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": about,
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }
    kept = cluster.path(OPENFEATURE, "FeatureFlag", "default", f"{name}-pod")
    with OperatorProcess("--allow-orphan-pods") as operator:
        operator.register(cluster)
        until(lambda: "initContainers" in cluster.rest.call("POST", PODS, pod, query=DRY_RUN).json["spec"], "a call")
        made = cluster.rest.call("POST", PODS, pod).json
        assert f"default/{name}-pod" in str(made["spec"]["initContainers"][0]["args"])
        until(lambda: cluster.exists(kept), "its flags")
        [owner] = cluster.get(kept)["metadata"]["ownerReferences"]
        assert owner["uid"] == made["metadata"]["uid"]
        change = {"metadata": {"annotations": {INLINE_FLAGS: json.dumps(flags("off"))}}}
        cluster.patch(cluster.path_of({**pod, "metadata": {**about, "namespace": "default"}}), change)
        until(lambda: cluster.get(kept)["spec"]["flagSpec"] == flags("off"), "the change")


class BareOperator(OperatorProcess):
    """An operator where the extra is not installed."""

    program: ClassVar[tuple[str, ...]] = (
        sys.executable,
        "-c",
        "import sys; sys.modules['cryptography'] = None; from wigwag.cli.main import main; sys.exit(main())",
    )


def test_with_certificates_of_others_it_needs_no_package_and_metrics_have_tls(cluster: Cluster, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for path, name in zip(authority.issue("localhost", DNSName("localhost")), ("tls.crt", "tls.key"), strict=True):
        Path(path).rename(tmp_path / name)
    paths = f"--webhook-cert-path={tmp_path}", f"--metrics-cert-path={tmp_path}", "--allow-orphan-pods"
    cluster.apply(source("flags", source="http://flags.test", provider="http"))
    with BareOperator(*paths) as operator:
        endpoint = WebhookEndpoint(authority.path.read_text(), namespace="operator", url=operator.url)
        cluster.apply(mutating(endpoint))
        until(lambda: create(cluster, "probe", SOURCE, dryRun="All").json["spec"].get("initContainers"), "injection")
        trust = ssl.create_default_context(cafile=str(authority.path))
        with urlopen(f"https://localhost:{operator.port('metrics')}/metrics", context=trust) as response:
            assert b"/mutate-v1-pod" in response.read()
    assert not cluster.exists(SECRET), "nobody needs it"


def test_without_the_package_and_without_a_certificate_it_says_what_to_install(cluster: Cluster) -> None:
    with BareOperator().spawn() as process:
        said = process.communicate(timeout=TIMEOUT)[1].splitlines()[-1]
    assert process.returncode == 2
    assert said.startswith("wigwag: certificates of the operator's own need the package 'cryptography'")
    assert "pip install 'wigwag[operator]'" in said


def test_while_the_api_server_is_down_it_is_alive_says_why_it_is_not_ready_and_ends_when_told(
    kubeconfig: Callable[[Access], Path], cluster: Cluster
) -> None:
    kubeconfig(Access("https://127.0.0.1:1", cluster.access.authority, "token"))
    with OperatorProcess("--leader-elect", ready=False) as operator:
        operator.wait_for_log(lambda line: "no webhook is served yet" in line["msg"])
        assert operator.fetch("probes", "/healthz")[0] == 200
        status, body = operator.fetch("probes", "/readyz")
        assert (status, body) == (500, b"not ready: not all objects are read, the webhooks have no certificate\n")
        assert operator.stop(signal.SIGTERM) == 0
