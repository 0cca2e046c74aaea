"""`deploy` on a real API server: kubectl and Helm install it, and the operator works with the rights that it gets."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real import programs
from tests.real.access import Access
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.conftest import loudly
from tests.real.controlplane import ControlPlane
from tests.real.operators import refuses_flags
from tests.real.processes import until
from tests.real.test_operator import RunningOperator
from tests.test_deploy import SYSTEM, VARIANTS, helm, overlay
from tools.manifests import CHART, DEPLOY, KUSTOMIZE
from wigwag.operator.admission.registration import (
    MUTATING,
    MUTATING_NAME,
    VALIDATING,
    VALIDATING_NAME,
    bundle_patch,
)
from wigwag.operator.injection.agent import SECURITY_CONTEXT
from wigwag.operator.names import LEASE, OPERATOR_ACCOUNT, OPERATOR_DEPLOYMENT, PROXY, PROXY_BUDGET, PROXY_SERVICE
from wigwag.operator.resources.crd import RESOURCES

FOREIGN = {
    "cert-manager.io": ("Certificate", "Issuer"),
    "monitoring.coreos.com": ("PodMonitor", "ServiceMonitor"),
}
RBAC = "rbac.authorization.k8s.io/v1"
DEMO = "open-feature-demo"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster that knows none of our kinds, and has no controllers."""
    with loudly("KUBERNETES"):
        found = programs.kubernetes()
    folder = tmp_path_factory.mktemp("plane")
    with ControlPlane(folder, found._replace(controllers=None), definitions=()) as plane:
        yield plane


@pytest.fixture
def unregistered(plane: ControlPlane) -> Iterator[None]:
    """Take the webhooks away after the test, when nobody serves them any more."""
    yield
    for kind in (MUTATING, VALIDATING):
        plane.cluster.rest.call("DELETE", kind.path())


@pytest.fixture
def installer(plane: ControlPlane, tmp_path: Path) -> Callable[..., str]:
    """Runs kubectl and Helm as an administrator; returns what they say, which has no warnings in it."""
    config = plane.cluster.access.kubeconfig(tmp_path / "admin.kubeconfig")
    # Helm keeps files of its own in these folders.
    homes = {f"HELM_{name}_HOME": str(tmp_path / name) for name in ("CACHE", "CONFIG", "DATA")}

    def run(*command: object, text: str = "") -> str:
        environment = {**os.environ, **homes, "KUBECONFIG": str(config)}
        done = subprocess.run(
            [*map(str, command)], input=text, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "warn" not in done.stderr.lower(), done.stderr
        return done.stdout

    return run


@pytest.fixture
def kubectl(plane: ControlPlane, installer: Callable[..., str]) -> Callable[..., str]:
    program = programs.kubernetes().kubectl
    if program is None:
        pytest.skip("there is no kubectl beside the API server")
    return lambda *command: installer(program, *command)


def foreign(cluster: Cluster) -> None:
    """Define kinds of others, without a schema."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definitions = []
    for group, kinds in FOREIGN.items():
        for kind in kinds:
            plural = f"{kind.lower()}s"
            version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            spec = {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [version],
            }
            about = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
            definitions.append({**about, "metadata": {"name": f"{plural}.{group}"}, "spec": spec})
    cluster.define(definitions)


def apply(kubectl: Callable[..., str], *options: object) -> None:
    kubectl("apply", "--server-side", "--force-conflicts", "--validate=strict", *options)


def test_helm_installs_and_upgrades_and_leaves_the_definitions(
    plane: ControlPlane, installer: Callable[..., str]
) -> None:
    """Whoever has installed it before by other means: Helm takes its objects over."""
    cluster = plane.cluster
    foreign(cluster)
    deployment = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{OPERATOR_DEPLOYMENT}"
    webhooks = MUTATING.path(name=MUTATING_NAME)
    changes: list[Any] = []
    options = "--namespace", SYSTEM, "--create-namespace", "--take-ownership", "--force-conflicts", "--values", "-"
    for values in VARIANTS.values():
        command = helm(), "upgrade", "--install", "flags", CHART, *options
        installer(*command, text=json.dumps(values))
        assert cluster.get(deployment)["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        changes.append(bundle_patch(cluster.get(webhooks), cluster.access.authority))
        if changes[-1]:
            cluster.rest.call("PATCH", webhooks, changes[-1], kind="application/json-patch+json")
    filled = [True, *[False] * (len(VARIANTS) - 1)]
    assert [*map(bool, changes)] == filled, "an upgrade leaves what the operator has filled in"
    installer(helm(), "uninstall", "flags", "--namespace", SYSTEM)
    assert not cluster.exists(deployment)
    definitions = cluster.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    assert {resource.kind.kind for resource in RESOURCES} <= {each["spec"]["names"]["kind"] for each in definitions}


def original() -> dict[str, Any]:
    """Return what counts of the original's Deployment."""
    labels = {"app.kubernetes.io/name": "open-feature-operator", "control-plane": "controller-manager"}
    container: dict[str, Any] = {
        "name": "manager",
        "image": "original",
        "command": ["/manager"],
        "args": ["--verbose=false"],
    }
    container["securityContext"] = SECURITY_CONTEXT
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    about = {"apiVersion": "apps/v1", "kind": "Deployment"}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {**about, "metadata": {"name": OPERATOR_DEPLOYMENT, "namespace": SYSTEM}, "spec": spec}


def is_established(definition: Any) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def test_kubectl_replaces_the_original_and_changes_nothing_when_it_applies_again(
    plane: ControlPlane, kubectl: Callable[..., str], tmp_path: Path
) -> None:
    cluster = plane.cluster
    foreign(cluster)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    operator = cluster.path_of(original())
    if cluster.exists(operator):
        cluster.delete(operator)
    (tmp_path / "original.json").write_text(json.dumps(original()))
    kubectl("apply", "-f", tmp_path / "original.json")
    components = sorted(path.name for path in (KUSTOMIZE / "components").iterdir())
    folder = overlay(tmp_path, *components)
    apply(kubectl, "-k", folder)

    def versions() -> dict[str, str]:
        found = json.loads(kubectl("get", "-k", folder, "-o", "json"))["items"]
        return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in found}

    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    until(lambda: all(map(is_established, cluster.get(definitions)["items"])), "the last word about definitions")
    before = versions()
    containers = cluster.get(operator)["spec"]["template"]["spec"]["containers"]
    assert [each["command"] for each in containers] == [["wigwag"]]
    apply(kubectl, "-k", folder)
    assert versions() == before


