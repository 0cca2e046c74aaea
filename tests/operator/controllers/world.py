"""A cluster in memory, and the controllers in it: an API server that stores, watches, refuses and holds back on demand.

The server knows apply (maps are merged; lists and atomic maps replaced), merge and JSON patches, uids, versions and
generations. What real servers do besides is in tests/real. Time stands still until the test moves it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from tests.operator.known import NOW, SERVER_DEFAULTS, settings
from tests.pipeline.fakes import FakeClock
from wigwag.kube.client import ApiRequest, Kube, KubeDeps, ObjectList
from wigwag.kube.control.apply import ATOMIC
from wigwag.kube.control.controller import ControllerMetrics
from wigwag.kube.control.events import EventRecorder
from wigwag.kube.errors import ApiError, ApiStatus
from wigwag.kube.hub import Hub
from wigwag.kube.kinds import DEPLOYMENT, FEATURE_FLAG, FEATURE_FLAG_SOURCE, Kind, Query
from wigwag.kube.watch.decode import Decode, Key
from wigwag.kube.watch.listwatch import WatchForbidden
from wigwag.kube.watch.objects import Objects
from wigwag.kube.watch.reflector import Item
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.controllers.context import ControlContext
from wigwag.operator.controllers.run import run_controllers
from wigwag.operator.names import ENABLED, ObjectName
from wigwag.operator.names import FEATURE_FLAG_SOURCE as NAMES_SOURCE
from wigwag.operator.observed import Observed, assemble, watch, watches
from wigwag.operator.propagation.ask import Asked, NoAnswer
from wigwag.operator.scope import NamespaceScope
from wigwag.pipeline.broadcast import Broadcast

Object = dict[str, Any]
QUIET = 60
"""Turns of the loop after which nobody has anything to do."""


def refusal(code: int, reason: str = "") -> ApiError:
    return ApiError("request", ApiStatus(code, reason))


class FakeServer:
    """Implements what controllers use of `Kube`."""

    def __init__(self, clock: FakeClock) -> None:
        self.deps = KubeDeps(clock=clock, wall=lambda: NOW, random=lambda: 1.0, environment={})
        self.objects: dict[Kind, dict[Key, Object]] = defaultdict(dict)
        self.namespaces = {"team-a", "team-b", "open-feature-operator-system"}
        self.asked: list[str] = []
        """Requests, such as `apply Role team-a/x`; a status has its own word."""
        self.watched: list[KubeWatch] = []
        self.forbidden: set[tuple[Kind, str]] = set()
        """Kinds and namespaces that the operator may not watch."""
        self.terminating: set[str] = set()
        """Namespaces in which nothing can be made any more."""
        self.refusals: list[tuple[str, ApiError]] = []
        """Each for the next request that begins so."""
        self.held: set[Kind] = set()
        """Kinds of which watches show nothing new,"""
        self.hidden: set[Kind] = set()
        """and nothing at all."""
        self.version = 0
        self._changes = Broadcast[int](0)

    def put(self, kind: Kind, body: Object) -> Object:
        """Store an object, as somebody who is not the operator does."""
        metadata = body["metadata"]
        key = metadata.get("namespace", ""), metadata["name"]
        before = self.objects[kind].get(key)
        old: Object = before["metadata"] if before else {"uid": f"uid-{self.version}", "generation": 0}
        is_edited = before is None or before.get("spec") != body.get("spec")
        self.version += 1
        more = {"uid": old["uid"], "generation": old["generation"] + is_edited, "resourceVersion": str(self.version)}
        stored = {"status": (before or {}).get("status", {}), **body, "metadata": {**metadata, **more}}
        self.objects[kind][key] = deepcopy(stored)
        self._changes.publish(self.version)
        return stored

    def remove(self, kind: Kind, key: Key) -> None:
        """Delete an object, and what it owned."""
        del self.objects[kind][key]
        self._collect()

    def _collect(self) -> None:
        """Delete the objects all of whose owners are gone, as garbage collection does sooner or later."""
        uids = {each["metadata"]["uid"] for objects in self.objects.values() for each in objects.values()}
        for objects in self.objects.values():
            for key, each in list(objects.items()):
                owners = [owner["uid"] for owner in each["metadata"].get("ownerReferences") or ()]
                if owners and uids.isdisjoint(owners):
                    del objects[key]
        self.version += 1
        self._changes.publish(self.version)

    def release(self) -> None:
        """Let all watches show what there is."""
        self.held.clear()
        self.hidden.clear()
        self._collect()

    async def watch(self, _: Kube, spec: KubeWatch, decode: Decode[Any]) -> AsyncIterator[Item[Any]]:
        wanted = dict(pair.split("=") for pair in spec.labels.split(",") if pair)
        self.watched.append(spec)
        if (spec.kind, spec.namespace) in self.forbidden:
            yield WatchForbidden(f"we may not list {spec.kind} in the namespace {spec.namespace}")
        elif spec.kind not in self.hidden:
            yield self._shown(spec, decode, wanted)
        async for _version in self._changes:
            if spec.kind not in self.held | self.hidden and (spec.kind, spec.namespace) not in self.forbidden:
                yield self._shown(spec, decode, wanted)

    def _shown(self, spec: KubeWatch, decode: Decode[Any], wanted: dict[str, str]) -> Objects[Any]:
        return Objects(
            {
                key: decode(msgspec.Raw(msgspec.json.encode(each)))
                for key, each in self.objects[spec.kind].items()
                if spec.namespace in ("", key[0]) and spec.name in ("", key[1])
                if wanted.items() <= (each["metadata"].get("labels") or {}).items()
            }
        )

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        self._note("get", kind, namespace, name)
        if (namespace, name) not in self.objects[kind]:
            raise refusal(404, "NotFound")
        return deepcopy(self.objects[kind][namespace, name])

    async def find(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        return None if (namespace, name) not in self.objects[kind] else await self.get(kind, name, namespace)

    async def list(self, kind: Kind, namespace: str = "", labels: str = "") -> ObjectList:
        raise AssertionError("controllers have watches")

    async def fetch(self, request: ApiRequest) -> Any:
        for kind, objects in self.objects.items():
            for namespace, name in list(objects):
                if kind.path(namespace, name) == request.path:
                    return SimpleNamespace(body=msgspec.json.encode(await self.get(kind, name, namespace)))
        raise refusal(404, "NotFound")

    async def apply(
        self,
        kind: Kind,
        body: Mapping[str, Any],
        manager: str,
        *,
        force: bool = False,
        query: Query = (),
    ) -> Object:
        key = body["metadata"].get("namespace", ""), body["metadata"]["name"]
        self._note("apply", kind, *key)
        if kind.namespaced and key[0] not in self.namespaces:
            raise refusal(404, "NotFound")
        if key[0] in self.terminating and key not in self.objects[kind]:
            raise refusal(403, "Forbidden")
        return self.put(kind, _merged(self.objects[kind].get(key, {}), body))

    async def replace(self, kind: Kind, body: Mapping[str, Any]) -> Object:
        key = body["metadata"].get("namespace", ""), body["metadata"]["name"]
        self._note("replace", kind, *key)
        if body["metadata"]["resourceVersion"] != self.objects[kind][key]["metadata"]["resourceVersion"]:
            raise refusal(409, "Conflict")
        return self.put(kind, dict(body))

    async def patch(
        self,
        kind: Kind,
        name: str,
        change: Any,
        namespace: str = "",
        how: str = "merge",
        subresource: str = "",
        query: Query = (),
    ) -> Object:
        self._note(subresource or "patch", kind, namespace, name)
        if (namespace, name) not in self.objects[kind]:
            raise refusal(404, "NotFound")
        live = deepcopy(self.objects[kind][namespace, name])
        return self.put(kind, _merged(live, change) if how == "merge" else _json_patched(live, change))

    async def create(
        self, kind: Kind, body: Mapping[str, Any], namespace: str = "", name: str = "", subresource: str = ""
    ) -> Object:
        """Create an object, or evict a pod."""
        if not subresource:
            key = body["metadata"].get("namespace", ""), body["metadata"]["name"]
            self._note("create", kind, *key)
            if key in self.objects[kind]:
                raise refusal(409, "AlreadyExists")
            return self.put(kind, dict(body))
        self._note(subresource, kind, namespace, name)
        assert body["deleteOptions"]["preconditions"]["uid"] == self.objects[kind][namespace, name]["metadata"]["uid"]
        del self.objects[kind][namespace, name]
        self.version += 1
        self._changes.publish(self.version)
        return {}

    async def delete(self, kind: Kind, name: str, namespace: str = "", options: Any = None) -> None:
        self._note("delete", kind, namespace, name)
        assert options["preconditions"]["uid"] == self.objects[kind][namespace, name]["metadata"]["uid"]
        self.remove(kind, (namespace, name))

    def close(self) -> None:
        pass

    def _note(self, word: str, kind: Kind, namespace: str, name: str) -> None:
        request = f"{word} {kind.kind} {namespace}/{name}"
        self.asked.append(request)
        for each in self.refusals:
            if request.startswith(each[0]):
                self.refusals.remove(each)
                raise each[1]


def _merged(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, Mapping):
        return other
    merged = {name: value if name in ATOMIC else _merged(one.get(name), value) for name, value in other.items()}
    return {name: value for name, value in {**one, **merged}.items() if value is not None}


def _json_patched(target: Object, patch: Any) -> Object:
    """Apply a JSON patch, all of it or nothing."""
    for each in patch:
        *steps, last = (step.replace("~1", "/") for step in each["path"].split("/")[1:])
        place: Any = target
        for step in steps:
            place = place[int(step) if isinstance(place, list) else step]
        if each["op"] == "test" and place.get(last) != each["value"]:
            raise refusal(422, "Invalid")
        if each["op"] in ("add", "replace"):
            if last == "-":
                place.append(each["value"])
            else:
                place[int(last) if isinstance(place, list) else last] = each["value"]
    return target


@dataclass
class FakeRecorder:
    """Remembers Events."""

    events: list[tuple[str, ...]] = field(default_factory=list)

    def record(self, kind: Kind, about: Object, type: str, reason: str, message: str) -> None:
        metadata = about["metadata"]
        self.events.append((kind.kind, f"{metadata['namespace']}/{metadata['name']}", type, reason, message))


class FakeAgents:
    """Answers for the agents of pods, by their address; for others there is no connection."""

    def __init__(self) -> None:
        self.answers: dict[str, Asked] = {}
        self.asked: list[str] = []

    async def ask(self, address: str, port: int) -> Asked:
        self.asked.append(f"{address}:{port}")
        return self.answers.get(address, NoAnswer("there is no connection"))


class World:
    """A cluster and the operator's controllers."""

    def __init__(self, environment: dict[str, str] | None = None, **options: Any) -> None:
        self.clock, self.agents = FakeClock(), FakeAgents()
        self.server, self.recorder = FakeServer(self.clock), FakeRecorder()
        self.settings = settings(environment, **options)
        self.scope = NamespaceScope(self.settings, self.server.watch)
        self.hub = Hub(lambda: cast("Kube", self.server), self.scope.open)
        self.known = Broadcast[Observed]()
        recorder = cast("EventRecorder", self.recorder)
        now = lambda: NOW + self.clock.now()  # noqa: E731
        self.context = ControlContext(
            self.hub,
            self.known,
            self.settings,
            recorder,
            ControllerMetrics(),
            now,
            self.agents,
            scope=self.scope,
        )

    @asynccontextmanager
    async def running(self, controllers: Callable[[ControlContext], Any] = run_controllers) -> AsyncIterator[None]:
        """Run controllers beside the test, after everything that is in the cluster has been looked at."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in (self.hub.run(), self._know(), controllers(self.context))]
            await self.settle()
            yield
            for task in tasks:
                task.cancel()

    async def _know(self) -> None:
        values: dict[KubeWatch, Objects[Any]] = {}
        specs = watches(self.settings)

        async def follow(spec: KubeWatch) -> None:
            async for item in watch(self.hub, self.settings, spec):
                assert isinstance(item, Objects)
                values[spec] = item
                if len(values) == len(specs):
                    self.known.publish(assemble(dict(values)))

        async with asyncio.TaskGroup() as group:
            for spec in specs:
                group.create_task(follow(spec))

    async def settle(self) -> None:
        """Let everybody run until nobody has anything to do."""
        quiet = 0
        while quiet < QUIET:
            before = self.server.version, len(self.server.asked)
            await asyncio.sleep(0)
            quiet = quiet + 1 if before == (self.server.version, len(self.server.asked)) else 0

    async def since(self, *words: str) -> list[str]:
        """Return what was asked since the last time, as far as it begins with one of the words; sorted."""
        await self.settle()
        asked, self.server.asked = self.server.asked, []
        return sorted(each for each in asked if each.startswith(words or ""))

    def put(self, kind: Kind, name: str, spec: Any = None, *, namespace: str = "team-a", **metadata: Any) -> Object:
        made: Object = {"metadata": {"name": name, "namespace": namespace, **metadata}}
        return self.server.put(kind, made if spec is None else {**made, "spec": spec})

    def flag(self, name: str = "shop", default: str = "on", **more: Any) -> Object:
        member = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default}
        return self.put(FEATURE_FLAG, name, {"flagSpec": {"flags": {"new-ui": member}}}, **more)

    def source(self, *sources: Object, name: str = "flags", namespace: str = "team-a", **spec: Any) -> Object:
        entries = list(sources) or [{"source": "shop", "provider": "kubernetes"}]
        return self.put(FEATURE_FLAG_SOURCE, name, {**SERVER_DEFAULTS, "sources": entries, **spec}, namespace=namespace)

    def workload(self, name: str = "web", sources: str = "flags", kind: Kind = DEPLOYMENT, **more: Any) -> Object:
        annotations = {ENABLED: "true", NAMES_SOURCE: sources}
        return self.put(kind, name, {"template": {"metadata": {"annotations": annotations}, "spec": {}}}, **more)

    def get(self, kind: Kind, name: str, namespace: str = "team-a") -> Object:
        return self.server.objects[kind][namespace, name]

    def names(self, kind: Kind) -> list[str]:
        return sorted(str(ObjectName(*key)) for key in self.server.objects[kind])

    def condition(self, kind: Kind, name: str, type: str, namespace: str = "team-a") -> tuple[str, str]:
        found = {each["type"]: each for each in self.get(kind, name, namespace)["status"].get("conditions", [])}
        return (found[type]["status"], found[type]["reason"]) if type in found else ("", "")
