"""A shared source of the cluster, end to end: the example of `deploy`, and what goes wrong with it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.agents import flags
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.processes import until
from tests.real.rest import RestError
from tests.real.workloads import App, deployment, resolve, source
from tests.test_deploy import kubectl
from tools.manifests import DEPLOY
from wigwag.operator.names import CLUSTER_FEATURE_FLAG_SOURCE, ENABLED

RBAC = "rbac.authorization.k8s.io/v1"
EXAMPLE = DEPLOY / "examples" / "shared-source.yaml"
PLATFORM, TEAM = "flags-platform", "flags-checkout"


def company(cluster: Cluster) -> str:
    return cluster.path(OPENFEATURE, "ClusterFeatureFlagSource", name="company")


def condition(cluster: Cluster, type: str, status: str, reason: str) -> None:
    """Wait until the shared source says so."""

    def says() -> bool:
        found = (cluster.get(company(cluster)).get("status") or {}).get("conditions") or []
        return any((each["type"], each["status"], each["reason"]) == (type, status, reason) for each in found)

    until(says, f"{type} {status} {reason}", 90.0)


def naming(name: str, shared: str) -> dict[str, Any]:
    return deployment(name, annotations={ENABLED: "true", CLUSTER_FEATURE_FLAG_SOURCE: shared})


@pytest.mark.timeout(240)  # it waits for several things in a row
def test_the_example_serves_a_team_until_it_may_no_longer(operated: Cluster) -> None:
    team, platform = Namespace(operated, TEAM), Namespace(operated, PLATFORM)
    for manifest in yaml.safe_load_all(EXAMPLE.read_text()):
        operated.apply(manifest)
    app = App(team, "checkout")
    pod = app.ready()
    assert resolve(pod, "new-checkout")["value"] is True, "of the team"
    assert resolve(pod, "maintenance-banner")["variant"] == "off", "of the company"
    about = platform.path(OPENFEATURE, "FeatureFlag", "company")
    banner = {"spec": {"flagSpec": {"flags": {"maintenance-banner": {"defaultVariant": "on"}}}}}
    operated.patch(about, banner)
    until(lambda: resolve(pod, "maintenance-banner")["variant"] == "on", "a change of the company's flag", 90.0)
    condition(operated, "Resolved", "True", "Resolved")
    condition(operated, "Programmed", "True", "UpToDate")

    operated.patch(company(operated), {"spec": {"contextValues": {"region": "us"}}})
    again = app.ready(without=[pod["metadata"]["uid"]])
    assert "region=us" in str(again["spec"]["initContainers"])

    operated.patch(about, {"metadata": {"annotations": {"openfeature.dev/allow-from": None}}})
    condition(operated, "Resolved", "False", "FlagNotGranted")
    until(lambda: not roles(platform), "no rights in the namespace that withdrew its grant", 90.0)

    operated.patch(
        operated.path("v1", "Namespace", name=TEAM), {"metadata": {"labels": {"flags.example/company": None}}}
    )
    condition(operated, "Granted", "False", "GrantMissing")
    team.apply(naming("another", "company"))
    App(team, "another").refused("ClusterFeatureFlagSource company does not exist, or does not allow pods")
    assert app.pods(), "those that run go on"
    for name in (TEAM, PLATFORM):
        Namespace(operated, name).remove()
    operated.delete(company(operated))


def test_kubectl_knows_the_kind(operated: Cluster, tmp_path: Path) -> None:
    config = operated.access.kubeconfig(tmp_path / "kubeconfig")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        whole = [str(kubectl()), f"--kubeconfig={config}", *command]
        return subprocess.run(whole, capture_output=True, text=True, check=False)

    explained = run("explain", "clusterfeatureflagsource.spec.allowedNamespaces").stdout
    assert "by default all" in explained
    assert "Of the labels of namespaces." in explained
    assert run("get", "cffs").returncode == 0
    wrong = {**source("wrong", {"source": "x"}), "kind": "ClusterFeatureFlagSource"}
    wrong["spec"]["allowedNamespaces"] = {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}
    with pytest.raises(RestError, match="Unsupported value"):
        operated.apply(wrong)


def roles(namespace: Namespace) -> list[str]:
    found = namespace.cluster.get(namespace.path(RBAC, "Role"))["items"]
    return [each["metadata"]["name"] for each in found if each["metadata"]["name"].startswith("flagd-")]


def test_pods_wait_for_a_shared_source_that_does_not_exist_and_their_own_source_wins(operated: Cluster) -> None:
    team = operated.add_namespace()
    name = f"of-{team.name}"
    team.apply(naming("web", name))
    App(team, "web").refused(f"ClusterFeatureFlagSource {name} does not exist")
    team.feature_flag("shared", flags("off"))
    team.feature_flag("own", flags("on"))
    shared = {**source(name, {"source": "shared", "provider": "kubernetes"}), "kind": "ClusterFeatureFlagSource"}
    operated.apply(shared)
    pod = App(team, "web").ready()
    assert resolve(pod)["variant"] == "off"
    team.apply(source("own", {"source": "own", "provider": "kubernetes"}))
    annotations = {ENABLED: "true", CLUSTER_FEATURE_FLAG_SOURCE: name, "openfeature.dev/featureflagsource": "own"}
    team.apply(deployment("both", annotations=annotations))
    assert resolve(App(team, "both").ready())["variant"] == "on"
    operated.delete(operated.path(OPENFEATURE, "ClusterFeatureFlagSource", name=name))
    team.remove()
