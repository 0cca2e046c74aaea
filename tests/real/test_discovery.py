"""Kinds by their names on a real API server: built in, installed later, deleted, in another version, forbidden."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.real.cluster import Cluster, Namespace
from tests.real.processes import until
from tests.real.watching import Counting, Watching, kubeconfig
from wigwag.kube.client import JSON, STREAM, ApiRequest
from wigwag.kube.discovery import Discovery
from wigwag.kube.errors import UnknownKindError
from wigwag.kube.hub import Hub
from wigwag.kube.kinds import CONFIG_MAP, DEPLOYMENT, FEATURE_FLAG, NODE, SERVICE, Kind
from wigwag.kube.named import NamedWatch, watch_named
from wigwag.kube.watch.decode import plain
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.wire.client.client import StreamedResponse
from wigwag.wire.h1.client import ResponseLimits

INGRESS = Kind("networking.k8s.io", "v1", "ingresses")
NAMES = {
    SERVICE: ["services", "service", "Service", "svc", "services.v1.", "svc.v1.", "SERVICES"],
    CONFIG_MAP: ["configmaps", "configmap", "ConfigMap", "cm"],
    NODE: ["nodes", "node", "no", "Node.v1."],
    DEPLOYMENT: ["deploy", "deployments.apps", "Deployment", "deployment.v1.apps", "deployments.v1."],
    INGRESS: ["ing", "ingress", "ingresses.networking.k8s.io", "ingresses.v1.networking.k8s.io", "Ingress.networking"],
    FEATURE_FLAG: ["featureflags", "FeatureFlag.v1beta1.core.openfeature.dev", "featureflag.core.openfeature.dev"],
    Kind("", "v1", "events"): ["events", "ev"],
    Kind("events.k8s.io", "v1", "events"): ["events.events.k8s.io", "ev.v1.events.k8s.io"],
}


class WithoutAggregated(Counting):
    """A client that takes no aggregated discovery, so that the server answers as an old one does."""

    @asynccontextmanager
    async def stream(self, request: ApiRequest, limits: ResponseLimits = STREAM) -> AsyncIterator[StreamedResponse]:
        async with super().stream(replace(request, accept=JSON), limits) as incoming:
            yield incoming


class NamedWatching(Watching):
    """Several named watches on one hub."""

    def __init__(self, path: Path, *specs: NamedWatch) -> None:
        super().__init__(path, KubeWatch(CONFIG_MAP))
        self._specs = specs
        self.kinds: dict[str, str] = {}
        """What kind each name means at present, as the apiVersion of its objects."""
        self.objects: dict[str, set[str]] = {}
        self.reasons: dict[str, str] = {}

    async def _follow(self) -> None:
        hub = Hub(lambda: self.kube)
        async with asyncio.TaskGroup() as group:
            group.create_task(hub.run())
            for spec in self._specs:
                group.create_task(self._read(hub, spec))

    async def _read(self, hub: Hub, spec: NamedWatch) -> None:
        async with closing(watch_named(hub, spec, lambda _: plain)) as items:
            async for item in items:
                if isinstance(item, Unavailable):
                    self.reasons[spec.kind] = item.reason
                elif not isinstance(item, Unchanged):
                    kind, objects = item
                    self.kinds[spec.kind], self.objects[spec.kind] = kind.api, {name for _, name in objects}

    def discoveries(self) -> int:
        return sum(request.path in ("/api", "/apis") for request, _ in self.kube.asked)


def definition(group: str, *versions: str) -> dict[str, Any]:
    """The definition of gadgets, in these versions; the last one is stored."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    made = [{"name": each, "served": True, "storage": each == versions[-1], "schema": schema} for each in versions]
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "shortNames": [f"gd{group[:8]}"]}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": made}
    about = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**about, "metadata": {"name": f"gadgets.{group}"}, "spec": spec}


@pytest.fixture
def group(cluster: Cluster) -> Iterator[str]:
    """A group of its own, whose definition goes in the end."""
    made = f"g{uuid4().hex[:10]}.example.com"
    yield made
    path = cluster.path_of(definition(made, "v1"))
    if cluster.exists(path):
        cluster.delete(path)


def install(namespace: Namespace, group: str, version: str, name: str) -> None:
    """Define gadgets in one version, and make one."""
    namespace.cluster.apply(definition(group, version))
    manifest = {"apiVersion": f"{group}/{version}", "kind": "Gadget", "metadata": {"name": name}}
    path = f"/apis/{group}/{version}/namespaces/{namespace.name}/gadgets"
    until(lambda: namespace.cluster.rest.ask("POST", path, manifest).status in (201, 409), f"{name} being accepted")


