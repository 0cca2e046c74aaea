"""The operator and the proxy come and go: restarts, deletions by hand, and an installation that is taken away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real import programs
from tests.real.agents import flags
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.conftest import loudly
from tests.real.operated import SYSTEM, OperatedPlane
from tests.real.processes import until
from tests.real.workloads import App, agent_of, deployment, resolve, sees, source, sources_of
from wigwag.operator.names import OPERATOR_DEPLOYMENT, PROXY, PROXY_BUDGET, PROXY_SERVICE

PORT = 9015
PROXY_OBJECTS = (
    ("apps/v1", "Deployment", PROXY),
    ("v1", "Service", PROXY_SERVICE),
    ("policy/v1", "PodDisruptionBudget", PROXY_BUDGET),
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedPlane]:
    """It is stopped and taken apart, so it is one of our own. Its proxy listens on another port."""
    with loudly("KUBERNETES"):
        programs.kubernetes()
    with OperatedPlane(tmp_path_factory.mktemp("own"), FLAGD_PROXY_PORT=str(PORT)) as operated:
        yield operated


@pytest.fixture
def cluster(plane: OperatedPlane) -> Cluster:
    return plane.cluster


@pytest.fixture
def proxy(cluster: Cluster) -> list[str]:
    """The paths of the proxy's objects."""
    return [cluster.path(api, kind, SYSTEM, name) for api, kind, name in PROXY_OBJECTS]


def injected(namespace: Namespace) -> App:
    """Apply a workload whose flags come through the proxy, by the default provider of its source."""
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", {"source": "flags"}, defaultSyncProvider="flagd-proxy"))
    namespace.apply(deployment("web", "source"))
    return App(namespace, "web")


def test_a_default_provider_deploys_the_proxy_on_the_port_that_is_set(namespace: Namespace, proxy: list[str]) -> None:
    pod = injected(namespace).ready()
    (entry,) = sources_of(agent_of(pod))
    assert entry["uri"] == f"flagd-proxy-svc.{SYSTEM}.svc.cluster.local:{PORT}"
    assert resolve(pod)["variant"] == "on"
    namespace.feature_flag("flags", flags("off"))
    sees(pod, "off")
    owners = [namespace.cluster.get(path)["metadata"]["ownerReferences"][0]["name"] for path in proxy]
    assert owners == [OPERATOR_DEPLOYMENT] * 3


def test_a_deleted_proxy_is_back_and_pods_follow_it(namespace: Namespace, proxy: list[str]) -> None:
    pod = injected(namespace).ready()
    before = [namespace.cluster.get(path)["metadata"]["uid"] for path in proxy]
    for path in proxy:
        namespace.cluster.delete(path)

    def back() -> bool:
        found = [namespace.cluster.rest.ask("GET", path) for path in proxy]
        return all(
            answer.status == 200 and answer.json["metadata"]["uid"] != uid
            for answer, uid in zip(found, before, strict=True)
        )

    until(back, "the proxy being back")
    assert resolve(pod)["variant"] == "on", "the last flags stay meanwhile"
    namespace.feature_flag("flags", flags("off"))
    sees(pod, "off")


def test_the_proxy_goes_with_the_operators_deployment_and_comes_back_with_it(
    namespace: Namespace, proxy: list[str], cluster: Cluster
) -> None:
    pod = injected(namespace).ready()
    path = cluster.path("apps/v1", "Deployment", SYSTEM, OPERATOR_DEPLOYMENT)
    manifest = deployment(OPERATOR_DEPLOYMENT, replicas=0)
    cluster.delete(path)
    until(lambda: not any(map(cluster.exists, proxy)), "the end of the proxy")
    assert resolve(pod)["variant"] == "on"
    cluster.apply({**manifest, "metadata": {**manifest["metadata"], "namespace": SYSTEM}})
    until(lambda: all(map(cluster.exists, proxy)), "the proxy being back")
    namespace.feature_flag("flags", flags("off"))
    sees(pod, "off")


def test_a_restart_rolls_nothing_and_what_changed_meanwhile_is_rolled_once(
    namespace: Namespace, plane: OperatedPlane
) -> None:
    namespace.feature_flag("flags", flags())
    entry = {"source": "flags", "provider": "file"}
    for name in ("stays", "changes"):
        namespace.apply(source(name, entry, rolloutOnChange=True))
        namespace.apply(deployment(f"web-{name}", name))
    pods = {name: App(namespace, f"web-{name}").ready()["metadata"]["uid"] for name in ("stays", "changes")}
    cluster = namespace.cluster

    def settled(name: str) -> bool:
        live = cluster.get(namespace.path(OPENFEATURE, "FeatureFlagSource", name))
        status = live.get("status") or {}
        return status.get("observedGeneration") == live["metadata"]["generation"] and bool(status.get("digest"))

    until(lambda: settled("stays") and settled("changes"), "the digests of both sources")
    plane.stop_operator()
    namespace.apply(source("changes", entry, rolloutOnChange=True, debugLogging=True))
    plane.start_operator()
    app = App(namespace, "web-changes")
    until(lambda: app.ready()["metadata"]["uid"] != pods["changes"], "new pods")
    until(lambda: settled("stays") and settled("changes"), "both sources being settled")
    generations = {
        name: cluster.get(namespace.path("apps/v1", "Deployment", f"web-{name}"))["metadata"]["generation"]
        for name in pods
    }
    assert generations == {"stays": 1, "changes": 2}
