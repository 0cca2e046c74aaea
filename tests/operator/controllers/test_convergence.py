"""The law of level-triggered controllers: whatever happened, the end is as if everything had been so from the start."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.operator.controllers.world import Object, World, refusal
from tests.operator.known import SERVER_DEFAULTS
from tests.pipeline.fakes import run
from wigwag.kube.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    FEATURE_FLAG,
    FEATURE_FLAG_SOURCE,
    FLAGD,
    INGRESS,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    STATEFUL_SET,
    Kind,
)
from wigwag.kube.watch.decode import Key
from wigwag.operator.names import (
    ALLOW_FROM,
    DIRECT_SET,
    ENABLED,
    INLINE_FLAGS,
    OPERATOR_DEPLOYMENT,
    REMARKS,
    STANDING_ORDERS,
    generated_name,
)
from wigwag.operator.names import FEATURE_FLAG as HELD_FLAG
from wigwag.operator.names import FEATURE_FLAG_SOURCE as NAMES_SOURCE

HOME = "open-feature-operator-system"
MADE = (CONFIG_MAP, FEATURE_FLAG, ROLE, ROLE_BINDING, DEPLOYMENT, SERVICE, INGRESS)
OWN = (FEATURE_FLAG, FEATURE_FLAG_SOURCE, FLAGD)
NAMESPACES = st.sampled_from(["team-a", "team-b"])


def manifest(name: str, spec: Any, namespace: str, **metadata: Any) -> Object:
    return {"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": spec}


def flag(namespace: str, name: str, default: str, grant: str) -> tuple[Kind, Object]:
    member = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default}
    spec = {"flagSpec": {"flags": {"new-ui": member}}}
    return FEATURE_FLAG, manifest(name, spec, namespace, annotations={ALLOW_FROM: grant})


def source(namespace: str, name: str, entries: list[tuple[str, str]]) -> tuple[Kind, Object]:
    sources = [{"source": text, "provider": provider} for text, provider in entries]
    spec = {**SERVER_DEFAULTS, "sources": sources}
    return FEATURE_FLAG_SOURCE, manifest(name, spec, namespace, annotations={ALLOW_FROM: "*"})


def workload(kind: Kind, namespace: str, name: str, sources: str) -> tuple[Kind, Object]:
    annotations = {ENABLED: "true", NAMES_SOURCE: sources}
    return kind, manifest(name, {"template": {"metadata": {"annotations": annotations}, "spec": {}}}, namespace)


def carrier(kind: Kind, namespace: str, name: str, default: str, orders: str) -> tuple[Kind, Object]:
    """Return a workload with flags of its own, and others that it follows, as the webhook leaves it."""
    text = json.dumps(flag(namespace, "", default, "")[1]["spec"]["flagSpec"])
    marks = {DIRECT_SET: generated_name(kind.kind, name), **({STANDING_ORDERS: orders} if orders else {})}
    template = {"metadata": {"annotations": marks}, "spec": {}}
    return kind, manifest(name, {"template": template}, namespace, annotations={INLINE_FLAGS: text})


def flagd(namespace: str, replicas: int, ingress: bool) -> tuple[Kind, Object]:
    spec = {"replicas": replicas, "serviceType": "ClusterIP", "featureFlagSource": "remote"}
    return FLAGD, manifest("agent", {**spec, "ingress": {"enabled": ingress, "hosts": []}}, namespace)


NAMES = st.sampled_from(["shop", "other", "team-a/shop", "team-b/shop"])
ENTRIES = st.lists(st.tuples(NAMES, st.sampled_from(["kubernetes", "file", "flagd-proxy"])), min_size=1, max_size=3)
GRANTS = st.sampled_from(["", "*"])
FLAG_NAMES = st.sampled_from(["shop", "other", "web-deployment"])
OBJECTS = st.one_of(
    st.builds(flag, NAMESPACES, FLAG_NAMES, st.sampled_from(["on", "off"]), GRANTS),
    st.builds(source, NAMESPACES, st.sampled_from(["flags", "more"]), ENTRIES),
    st.builds(workload, st.sampled_from([DEPLOYMENT, STATEFUL_SET]), NAMESPACES, st.sampled_from(["web", "api"]),
              st.sampled_from(["flags", "more", "flags,more", "team-a/flags"])),
    st.builds(carrier, st.sampled_from([DEPLOYMENT, STATEFUL_SET]), NAMESPACES, st.sampled_from(["web", "api"]),
              st.sampled_from(["on", "off"]), st.sampled_from(["", "team-a/shop"])),
    st.builds(flagd, NAMESPACES, st.integers(1, 3), st.booleans()),
)  # fmt: skip
ALWAYS = [
    (DEPLOYMENT, manifest(OPERATOR_DEPLOYMENT, {}, HOME)),
    source("team-a", "proxied", [("http://flags.test", "http"), ("shop", "flagd-proxy")]),
    *(source(namespace, "remote", [("http://flags.test", "http")]) for namespace in ("team-a", "team-b")),
]
"""What would leave traces if it had gone: a proxy stays, and so do the objects of a Flagd without its source."""


@dataclass
class Story:
    """A cluster in which things happen, and what its users have in it."""

    world: World = field(default_factory=World)
    theirs: dict[tuple[Kind, Key], Object] = field(default_factory=dict)

    def put(self, kind: Kind, body: Object) -> None:
        self.theirs[kind, (body["metadata"]["namespace"], body["metadata"]["name"])] = body
        self.world.server.put(kind, deepcopy(body))

    def remove(self, index: int) -> None:
        removable = list(self.theirs)[len(ALWAYS) :]
        if removable:
            kind, key = removable[index % len(removable)]
            del self.theirs[kind, key]
            self.world.server.remove(kind, key)

    def damage(self, index: int) -> None:
        """Delete something that the operator has made."""
        server = self.world.server
        made = [(kind, key) for kind in MADE for key in server.objects[kind] if (kind, key) not in self.theirs]
        if made:
            server.remove(*made[index % len(made)])

    async def happen(self, event: tuple[str, Any]) -> None:
        what, value = event
        server = self.world.server
        match what:
            case "put":
                self.put(*value)
            case "remove":
                self.remove(value)
            case "damage":
                self.damage(value)
            case "hold":
                server.held.add(value)
            case "release":
                server.release()
            case "refuse":
                server.refusals.append(value)
            case "wait":
                await self.world.clock.advance(value)
            case _:
                await self.world.settle()

    async def end(self) -> None:
        self.world.server.refusals.clear()
        self.world.server.release()
        await self.world.clock.advance(150.0)
        await self.world.settle()

    def state(self) -> Any:
        """Everything that the operator has made or said, without what differs by chance."""
        server = self.world.server
        made = {
            f"{kind.kind} {key}": without_identity(body)
            for kind in MADE
            for key, body in server.objects[kind].items()
            if (kind, key) not in self.theirs and not is_orphan(server.objects[FEATURE_FLAG], key, body)
        }
        said = {
            f"{kind.kind} {key}": [
                (each["type"], each["status"], each["reason"], each.get("message")) for each in found
            ]
            for kind in OWN
            for key, body in server.objects[kind].items()
            for found in [body["status"].get("conditions", [])]
        }
        remarks = {
            f"{kind.kind} {key}": body["metadata"].get("annotations", {}).get(REMARKS)
            for kind in (DEPLOYMENT, STATEFUL_SET)
            for key, body in server.objects[kind].items()
        }
        return made, said, remarks


def without_identity(body: Object) -> Object:
    owners = [owner["name"] for owner in body["metadata"].get("ownerReferences") or ()]
    content = {name: body.get(name) for name in ("spec", "data", "rules", "subjects")}
    return {**content, "labels": body["metadata"].get("labels"), "owners": owners}


def is_orphan(flags: dict[Key, Object], key: Key, body: Object) -> bool:
    """Whether it is a ConfigMap of another namespace's flag that is gone: it stays while pods mount it."""
    held = (body["metadata"].get("annotations") or {}).get(HELD_FLAG, "")
    namespace, _, name = held.rpartition("/")
    return bool(held) and (namespace or key[0], name) not in flags


