"""Kill switches from `kubectl apply` to a client, with the manifest of the guide, where the kubelet takes its time."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.cluster import Cluster, Namespace
from tests.real.podworker import LAZY
from tests.real.processes import until
from tests.real.workloads import App, resolve
from tests.test_deploy import SYSTEM
from tools.manifests import KUSTOMIZE
from wigwag.operator.names import FLAGS_CHANGED, OPERATOR_ACCOUNT

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "kill-switch.yaml"


@pytest.fixture(scope="session")
def cluster(operated: Cluster) -> Cluster:
    operated.apply_files([KUSTOMIZE / "components/kill-switch/rbac.yaml"])
    operated.await_right(f"{SYSTEM}:{OPERATOR_ACCOUNT}", "patch", group="", resource="pods")
    return operated


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(EXAMPLE.read_text())}
    found["Deployment", "shop"]["spec"]["template"]["metadata"]["annotations"][LAZY] = "true"
    return found


def switched(manifest: dict[str, Any], flag: str, variant: str) -> dict[str, Any]:
    changed = deepcopy(manifest)
    changed["spec"]["flagSpec"]["flags"][flag]["defaultVariant"] = variant
    return changed


def variant(pod: dict[str, Any], flag: str) -> str:
    return str(resolve(pod, flag).get("variant"))


def test_a_kill_switch_reaches_pods_that_mount_it_though_the_kubelet_takes_its_time(namespace: Namespace) -> None:
    cluster, made = namespace.cluster, manifests()
    for manifest in made.values():
        namespace.apply(manifest)
    pod = App(namespace, "shop").ready()
    until(lambda: (variant(pod, "payments"), variant(pod, "banner")) == ("on", "on"), "the first flags")

    held = namespace.path("v1", "ConfigMap", "shop")
    namespace.apply(switched(made["FeatureFlag", "shop"], "banner", "off"))
    until(lambda: '"defaultVariant":"off"' in str(cluster.get(held)["data"]), "the ConfigMap of an ordinary flag")
    assert variant(pod, "banner") == "on", "nobody has looked"

    namespace.apply(switched(made["FeatureFlag", "switches"], "payments", "off"))
    until(lambda: variant(pod, "payments") == "off", "the kill switch")
    touched = cluster.get(namespace.path("v1", "Pod", pod["metadata"]["name"]))["metadata"]
    assert touched["annotations"][FLAGS_CHANGED]
    assert touched["uid"] == pod["metadata"]["uid"], "the same pod"

    namespace.apply(switched(made["FeatureFlag", "switches"], "payments", "on"))
    until(lambda: variant(pod, "payments") == "on", "and back")


def test_the_guide_shows_the_manifest() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "kill-switch.md").read_text()
    assert f"```yaml\n{EXAMPLE.read_text()}```" in guide
