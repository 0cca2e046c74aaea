"""The manifests of the example at a real API server, and the example on the ConfigMap that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dflag.test_example import MANIFESTS, config_map, says, server
from tests.real.access import Access
from tests.real.cluster import Namespace
from tests.real.processes import until


def apply(namespace: Namespace, *names: str) -> list[Any]:
    documents = (each for name in names for each in yaml.safe_load_all((MANIFESTS / name).read_text()))
    return [namespace.apply(document) for document in documents]


def test_the_api_server_takes_the_manifests(namespace: Namespace) -> None:
    """A field that it does not know would be refused."""
    made = apply(namespace, *sorted(path.name for path in MANIFESTS.iterdir()))
    kinds = {each["kind"] for each in made}
    assert kinds == {"ConfigMap", "Deployment", "Service", "ServiceAccount", "Role", "RoleBinding"}
    (pod,) = (each["spec"]["template"]["spec"] for each in made if each["kind"] == "Deployment")
    mounted = {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"]}
    assert mounted == {mount["name"]: "example-config" for mount in pod["containers"][0]["volumeMounts"]}


def test_with_no_kubelet_in_between(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply(namespace, "configmap.yaml", "fast.yaml")
    access: Access = namespace.account("server-kube")
    monkeypatch.setenv("KUBECONFIG", str(access.kubeconfig(tmp_path / "kubeconfig")))
    with server(f"--config-dir=configmap/{namespace.name}/example-config") as (home, _, _process):
        assert says(home) == [config_map()["example_my_dynamic_string"]] * 20
        path = namespace.path("v1", "ConfigMap", "example-config")
        namespace.cluster.patch(path, {"data": {"example_my_dynamic_int": "3"}})
        until(lambda: says(home) == ["something"] * 3, "the change at the service")