@pytest.mark.parametrize("client", [Counting, WithoutAggregated])
def test_built_in_kinds_have_every_name_that_kubectl_accepts(
    cluster: Cluster, tmp_path: Path, client: type[Counting]
) -> None:
    async def main() -> None:
        kube = client(kubeconfig(cluster.access, tmp_path))
        discovery = Discovery(kube)
        for kind, names in NAMES.items():
            for name in names:
                found = await discovery.resolve(name)
                assert found == kind, name
                assert found.kind == kind.kind or not kind.kind
        paths = [request.path for request, _ in kube.asked]
        assert (paths == ["/api", "/apis"]) == (client is Counting)
        assert len(paths) == len(set(paths)), "no path twice"
        for name, message in {
            "servicez": "did you mean 'service'?",
            "tokenreviews": "cannot be listed and watched",
            "pods/status": "has no kind",
            "deployments.v7.apps": "of deployments.apps it has v1",
        }.items():
            with pytest.raises(UnknownKindError) as caught:
                await discovery.resolve(name)
            assert message in str(caught.value)
        discovery.due = -math.inf
        await discovery.refresh()
        assert [status for _, status in kube.asked[-2:]] == ([304, 304] if client is Counting else [200, 200])
        assert await discovery.resolve("svc") == SERVICE
        kube.close()

    asyncio.run(main())


@pytest.mark.timeout(240)
def test_a_kind_that_comes_goes_and_comes_in_another_version_is_watched_without_a_restart(
    namespace: Namespace, group: str, tmp_path: Path
) -> None:
    path = kubeconfig(namespace.cluster.access, tmp_path)
    name = f"gadgets.{group}"
    with NamedWatching(path, NamedWatch(name, namespace.name), NamedWatch("cm", namespace.name)) as seen:
        seen.until(lambda: name in seen.reasons and "cm" in seen.objects, "the missing kind, and the other one")
        assert f"the API server has no kind {name!r}" in seen.reasons[name]
        install(namespace, group, "v1", "one")
        seen.until(lambda: seen.objects.get(name) == {"one"}, "the object of the new kind")
        assert seen.kinds[name] == f"{group}/v1"
        before = seen.discoveries()
        for number in range(20):
            namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"m{number}"}})
        seen.until(lambda: f"m{19}" in seen.objects["cm"], "the other objects")
        assert seen.discoveries() == before, "no request per change"
        seen.reasons.clear()
        namespace.cluster.delete(namespace.cluster.path_of(definition(group, "v1")))
        seen.until(lambda: "has no kind" in seen.reasons.get(name, ""), "its end")
        install(namespace, group, "v2", "two")
        seen.until(lambda: seen.objects[name] == {"two"}, "the object of the other version")
        assert seen.kinds[name] == f"{group}/v2"
        assert "cm" not in seen.reasons
        assert seen.discoveries() < 60, "no storm"


@pytest.mark.timeout(240)
def test_a_version_that_is_no_longer_served_is_left_for_the_one_that_is(
    namespace: Namespace, group: str, tmp_path: Path
) -> None:
    path = kubeconfig(namespace.cluster.access, tmp_path)
    install(namespace, group, "v1", "one")
    with NamedWatching(path, NamedWatch(f"Gadget.{group}", namespace.name)) as seen:
        seen.until(lambda: seen.kinds == {f"Gadget.{group}": f"{group}/v1"}, "the first version")
        both = definition(group, "v1", "v2")
        both["spec"]["versions"][0]["served"] = False
        namespace.cluster.apply(both)
        seen.until(lambda: seen.kinds == {f"Gadget.{group}": f"{group}/v2"}, "the second version")
        assert seen.objects[f"Gadget.{group}"] == {"one"}


def test_a_forbidden_kind_is_told_with_the_rule_that_allows_it_and_others_go_on(
    namespace: Namespace, tmp_path: Path
) -> None:
    path = kubeconfig(namespace.account("app"), tmp_path)
    namespace.allow("app", "configmaps", ["get", "list", "watch"])
    specs = [NamedWatch("svc", namespace.name), NamedWatch("cm", namespace.name), NamedWatch("nodes", namespace.name)]
    with NamedWatching(path, *specs) as seen:
        seen.until(lambda: {"svc", "nodes"} <= {*seen.reasons} and "cm" in seen.objects, "two refusals and an answer")
        assert 'a Role that has the rule {apiGroups: [""], resources: [services], verbs' in seen.reasons["svc"]
        assert "may not watch nodes; allow it with a ClusterRole" in seen.reasons["nodes"]
        namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}})
        seen.until(lambda: "more" in seen.objects["cm"], "the change")
        assert seen.discoveries() == 2
