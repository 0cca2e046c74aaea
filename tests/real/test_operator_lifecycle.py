"""The operator and the proxy come and go: restarts, deletions by hand, and an installation that is taken away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2, evaluation_pb2_grpc

from tests.real import programs
from tests.real.agents import flags
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.conftest import loudly
from tests.real.operated import SYSTEM, OperatedPlane, operator_deployment
from tests.real.processes import until
from tests.real.rest import RestError
from tests.real.workloads import App, agent_of, deployment, resolve, sees, source, sources_of
from wigwag.operator.names import (
    INLINE_FLAGS,
    OPERATOR_DEPLOYMENT,
    PROXY,
    PROXY_BUDGET,
    PROXY_SERVICE,
    REMARKS,
    SOCKET_VOLUME,
)

PORT = 9015
PROXY_OBJECTS = (
    ("apps/v1", "Deployment", PROXY),
    ("v1", "Service", PROXY_SERVICE),
    ("policy/v1", "PodDisruptionBudget", PROXY_BUDGET),
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedPlane]:
    """It is stopped and taken apart, so it is one of our own. Its API server cannot stream lists."""
    with loudly("KUBERNETES"):
        programs.kubernetes()
    server = ["--feature-gates=WatchList=false"]
    with OperatedPlane(tmp_path_factory.mktemp("own"), server, FLAGD_PROXY_PORT=str(PORT)) as operated:
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


def settled(namespace: Namespace, name: str) -> bool:
    """Tell whether all workloads run with a source as it is now."""
    live = namespace.cluster.get(namespace.path(OPENFEATURE, "FeatureFlagSource", name))
    status = live.get("status") or {}
    return status.get("observedGeneration") == live["metadata"]["generation"] and bool(status.get("digest"))


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
    cluster.delete(path)
    until(lambda: not any(map(cluster.exists, proxy)), "the end of the proxy")
    assert resolve(pod)["variant"] == "on"
    cluster.apply(operator_deployment())
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
    until(lambda: settled(namespace, "stays") and settled(namespace, "changes"), "the digests of both sources")
    plane.stop_operator()
    namespace.apply(source("changes", entry, rolloutOnChange=True, debugLogging=True))
    plane.start_operator()
    App(namespace, "web-changes").ready(without=[pods["changes"]])
    until(lambda: settled(namespace, "stays") and settled(namespace, "changes"), "both sources being settled")
    revisions = {  # and not generations, which count annotations: refused pods are retried by one
        name: namespace.cluster.get(namespace.path("apps/v1", "Deployment", f"web-{name}"))["metadata"]["annotations"]
        for name in pods
    }
    counted = {name: each["deployment.kubernetes.io/revision"] for name, each in revisions.items()}
    assert counted == {"stays": "1", "changes": "2"}


def test_while_nobody_answers_flags_of_workloads_wait_and_a_restart_changes_nothing(
    namespace: Namespace, plane: OperatedPlane
) -> None:
    def carrying(variant: str) -> dict[str, Any]:
        made = deployment("web")
        return {**made, "metadata": {"name": "web", "annotations": {INLINE_FLAGS: json.dumps(flags(variant))}}}

    cluster, path = namespace.cluster, namespace.path("apps/v1", "Deployment", "web")
    flag = namespace.path(OPENFEATURE, "FeatureFlag", "web-deployment")
    namespace.apply(carrying("on"))
    pod = App(namespace, "web").ready()
    digest = until(lambda: cluster.get(flag).get("status", {}).get("digest"), "a status of the flags")
    until(lambda: f"config={digest}" in cluster.get(path)["metadata"]["annotations"].get(REMARKS, ""), "remarks")

    plane.stop_operator()
    before = cluster.get(flag)["metadata"]["resourceVersion"], cluster.get(path)["spec"]["template"]
    with pytest.raises(RestError, match=r"failed calling webhook .*workloads\.openfeature\.dev"):
        namespace.apply(carrying("off"))
    namespace.apply(deployment("other"))
    App(namespace, "other").ready()
    cluster.patch(path, {"metadata": {"labels": {"team": "a"}}})
    cluster.patch(f"{path}/scale", {"spec": {"replicas": 1}})
    assert resolve(pod)["variant"] == "on"

    plane.start_operator()
    for name in ("direct-set", "remarks"):
        line = f'wigwag_controller_reconciles_total{{controller="{name}"'.encode()
        until(lambda line=line: line in plane.operator.fetch("metrics", "/metrics")[1], f"a look at {name}")  # type: ignore[misc]
    after = cluster.get(flag)["metadata"]["resourceVersion"], cluster.get(path)["spec"]["template"]
    assert after == before
    namespace.apply(carrying("off"))
    sees(pod, "off")


@pytest.mark.timeout(200)
def test_who_has_the_flags_is_known_after_a_restart_too(namespace: Namespace, plane: OperatedPlane) -> None:
    namespace.feature_flag("flags", flags("on"))
    namespace.apply(source("source", {"source": "flags", "provider": "kubernetes"}))
    namespace.apply(deployment("web", "source"))
    path = namespace.path(OPENFEATURE, "FeatureFlag", "flags")

    def propagated() -> bool:
        flag = namespace.cluster.get(path)
        agents = flag.get("status", {}).get("agents") or {}
        return (agents.get("summary"), agents.get("observedGeneration")) == ("1/1", flag["metadata"]["generation"])

    until(propagated, "1/1", 90.0)
    plane.stop_operator()
    assert propagated()
    plane.start_operator()
    namespace.feature_flag("flags", flags("off"))
    until(propagated, "1/1 after a restart and a change", 90.0)


def test_an_api_server_that_is_restarted_is_found_again_by_everybody(
    namespace: Namespace, plane: OperatedPlane
) -> None:
    app = injected(namespace)
    pod = app.ready()
    plane.plane.apiserver.restart()
    assert resolve(pod)["variant"] == "on"
    namespace.feature_flag("flags", flags("off"))
    sees(pod, "off")
    namespace.apply(source("file", {"source": "flags", "provider": "file"}))
    namespace.apply(deployment("later", "file"))
    assert resolve(App(namespace, "later").ready())["variant"] == "off"
    (same,) = app.pods()
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert not any(each["restartCount"] for each in same["status"]["initContainerStatuses"])


def test_clients_of_a_pod_can_use_the_socket_that_it_shares(namespace: Namespace, plane: OperatedPlane) -> None:
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", {"source": "flags", "provider": "file"}, socketPath="/run/flagd/flagd.sock"))
    namespace.apply(deployment("web", "source"))
    pod = App(namespace, "web").ready()
    for container in (*pod["spec"]["containers"], agent_of(pod)):
        assert {"name": SOCKET_VOLUME, "mountPath": "/run/flagd"} in container["volumeMounts"]
    socket = plane.kubelet.volume(pod, SOCKET_VOLUME) / "flagd.sock"
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        asked = evaluation_pb2.ResolveBooleanRequest(flag_key="x")
        assert evaluation_pb2_grpc.ServiceStub(channel).ResolveBoolean(asked).variant == "on"