def registered(cluster: Cluster, url: str) -> None:
    """Have the API server call an operator outside of the cluster; the operator fills in the CA."""
    for kind, name in ((MUTATING, MUTATING_NAME), (VALIDATING, VALIDATING_NAME)):
        where = kind.path(name=name)
        clients = [each["clientConfig"]["service"]["path"] for each in cluster.get(where)["webhooks"]]
        change = [
            {"op": "replace", "path": f"/webhooks/{at}/clientConfig", "value": {"url": f"{url}{path}"}}
            for at, path in enumerate(clients)
        ]
        cluster.rest.call("PATCH", where, change, kind="application/json-patch+json")
        until(lambda where=where: trusted(cluster, where), "the CA")  # type: ignore[misc]
    until(lambda: refuses_flags(cluster), "the API server calling the webhooks")


def trusted(cluster: Cluster, where: str) -> bool:
    return all("caBundle" in each["clientConfig"] for each in cluster.get(where)["webhooks"])


def await_rights(cluster: Cluster) -> None:
    """Wait until the roles of the operator, in its namespace and everywhere, count."""
    account = f"{SYSTEM}:{OPERATOR_ACCOUNT}"
    cluster.await_right(account, "watch", group="core.openfeature.dev", resource="featureflags")
    cluster.await_right(account, "create", SYSTEM, group="coordination.k8s.io", resource="leases")


def placed(cluster: Cluster, path: Path) -> tuple[str, ...]:
    """Return the namespace for an example that says none, and is not of the original: they have names in common."""
    manifests = yaml.safe_load_all(path.read_text())
    if path.parent.name == "playground" or any("namespace" in each["metadata"] for each in manifests):
        return ()
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"example-{path.stem}"}})
    return "--namespace", f"example-{path.stem}"


def pod_of(deployment: Any) -> dict[str, Any]:
    """Return a pod as the controllers make it."""
    template = deployment["spec"]["template"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {
        **template["metadata"], "name": "web", "ownerReferences": [owner]}}  # fmt: skip


def test_the_operator_serves_the_examples_with_the_rights_that_are_installed(
    plane: ControlPlane,
    kubectl: Callable[..., str],
    kubeconfig: Callable[[Access], Path],
    caplog: pytest.LogCaptureFixture,
    unregistered: None,
) -> None:
    cluster = plane.cluster
    apply(kubectl, "-k", KUSTOMIZE / "default")
    await_rights(cluster)
    kubeconfig(Namespace(cluster, SYSTEM).account(OPERATOR_ACCOUNT))
    with RunningOperator(SYSTEM, leader_elect=True, allow_orphan_pods=False).running() as running:
        registered(cluster, running.url)
        for path in sorted((DEPLOY / "examples").rglob("*.yaml")):
            apply(kubectl, "-f", path, *placed(cluster, path))

        def there(api: str, kind: str, namespace: str, name: str) -> None:
            until(lambda: cluster.exists(cluster.path(api, kind, namespace, name)), f"{kind} {name}")

        for api, kind, name in (
            ("apps/v1", "Deployment", PROXY),
            ("v1", "Service", PROXY_SERVICE),
            ("policy/v1", "PodDisruptionBudget", PROXY_BUDGET),
            ("coordination.k8s.io/v1", "Lease", LEASE),
        ):
            there(api, kind, SYSTEM, name)
        for name in ("flagd-in-process", "flagd-client"):
            there("apps/v1", "Deployment", "default", name)
            there("v1", "Service", "default", name)
        there("networking.k8s.io/v1", "Ingress", "default", "flagd-client")
        bindings = cluster.path(RBAC, "RoleBinding", DEMO)
        until(lambda: "open-feature-demo-sa" in str(cluster.get(bindings)), "the rights of the agent")
        flag = cluster.path(OPENFEATURE, "FeatureFlag", DEMO, "end-to-end")
        until(lambda: cluster.get(flag).get("status", {}).get("conditions"), "a status")

        deployment = cluster.get(cluster.path("apps/v1", "Deployment", DEMO, "open-feature-demo-deployment"))
        pods = cluster.path("v1", "Pod", DEMO)
        made = cluster.rest.call("POST", pods, pod_of(deployment), query={"dryRun": "All"}).json
        assert [each["name"] for each in made["spec"]["initContainers"]] == ["flagd"]
    assert "forbidden" not in caplog.text.lower()
