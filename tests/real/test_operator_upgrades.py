"""Agents that run, on a real control plane: another image in place or by restarts, by another operator, or missing.

The operator is restarted again and again with other settings, so the plane is shared by all tests of this module, and
by no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.real import programs
from tests.real.agents import flags
from tests.real.cluster import Cluster, Namespace
from tests.real.conftest import loudly
from tests.real.operated import SYSTEM, OperatedPlane
from tests.real.operators import OperatorProcess
from tests.real.processes import until
from tests.real.services import is_ready
from tests.real.workloads import App, agent_of, deployment, resolve, sees, source, template
from tools.manifests import CANARY, CANARY_NAMESPACE, DEPLOY, KUSTOMIZE, ROOT, loaded
from wigwag.cli.main import main
from wigwag.operator.admission.registration import MUTATING, MUTATING_NAME, VALIDATING, VALIDATING_NAME
from wigwag.operator.names import AGENT_IMAGE, OPERATOR_ACCOUNT, REVISION
from wigwag.operator.revisions import Ownership
from wigwag.operator.upgrades.report import REPORT

pytestmark = pytest.mark.timeout(240)  # several operators and a dozen agents, one after the other
PATIENCE = 100.0
EXAMPLE = DEPLOY / "examples" / "upgrades.yaml"
WATCHDOG = ("--watchdog=1s", "--watchdog-rate=600")
IN_PLACE = ("--sidecar-upgrade=in-place", "--sidecar-upgrade-budget=1")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedPlane]:
    with loudly("KUBERNETES"):
        programs.kubernetes()
    with OperatedPlane(tmp_path_factory.mktemp("own"), SIDECAR_TAG="1") as operated:
        components = "sidecar-upgrades", "watchdog", "revisions"
        operated.cluster.apply_files([KUSTOMIZE / "components" / name / "rbac.yaml" for name in components])
        yield operated


@pytest.fixture
def cluster(plane: OperatedPlane) -> Cluster:
    return plane.cluster


def tag_of(pod: dict[str, Any]) -> str:
    return str(agent_of(pod)["image"].partition(":")[2])


def restarts(pod: dict[str, Any]) -> dict[str, int]:
    status = pod.get("status", {})
    statuses = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
    return {each["name"]: each["restartCount"] for each in statuses}


class Workloads:
    """Two workloads whose agents are upgraded, and one that does not want that: those of the guide."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        for manifest in loaded(EXAMPLE):
            namespace.apply(manifest)
        self.wait(lambda pods: len(pods) == 4 and all(map(is_ready, pods)), "all pods being ready")

    def pods(self, *names: str) -> list[dict[str, Any]]:
        return [pod for name in names or ("web", "db", "pinned") for pod in App(self._namespace, name).pods()]

    def wait(self, holds: Any, what: str, *names: str) -> list[dict[str, Any]]:
        until(lambda: holds(self.pods(*names)), what, PATIENCE)
        return self.pods(*names)

    def tags(self) -> list[str]:
        return [tag_of(pod) for pod in self.pods("web", "db")]

    def upgraded(self, tag: str, restarted: int) -> list[dict[str, Any]]:
        """Wait until all agents run with a tag, after so many restarts of their containers, and return the pods."""

        def done(pods: list[dict[str, Any]]) -> bool:
            states = [(tag_of(pod), is_ready(pod), restarts(pod)) for pod in pods]
            return states == [(tag, True, {"flagd": restarted, "app": 0})] * 3

        return self.wait(done, f"all agents having the tag {tag}", "web", "db")


def report(cluster: Cluster) -> dict[str, str]:
    answer = cluster.rest.ask("GET", cluster.path("v1", "ConfigMap", SYSTEM, REPORT))
    return dict(answer.json["data"]) if answer.status == 200 else {}


def events_of(namespace: Namespace, pod: dict[str, Any]) -> list[str]:
    events = namespace.cluster.get(namespace.path("v1", "Event"))["items"]
    return [each["reason"] for each in events if each["involvedObject"].get("uid") == pod["metadata"]["uid"]]


def test_the_guide_shows_the_example() -> None:
    assert EXAMPLE.read_text() in (ROOT / "docs/guides/upgrades.md").read_text()


