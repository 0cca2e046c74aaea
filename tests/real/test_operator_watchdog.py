"""The watchdog on a real control plane: pods that were created while the webhook was down get their agents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.real import programs
from tests.real.agents import flags
from tests.real.cluster import Cluster, Namespace
from tests.real.conftest import loudly
from tests.real.operated import OperatedPlane
from tests.real.processes import until
from tests.real.services import is_ready
from tests.real.workloads import App, deployment, source, template
from tools.manifests import KUSTOMIZE
from wigwag.operator.admission.registration import MUTATING

PATIENCE = 55.0
WATCHDOG = ("--watchdog=1s", "--watchdog-rate=600")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedPlane]:
    """Its webhook is taken away for a while, so it is one of our own."""
    with loudly("KUBERNETES"):
        programs.kubernetes()
    with OperatedPlane(tmp_path_factory.mktemp("own")) as operated:
        operated.cluster.apply_files([KUSTOMIZE / "components" / "watchdog" / "rbac.yaml"])
        yield operated


@pytest.fixture
def cluster(plane: OperatedPlane) -> Cluster:
    return plane.cluster


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