REFUSALS = st.tuples(
    st.sampled_from(
        ["apply Role", "apply ConfigMap", "apply Deployment", "status", "delete", "get", "create", "patch"]
    ),
    st.sampled_from([refusal(500), refusal(403), refusal(429)]),
)
EVENTS = st.one_of(
    st.tuples(st.just("put"), OBJECTS),
    st.tuples(st.just("put"), OBJECTS),
    st.tuples(st.sampled_from(["remove", "damage"]), st.integers(0, 20)),
    st.tuples(st.just("hold"), st.sampled_from([*MADE, *OWN, STATEFUL_SET])),
    st.tuples(st.sampled_from(["release", "settle"]), st.none()),
    st.tuples(st.just("refuse"), REFUSALS),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 5.0])),
)


@settings(max_examples=40, phases=[Phase.generate], derandomize=True)  # with seeds of your own, by hand
@given(st.lists(EVENTS, max_size=25))
def test_the_end_is_as_if_everything_had_been_so_from_the_start(events: list[tuple[str, Any]]) -> None:
    async def main() -> None:
        story, fresh = Story(), Story()
        for kind, body in ALWAYS:
            story.put(kind, body)
        async with story.world.running():
            for event in events:
                await story.happen(event)
            await story.end()
        for (kind, _), body in story.theirs.items():
            fresh.put(kind, body)
        async with fresh.world.running():
            await fresh.end()
        assert story.state() == fresh.state()
        writes = len(story.world.server.asked)
        async with story.world.running():  # another leader has nothing to do
            assert [each for each in story.world.server.asked[writes:] if not each.startswith("get")] == []

    run(main)