def test_agents_are_upgraded_in_place_each_once_and_one_that_fails_pauses_it(
    namespace: Namespace,
    plane: OperatedPlane,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
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
    pods = workloads.upgraded("2", restarted=1)  # only agents restart, each of them once
    assert {pod["metadata"]["uid"] for pod in workloads.pods()} == before, "no pod was made anew"
    assert all(resolve(pod, "new-checkout")["variant"] == "on" for pod in pods)
    (pinned,) = workloads.pods("pinned")
    assert (tag_of(pinned), restarts(pinned)["flagd"]) == ("1", 0)
    until(lambda: report(plane.cluster)["summary"].startswith("3 of 4 agents"), "the report", PATIENCE)
    assert report(plane.cluster)["excluded"] == "1"
    monkeypatch.setenv("KUBECONFIG", str(plane.cluster.access.kubeconfig(plane.folder / "admin")))
    assert main(["sidecars", "--wait", "--namespace", namespace.name]) == 0
    assert "deployment/pinned   excluded   wigwag:1 (1)" in capsys.readouterr().out
    until(lambda: any("AgentUpgraded" in events_of(namespace, pod) for pod in pods), "an Event", PATIENCE)


def test_workloads_are_restarted_one_after_the_other_and_each_once(namespace: Namespace, plane: OperatedPlane) -> None:
    plane.restart_operator(SIDECAR_TAG="1")
    workloads = Workloads(namespace)
    before = {pod["metadata"]["uid"] for pod in workloads.pods()}

    plane.restart_operator("--sidecar-upgrade=restart", "--sidecar-upgrade-budget=1", SIDECAR_TAG="3")
    pods = workloads.upgraded("3", restarted=0)
    assert not before & {pod["metadata"]["uid"] for pod in pods}
    rolled = namespace.cluster.get(namespace.path("apps/v1", "Deployment", "web"))["spec"]["template"]["metadata"]
    assert rolled["annotations"][AGENT_IMAGE] == "wigwag:3"
    assert namespace.cluster.get(namespace.path("apps/v1", "StatefulSet", "db"))["metadata"]["generation"] == 2
    assert {tag_of(pod) for pod in workloads.pods("pinned")} == {"1"}


def has_agent(pod: dict[str, Any]) -> bool:
    return "flagd" in {each["name"] for each in pod["spec"].get("initContainers") or ()}


def names(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


def messages(namespace: Namespace, about: str) -> str:
    """Return the Events about an object."""
    events = namespace.cluster.get(namespace.path("v1", "Event"))["items"]
    return "\n".join(each["message"] for each in events if each["involvedObject"]["name"] == about)


def evictions(plane: OperatedPlane, result: str) -> float:
    lines = plane.operator.fetch("metrics", "/metrics")[1].decode().splitlines()
    found = [line for line in lines if line.startswith(f'wigwag_watchdog_evictions_total{{result="{result}"}}')]
    return float(found[0].split()[-1]) if found else 0.0


def budget(name: str) -> dict[str, Any]:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}


def missed_pods(plane: OperatedPlane, namespace: Namespace) -> tuple[App, App]:
    """Create pods that ask for agents while nobody calls the webhook: of two workloads, and one of nobody."""
    plane.cluster.rest.call("DELETE", MUTATING.path())
    until(lambda: not plane.is_called(), "no call of the webhook", PATIENCE)
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", {"source": "flags", "provider": "file"}))
    namespace.apply(deployment("web", "source"))
    namespace.apply(deployment("guarded", "source"))
    namespace.apply(budget("guarded"))
    namespace.apply({"apiVersion": "v1", "kind": "Pod", **template("bare", "source"), "metadata": {
        **template("bare", "source")["metadata"], "name": "bare"}})  # fmt: skip
    apps = App(namespace, "web"), App(namespace, "guarded")
    for app in (*apps, App(namespace, "bare")):
        assert not has_agent(app.ready())
    path = namespace.path("policy/v1", "PodDisruptionBudget", "guarded")
    until(lambda: plane.cluster.get(path)["status"].get("currentHealthy") == 1, "the budget", PATIENCE)
    return apps


def test_missed_pods_are_evicted_if_the_webhook_is_called_and_budgets_are_respected(
    namespace: Namespace, plane: OperatedPlane
) -> None:
    web, guarded = missed_pods(plane, namespace)
    before = names(web.pods()) | names(guarded.pods())
    plane.restart_operator(*WATCHDOG)

    until(lambda: "the webhook is not called" in messages(namespace, "web"), "the end of evictions", PATIENCE)
    assert evictions(plane, "evicted") == 1, "one pod was tried"
    assert not any(map(has_agent, web.pods()))
    assert names(guarded.pods()) < before

    plane.register()
    youngest = max(pod["metadata"]["creationTimestamp"] for pod in (*web.pods(), *guarded.pods()))
    numbers = iter(range(1000))

    def proves() -> bool:
        """Create a pod, and tell whether it is younger than those without an agent: times are in whole seconds."""
        proof = App(namespace, f"proof-{next(numbers)}")
        namespace.apply(deployment(proof.name, "source"))
        until(proof.pods, "a pod with an agent", PATIENCE)
        assert all(map(has_agent, proof.pods()))
        return bool(proof.pods()[0]["metadata"]["creationTimestamp"] > youngest)

    until(proves, "a proof that the webhook is called", PATIENCE)
    until(lambda: web.pods() and all(has_agent(pod) and is_ready(pod) for pod in web.pods()), "agents", PATIENCE)
    until(lambda: evictions(plane, "blocked") >= 1, "an eviction that the budget forbids", PATIENCE)
    assert names(guarded.pods()) < before
    until(lambda: "no controller" in messages(namespace, "bare"), "an Event about the pod of nobody", PATIENCE)
    assert names(App(namespace, "bare").pods()) == {"bare"}

    plane.cluster.delete(namespace.path("policy/v1", "PodDisruptionBudget", "guarded"))
    until(lambda: any(map(has_agent, guarded.pods())), "the pod that the budget had kept", PATIENCE)


@contextmanager
def canary(plane: OperatedPlane, **variables: str) -> Iterator[OperatorProcess]:
    """Run a second operator beside that of the plane, with what `deploy/kustomize/canary` installs."""
    for manifest in loaded(KUSTOMIZE / "canary" / "operator.yaml"):
        if manifest["kind"] == "Deployment":
            manifest["spec"]["replicas"] = 0
        if manifest["kind"] != "PodDisruptionBudget":
            plane.cluster.apply(manifest)
    config = Namespace(plane.cluster, CANARY_NAMESPACE).account(OPERATOR_ACCOUNT).kubeconfig(plane.folder / "canary")
    environment = {"KUBECONFIG": str(config), "POD_NAMESPACE": CANARY_NAMESPACE, **variables}
    options = "--leader-elect", "--revision=canary", *IN_PLACE
    with OperatorProcess(*options, environment=environment) as operator:
        operator.register(plane.cluster, namespace=CANARY_NAMESPACE, revision=CANARY)
        yield operator
        assert operator.stop() == 0
    for kind, name in ((MUTATING, MUTATING_NAME), (VALIDATING, VALIDATING_NAME)):
        plane.cluster.delete(kind.path(name=Ownership(CANARY).name(name)))


def injected_tag(namespace: Namespace, **labels: str) -> str:
    """Return the tag that a new pod with these labels would get now; empty if it would get no agent."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "probe", "uid": "1"}
    pod = template("probe", "source")
    about = {**pod["metadata"], "name": "probe", "labels": labels, "ownerReferences": [owner]}
    body = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": about}
    answer = namespace.cluster.rest.ask("POST", namespace.path("v1", "Pod"), body, query={"dryRun": "All"})
    return tag_of(answer.json) if answer.status == 201 and has_agent(answer.json) else ""


def test_a_namespace_moves_to_another_operator_and_back_by_its_label(
    namespace: Namespace, plane: OperatedPlane
) -> None:
    cluster, path = plane.cluster, namespace.cluster.path("v1", "Namespace", name=namespace.name)
    plane.restart_operator("--revision=default", *IN_PLACE, SIDECAR_TAG="1")
    plane.register("default")
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", {"source": "flags", "provider": "file"}))
    namespace.apply(deployment("web", "source"))
    web, held = App(namespace, "web"), namespace.path("v1", "ConfigMap", "flags")
    pod = web.ready()
    assert tag_of(pod) == "1"
    written = cluster.get(held)["metadata"]["resourceVersion"]

    def has(tag: str) -> bool:
        (live,) = web.pods()
        return tag_of(live) == tag and is_ready(live) and restarts(live)["flagd"] > 0

    with canary(plane, SIDECAR_TAG="9"):
        until(lambda: injected_tag(namespace, **{REVISION: CANARY}) == "9", "a call of its webhook", PATIENCE)
        labelled = deployment("own", "source")
        labelled["spec"]["template"]["metadata"]["labels"][REVISION] = CANARY
        namespace.apply(labelled)
        assert tag_of(App(namespace, "own").ready()) == "9", "a pod may choose where its namespace does not"
        assert tag_of(web.pods()[0]) == "1"

        cluster.patch(path, {"metadata": {"labels": {REVISION: CANARY}}})
        until(lambda: has("9"), "an upgrade by the other operator", PATIENCE)
        assert web.pods()[0]["metadata"]["uid"] == pod["metadata"]["uid"]
        assert cluster.get(held)["metadata"]["resourceVersion"] == written, "nobody writes what is right"
        namespace.feature_flag("flags", flags("off"))
        sees(web.pods()[0], "off")
        until(lambda: injected_tag(namespace) == "9", "a call for new pods", PATIENCE)
        namespace.apply(deployment("later", "source"))
        assert tag_of(App(namespace, "later").ready()) == "9"

        cluster.patch(path, {"metadata": {"labels": {REVISION: None}}})
        until(lambda: has("1"), "an upgrade by the first operator", PATIENCE)
        assert tag_of(App(namespace, "own").pods()[0]) == "9", "its pods have the label"
    namespace.cluster.delete(namespace.path("apps/v1", "Deployment", "own"))
    plane.restart_operator()
    plane.register()
