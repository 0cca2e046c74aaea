"""Agents that run get another image: in their pods or by restarts, paused by one that fails, and never twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.real import programs
from tests.real.agents import flags
from tests.real.cluster import Cluster, Namespace
from tests.real.conftest import loudly
from tests.real.operated import SYSTEM, OperatedPlane
from tests.real.processes import until
from tests.real.services import is_ready
from tests.real.workloads import App, agent_of, deployment, resolve, source, stateful_set
from tools.manifests import KUSTOMIZE
from wigwag.operator.names import AGENT_IMAGE, SIDECAR_UPGRADE
from wigwag.operator.upgrades.report import REPORT

PATIENCE = 60.0
IN_PLACE = ("--sidecar-upgrade=in-place", "--sidecar-upgrade-budget=1")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedPlane]:
    """Its operator is restarted with other images, so it is one of our own."""
    with loudly("KUBERNETES"):
        programs.kubernetes()
    with OperatedPlane(tmp_path_factory.mktemp("own"), SIDECAR_TAG="1") as operated:
        components = KUSTOMIZE / "components"
        operated.cluster.apply_files([components / name / "rbac.yaml" for name in ("sidecar-upgrades", "watchdog")])
        yield operated


@pytest.fixture
def cluster(plane: OperatedPlane) -> Cluster:
    return plane.cluster


def tag_of(pod: dict[str, Any]) -> str:
    return str(agent_of(pod)["image"].partition(":")[2])


def restarts(pod: dict[str, Any]) -> dict[str, int]:
    statuses = pod["status"]["initContainerStatuses"] + pod["status"]["containerStatuses"]
    return {each["name"]: each["restartCount"] for each in statuses}


class Workloads:
    """Two workloads whose agents are upgraded, and one that does not want that."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        namespace.feature_flag("flags", flags())
        namespace.apply(source("source", {"source": "flags", "provider": "file"}))
        namespace.apply(deployment("web", "source", replicas=2))
        namespace.apply(stateful_set("db", "source"))
        namespace.apply(deployment("pinned", "source", annotations={SIDECAR_UPGRADE: "off"}))
        self.wait(lambda pods: len(pods) == 4 and all(map(is_ready, pods)), "all pods being ready")

    def pods(self, *names: str) -> list[dict[str, Any]]:
        return [pod for name in names or ("web", "db", "pinned") for pod in App(self._namespace, name).pods()]

    def wait(self, holds: Any, what: str, *names: str) -> list[dict[str, Any]]:
        until(lambda: holds(self.pods(*names)), what, PATIENCE)
        return self.pods(*names)

    def tags(self) -> list[str]:
        return [tag_of(pod) for pod in self.pods("web", "db")]

    def upgraded(self, tag: str) -> list[dict[str, Any]]:
        """Wait until all agents run with a tag, and return the pods."""

        def done(pods: list[dict[str, Any]]) -> bool:
            return len(pods) == 3 and all(tag_of(pod) == tag and is_ready(pod) for pod in pods)

        return self.wait(done, f"all agents having the tag {tag}", "web", "db")


def report(cluster: Cluster) -> dict[str, str]:
    answer = cluster.rest.ask("GET", cluster.path("v1", "ConfigMap", SYSTEM, REPORT))
    return dict(answer.json["data"]) if answer.status == 200 else {}


def events_of(namespace: Namespace, pod: dict[str, Any]) -> list[str]:
    events = namespace.cluster.get(namespace.path("v1", "Event"))["items"]
    return [each["reason"] for each in events if each["involvedObject"].get("uid") == pod["metadata"]["uid"]]


def test_agents_are_upgraded_in_place_each_once_and_one_that_fails_pauses_it(
    namespace: Namespace, plane: OperatedPlane
) -> None:
    plane.restart_operator(SIDECAR_TAG="1")
    workloads = Workloads(namespace)
    before = {pod["metadata"]["uid"] for pod in workloads.pods()}

    plane.restart_operator(*IN_PLACE, SIDECAR_TAG="missing")
    until(lambda: "ImagePullBackOff" in report(plane.cluster).get("paused", ""), "a pause", PATIENCE)
    assert sorted(workloads.tags()) == ["1", "1", "missing"], "the budget is one"
    (failed,) = (pod for pod in workloads.pods("web", "db") if tag_of(pod) == "missing")
    until(lambda: "AgentUpgradeFailed" in events_of(namespace, failed), "an Event")
    assert "wigwag_sidecar_upgrade_paused 1" in plane.operator.fetch("metrics", "/metrics")[1].decode()
    assert failed["metadata"]["name"].rpartition("-")[0] in report(plane.cluster)["workloads"]
    assert sorted(workloads.tags()) == ["1", "1", "missing"], "nobody else is touched"

    plane.restart_operator(*IN_PLACE, SIDECAR_TAG="2")
    until(lambda: "2" in workloads.tags(), "the first agent with the next image", PATIENCE)
    plane.restart_operator(*IN_PLACE)
    pods = workloads.upgraded("2")
    assert {pod["metadata"]["uid"] for pod in workloads.pods()} == before, "no pod was made anew"
    assert all(restarts(pod) == {"flagd": 1, "app": 0} for pod in pods), "only agents restart, each of them once"
    assert all(resolve(pod)["variant"] == "on" for pod in pods)
    (pinned,) = workloads.pods("pinned")
    assert (tag_of(pinned), restarts(pinned)["flagd"]) == ("1", 0)
    until(lambda: report(plane.cluster)["summary"].startswith("3 of 4 agents"), "the report", PATIENCE)
    assert report(plane.cluster)["excluded"] == "1"
    assert "AgentUpgraded" in events_of(namespace, pods[0])


def test_workloads_are_restarted_one_after_the_other_and_each_once(namespace: Namespace, plane: OperatedPlane) -> None:
    plane.restart_operator(SIDECAR_TAG="1")
    workloads = Workloads(namespace)
    before = {pod["metadata"]["uid"] for pod in workloads.pods()}

    plane.restart_operator("--sidecar-upgrade=restart", "--sidecar-upgrade-budget=1", SIDECAR_TAG="3")
    pods = workloads.upgraded("3")
    assert not before & {pod["metadata"]["uid"] for pod in pods}
    rolled = namespace.cluster.get(namespace.path("apps/v1", "Deployment", "web"))["spec"]["template"]["metadata"]
    assert rolled["annotations"][AGENT_IMAGE] == "wigwag:3"
    assert namespace.cluster.get(namespace.path("apps/v1", "StatefulSet", "db"))["metadata"]["generation"] == 2
    assert {tag_of(pod) for pod in workloads.pods("pinned")} == {"1"}
