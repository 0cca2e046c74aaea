"""Objects that the operator plans, on a real API server: it accepts them, and applying them again is no write.

| group | test |
|---|---|
| U60, U75, U83, U86, U89 | `test_the_server_accepts_what_is_planned_and_applying_it_again_is_no_write` |
| U58, U62, U76 | `test_objects_that_have_drifted_are_repaired` |
| U59, U78 | `test_objects_of_others_are_refused_and_stay` |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.operator.known import NOW, Laid, settings, source_object
from tests.operator.manifests import manifest
from tests.real.cluster import MERGE, OPENFEATURE, Cluster, Namespace
from tests.real.gateway import install_routes
from tests.real.watching import Counting
from wigwag.kube.client import STRICT
from wigwag.kube.control.apply import Applier
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import INGRESS, Kind
from wigwag.operator.injection.known import ProxyState
from wigwag.operator.names import MANAGED_BY, OPERATOR, OPERATOR_DEPLOYMENT
from wigwag.operator.reconcile.flagd import FlagdPlan, flagd_status, plan_flagd
from wigwag.operator.reconcile.objects import DesiredObject
from wigwag.operator.reconcile.proxy import plan_proxy
from wigwag.operator.reconcile.takeover import ORIGINAL, takeover_patch
from wigwag.operator.resources.flagd import Flagd
from wigwag.operator.resources.kubernetes import ObjectMeta

NAME = "flagd-sample"
SOURCES: list[dict[str, Any]] = [
    {"source": "shop", "provider": "kubernetes"},
    {"source": "shop.flags", "provider": "file"},
    {"source": "shop", "provider": "flagd-proxy"},
    {
        "source": "https://flags.test",
        "provider": "http",
        "httpSyncBearerTokenSecret": {"name": "tokens", "key": "http"},
        "interval": 5,
    },
]
FLAGDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "an ingress": {
        "ingress": {
            "enabled": True,
            "hosts": ["flagd.test", ""],
            "annotations": {"nginx.ingress.kubernetes.io/use-regex": "true"},
            "ingressClassName": "nginx",
            "pathType": "ImplementationSpecific",
            "flagdPath": "/flagd(/|$)(.*)",
            "tls": [{"hosts": ["flagd.test"], "secretName": "tls"}, {"secretName": "other"}],
        }
    },
    "an ingress for every host": {"ingress": {"enabled": True, "hosts": []}},
    "routes": {
        "gatewayApiRoutes": {
            "enabled": True,
            "parentRefs": [{"name": "eg", "namespace": "edge", "sectionName": "web"}],
            "hosts": ["flagd.test"],
            "grpc": {"enabled": True, "hosts": ["grpc.test"]},
        }
    },
    "everything of the pod": {
        "replicas": 2,
        "serviceType": "LoadBalancer",
        "serviceAccountName": "default",
        "labels": {"team": "a"},
        "annotations": {"note": "b"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": NAME}},
            }
        ],
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}
                ]
            }
        },
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "0.10", "memory": "1024Ki"}, "limits": {"cpu": 1, "memory": "0.5Gi"}},
        "securityContext": {"runAsNonRoot": True},
        "podSecurityContext": {"fsGroup": 1000},
    },
}


@pytest.fixture
def kube_path(cluster: Cluster, tmp_path: Path) -> Path:
    install_routes(cluster)
    return cluster.access.kubeconfig(tmp_path / "admin")


def applier(kube: Counting) -> Applier:
    return Applier(kube, "wigwag-test", {MANAGED_BY: OPERATOR}, "openfeature.dev/applied", query=STRICT)


def run(path: Path, main: Callable[[Counting], Awaitable[None]]) -> None:
    async def limited() -> None:
        kube = Counting(path)
        try:
            async with asyncio.timeout(120.0):
                await main(kube)
        finally:
            kube.close()

    asyncio.run(limited())


async def outcomes(ours: Applier, objects: tuple[DesiredObject, ...]) -> set[str]:
    return {(await ours.apply(*each)).outcome for each in objects}


def writes(kube: Counting) -> int:
    return sum(request.method != "GET" for request, _ in kube.asked)


def stored_flagd(namespace: Namespace, **spec: Any) -> Flagd:
    """A Flagd of the server: it is the owner, so that its objects are not collected as garbage."""
    stored = namespace.apply(manifest("Flagd", {"featureFlagSource": "flags", **spec}, NAME))
    return msgspec.convert(stored, Flagd)


def planned(flagd: Flagd, namespace: Namespace, environment: dict[str, str] | None = None, **source: Any) -> FlagdPlan:
    known = Laid(
        sources={f"{namespace.name}/flags": source_object(*SOURCES, **source)},
        flags={f"{namespace.name}/shop": {}, f"{namespace.name}/shop.flags": {}},
        state=ProxyState(1, 0),
    )
    options = settings(environment, labels={"cost": "1"}, annotations={"note": "all"}, image_pull_secrets=("pull",))
    plan = plan_flagd(flagd, known, options)
    assert plan.apply, plan
    return plan


def planned_proxy(namespace: Namespace, **environment: str) -> tuple[DesiredObject, ...]:
    """The proxy, owned by a Deployment that stands for the operator's."""
    labels = {"app": "operator"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "operator:1"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    about = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": OPERATOR_DEPLOYMENT}}
    operator = msgspec.convert(namespace.apply({**about, "spec": spec})["metadata"], ObjectMeta)
    source = source_object({"source": "shop", "provider": "flagd-proxy"}).spec
    return plan_proxy([source], operator, settings({"POD_NAMESPACE": namespace.name, **environment})).apply


@pytest.mark.parametrize("name", [*FLAGDS, "the proxy"])
def test_the_server_accepts_what_is_planned_and_applying_it_again_is_no_write(
    name: str, namespace: Namespace, kube_path: Path
) -> None:
    if name == "the proxy":
        objects = planned_proxy(namespace, FLAGD_PROXY_REPLICA_COUNT="2", FLAGD_PROXY_PORT="9015")
    else:
        objects = planned(stored_flagd(namespace, **FLAGDS[name]), namespace).apply

    async def main(kube: Counting) -> None:
        ours = applier(kube)
        assert await outcomes(ours, objects) == {"created"}
        assert writes(kube) == len(objects)
        assert await outcomes(ours, objects) == {"unchanged"}
        assert await outcomes(applier(kube), objects) == {"unchanged"}  # after a restart, which remembers nothing
        assert writes(kube) == len(objects)

    run(kube_path, main)


def test_objects_that_have_drifted_are_repaired(namespace: Namespace, kube_path: Path) -> None:
    flagd = stored_flagd(namespace, **FLAGDS["an ingress"])
    objects = (*planned(flagd, namespace).apply, *planned_proxy(namespace))
    drift: dict[str, Callable[[Any], Any]] = {
        "Deployment": lambda _: {"replicas": 7},
        "Service": lambda spec: {"ports": [{**each, "targetPort": 7} for each in spec["ports"]]},
        "Ingress": lambda _: {"ingressClassName": "another"},
        "PodDisruptionBudget": lambda _: {"minAvailable": 7},
    }

    async def main(kube: Counting) -> None:
        ours = applier(kube)
        await outcomes(ours, objects)
        for each in objects:
            path = each.kind.path(namespace.name, each.name.name)
            namespace.cluster.patch(path, {"spec": drift[each.kind.kind](each.body["spec"])})
        assert await outcomes(ours, objects) == {"updated"}
        assert await outcomes(ours, objects) == {"unchanged"}
        changed = planned(flagd, namespace, debugLogging=True).apply
        assert [(await ours.apply(*each)).outcome for each in changed] == ["updated", "unchanged", "unchanged"]

    run(kube_path, main)


async def retried(ours: Applier, objects: tuple[DesiredObject, ...]) -> set[str]:
    """Apply objects as a controller does: a conflict, here with the status of the Deployment, is tried again."""
    while True:
        try:
            return await outcomes(ours, objects)
        except ApiError as error:
            if not error.conflict:
                raise


def test_a_service_and_ports_that_somebody_has_rewired_are_repaired(namespace: Namespace, kube_path: Path) -> None:
    """A port with another number under the same name is the hard case: beside ours, the server refuses it."""
    objects = planned(stored_flagd(namespace), namespace).apply
    deployment, service = (each.kind.path(namespace.name, NAME) for each in objects)

    def renumbered(ports: list[Any], member: str) -> list[Any]:
        return [{**each, member: each[member] + 1000} for each in ports]

    async def main(kube: Counting) -> None:
        ours = applier(kube)
        await outcomes(ours, objects)
        before = [namespace.cluster.get(path)["spec"] for path in (deployment, service)]
        namespace.cluster.patch(service, {"spec": {"selector": {"tier": "theirs"}}})
        assert [(await ours.apply(*each)).outcome for each in objects] == ["unchanged", "updated"]
        ports = renumbered(before[1]["ports"], "port")
        namespace.cluster.patch(service, {"spec": {"ports": ports}, "metadata": {"labels": {"note": "theirs"}}})
        [container] = before[0]["template"]["spec"]["containers"]
        container = {**container, "ports": renumbered(container["ports"], "containerPort")}
        namespace.cluster.patch(deployment, {"spec": {"template": {"spec": {"containers": [container]}}}})
        assert await retried(ours, objects) == {"updated"}
        assert [namespace.cluster.get(path)["spec"] for path in (deployment, service)] == before
        assert namespace.cluster.get(service)["metadata"]["labels"]["note"] == "theirs"
        assert await outcomes(applier(kube), objects) == {"unchanged"}

    run(kube_path, main)


def test_what_is_no_longer_planned_goes_away(namespace: Namespace, kube_path: Path) -> None:
    """The service account is the hard case: the server keeps a second copy of its name, and restores it from there."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}
    namespace.apply(account)
    rich = {**FLAGDS["everything of the pod"], "serviceAccountName": "reader"}
    before = planned(stored_flagd(namespace, **rich), namespace).apply
    plain = {"apiVersion": OPENFEATURE, "kind": "Flagd", "metadata": {"name": NAME}}
    stored = namespace.apply({**plain, "spec": {"featureFlagSource": "flags"}})
    environment = {"FLAGD_PORT": "9013", "FLAGD_MANAGEMENT_PORT": "9014"}
    after = planned(msgspec.convert(stored, Flagd), namespace, environment).apply

    async def main(kube: Counting) -> None:
        ours = applier(kube)
        await outcomes(ours, before)
        assert await outcomes(ours, after) == {"updated"}
        deployment, service = [await kube.get(each.kind, NAME, namespace.name) for each in after]
        pod = deployment["spec"]["template"]["spec"]
        assert (pod["serviceAccountName"], pod["securityContext"]) == ("default", {})
        gone = {"nodeSelector", "tolerations", "topologySpreadConstraints", "affinity"}
        assert not gone & pod.keys()
        assert "team" not in deployment["metadata"]["labels"]
        assert [each["containerPort"] for each in pod["containers"][0]["ports"]] == [9014, 9013, 8016, 8015]
        assert service["spec"]["type"] == "ClusterIP"
        assert {each["port"] for each in service["spec"]["ports"]} == {9013, 8016, 8015, 9014}

    run(kube_path, main)


def test_objects_of_others_are_refused_and_stay(namespace: Namespace, kube_path: Path) -> None:
    objects = planned(stored_flagd(namespace), namespace).apply
    spec = {"ports": [{"port": 80}]}
    theirs = namespace.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": spec})

    async def main(kube: Counting) -> None:
        results = [await applier(kube).apply(*each) for each in objects]
        assert [each.outcome for each in results] == ["created", "refused"]
        assert "Service flagd-sample exists and is not ours" in results[1].reason
        assert namespace.cluster.get(namespace.path("v1", "Service", NAME)) == theirs

    run(kube_path, main)


async def take_over(kube: Counting, kind: Kind, namespace: Namespace, manager: str) -> None:
    """Patch until nothing is left to take over; the controller of Deployments writes the status meanwhile."""
    patches = 0
    while patch := takeover_patch(await kube.get(kind, NAME, namespace.name), manager):
        patches += 1
        try:
            await kube.patch(kind, NAME, patch, namespace.name)
        except ApiError as error:
            assert error.conflict
    assert patches


def test_what_the_original_left_is_taken_over(namespace: Namespace, kube_path: Path) -> None:
    """It sets the same owner, but not as the controller; and ports that change must not be there twice."""
    flagd = stored_flagd(namespace)
    before = planned(flagd, namespace).apply
    (owner,) = before[0].body["metadata"]["ownerReferences"]
    reference = {name: value for name, value in owner.items() if name != "controller"}
    for each in before:
        about = {"apiVersion": each.kind.api, "kind": each.kind.kind}
        metadata = {**each.body["metadata"], "ownerReferences": [reference]}
        body = {**about, **each.body, "metadata": metadata}
        path = each.kind.path(namespace.name)
        namespace.cluster.rest.call("POST", path, body, query={"fieldManager": ORIGINAL})
    after = planned(flagd, namespace, {"FLAGD_PORT": "9013"}).apply

    async def main(kube: Counting) -> None:
        ours = applier(kube)
        for each in after:
            await take_over(kube, each.kind, namespace, ours.manager)
        assert await outcomes(ours, after) == {"updated"}
        deployment, service = [await kube.get(each.kind, NAME, namespace.name) for each in after]
        assert deployment["metadata"]["ownerReferences"] == service["metadata"]["ownerReferences"] == [owner]
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        assert [each["containerPort"] for each in container["ports"]] == [8014, 9013, 8016, 8015]
        assert {each["port"] for each in service["spec"]["ports"]} == {9013, 8016, 8015, 8014}

    run(kube_path, main)


def test_a_disabled_ingress_is_removed(namespace: Namespace, kube_path: Path) -> None:
    first = planned(stored_flagd(namespace, **FLAGDS["an ingress"]), namespace)
    second = planned(stored_flagd(namespace, ingress={"enabled": False, "hosts": []}), namespace)
    assert INGRESS in second.remove

    async def main(kube: Counting) -> None:
        ours = applier(kube)
        await outcomes(ours, first.apply)
        live = await kube.get(INGRESS, NAME, namespace.name)
        assert await ours.prune(INGRESS, (), namespace.name, [live]) == [(namespace.name, NAME)]
        assert await outcomes(ours, second.apply) == {"unchanged"}
        assert not namespace.cluster.exists(namespace.path("networking.k8s.io/v1", "Ingress", NAME))

    run(kube_path, main)


def test_the_server_stores_the_whole_status(namespace: Namespace) -> None:
    flagd = stored_flagd(namespace)
    live = {"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "replicas": 2, "readyReplicas": 1}}
    status = flagd_status(flagd, planned(flagd, namespace), live, (), NOW)
    path = f"{namespace.path(OPENFEATURE, 'Flagd', NAME)}/status"
    stored = namespace.cluster.rest.call("PATCH", path, {"status": msgspec.to_builtins(status)}, kind=MERGE).json
    assert msgspec.convert(stored["status"], type(status)) == status
    again = replace(flagd, status=msgspec.convert(stored, Flagd).status)
    assert flagd_status(again, planned(flagd, namespace), live, (), NOW + 60) == status
