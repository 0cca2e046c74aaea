"""Flags that workloads carry: the FeatureFlags that are generated from them, and the remarks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.operator.controllers.world import Object, World, refusal
from tests.pipeline.fakes import run
from wigwag.kube.errors import ApiError, ApiStatus, Cause, Details
from wigwag.kube.kinds import DAEMON_SET, DEPLOYMENT, FEATURE_FLAG, JOB, POD, ROLE, STATEFUL_SET, Kind
from wigwag.operator.directset.generated import LABEL, LABELS
from wigwag.operator.names import (
    ALLOW_FROM,
    CARRIER,
    DIRECT_SET,
    INLINE_FLAGS,
    PROXY,
    REMARKS,
    STANDING_ORDERS,
)

FLAG = "web-deployment"
WRITES = "create", "replace", "delete", "apply", "patch"


def text(default: str = "on") -> str:
    member = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default}
    return json.dumps({"flags": {"new-ui": member}})


def carrier(
    world: World,
    default: str = "on",
    kind: Kind = DEPLOYMENT,
    own: dict[str, str] | None = None,
    marks: dict[str, str] | None = None,
) -> Object:
    """Put a workload as the webhook has left it."""
    given = {DIRECT_SET: f"web-{kind.kind.lower()}"} if own is None else {}
    annotations = {INLINE_FLAGS: text(default)} if own is None else own
    template = {"metadata": {"annotations": {**given, **(marks or {})}}, "spec": {}}
    kept = world.server.objects[kind].get(("team-a", "web"), {}).get("metadata", {}).get("annotations") or {}
    said = {REMARKS: kept[REMARKS]} if REMARKS in kept else {}
    return world.put(kind, "web", {"template": template}, annotations={**said, **annotations})


def default_of(world: World, name: str = FLAG) -> str:
    found: str = world.get(FEATURE_FLAG, name)["spec"]["flagSpec"]["flags"]["new-ui"]["defaultVariant"]
    return found


def remarks(world: World, kind: Kind = DEPLOYMENT) -> str:
    found: str = world.get(kind, "web")["metadata"]["annotations"].get(REMARKS, "")
    return found


def events(world: World) -> list[str]:
    return [message for *_, reason, message in world.recorder.events if reason == "FlagsNotKept"]


@pytest.mark.parametrize("kind", [DEPLOYMENT, STATEFUL_SET, DAEMON_SET])
def test_a_workload_has_a_flag_of_its_own_and_the_right_to_read_it(kind: Kind) -> None:
    async def main() -> None:
        world, name = World(), f"web-{kind.kind.lower()}"
        made = carrier(world, kind=kind)
        async with world.running():
            metadata = world.get(FEATURE_FLAG, name)["metadata"]
            [owner] = metadata["ownerReferences"]
            assert (owner["kind"], owner["uid"]) == (kind.kind, made["metadata"]["uid"])
            assert metadata["labels"] == LABELS
            assert metadata["annotations"] == {CARRIER: f"{kind.kind}/web"}
            [role] = world.server.objects[ROLE].values()
            assert role["rules"][0]["resourceNames"] == [name]
            assert remarks(world, kind).startswith("scope=namespace, mode=direct-set, refresh=live, config=")
            world.server.remove(kind, ("team-a", "web"))
            await world.settle()
            assert world.names(FEATURE_FLAG) == []

    run(main)


def test_a_change_is_one_write_and_a_restart_is_none() -> None:
    async def main() -> None:
        world = World()
        carrier(world)
        async with world.running():
            first = remarks(world)
            digest = world.get(FEATURE_FLAG, FLAG)["status"]["digest"]
            assert first.endswith(f"config={digest}")
            await world.since()
            carrier(world, "off")
            assert await world.since(*WRITES) == ["patch Deployment team-a/web", f"replace FeatureFlag team-a/{FLAG}"]
            assert default_of(world) == "off"
            assert remarks(world) != first
            assert await world.since() == []
        async with world.running():
            assert await world.since(*WRITES) == []

    run(main)


def test_what_somebody_edits_comes_back_and_what_is_added_to_its_metadata_stays() -> None:
    async def main() -> None:
        world = World()
        carrier(world)
        async with world.running():
            live = world.get(FEATURE_FLAG, FLAG)
            edited = json.loads(text("off")) | {"metadata": {"by": "hand"}}
            live["metadata"]["annotations"][ALLOW_FROM] = "team-b"
            world.server.put(FEATURE_FLAG, {**live, "spec": {"flagSpec": edited}})
            await world.settle()
            assert world.get(FEATURE_FLAG, FLAG)["spec"] == {"flagSpec": json.loads(text())}
            assert world.get(FEATURE_FLAG, FLAG)["metadata"]["annotations"][ALLOW_FROM] == "team-b"
            world.server.remove(FEATURE_FLAG, ("team-a", FLAG))
            await world.settle()
            assert default_of(world) == "on"

    run(main)


def test_without_the_annotation_flag_and_remarks_go_also_after_a_restart() -> None:
    async def main() -> None:
        world = World()
        carrier(world)
        async with world.running():
            carrier(world, own={})
            await world.settle()
            assert world.names(FEATURE_FLAG) == []
            assert not remarks(world)
            carrier(world)
            await world.settle()
            assert world.names(FEATURE_FLAG) == [f"team-a/{FLAG}"]
        carrier(world, own={})
        async with world.running():
            assert world.names(FEATURE_FLAG) == []
            assert not remarks(world)

    run(main)


def test_a_flag_of_somebody_else_is_never_overwritten_and_makes_way_when_it_goes() -> None:
    async def main() -> None:
        world = World()
        world.flag(FLAG, "off")
        carrier(world)
        async with world.running():
            assert default_of(world) == "off"
            [message] = events(world)
            assert "exists and is not the operator's; rename or delete it" in message
            assert "problem=metadata.annotations[openfeature.dev/flags]: the FeatureFlag team-a" in remarks(world)
            await world.clock.advance(600)
            await world.settle()
            assert len(events(world)) == 1
            world.server.remove(FEATURE_FLAG, ("team-a", FLAG))
            await world.settle()
            assert default_of(world) == "on"
            assert "problem" not in remarks(world)

    run(main)


def test_flags_that_cannot_be_used_leave_those_before_them() -> None:
    """As when no webhook was there to refuse them."""

    async def main() -> None:
        world = World()
        carrier(world)
        async with world.running():
            carrier(world, own={INLINE_FLAGS: "{"}, marks={DIRECT_SET: FLAG})
            await world.settle()
            assert default_of(world) == "on"
            [message] = events(world)
            assert "not valid JSON" in message
            assert message.endswith("the flags before it stay in force")
            world.server.refusals += [("replace FeatureFlag", refusal(403, "Forbidden"))] * 9
            carrier(world, "off")
            await world.settle()
            assert default_of(world) == "on"
            assert len(events(world)) == 2
            world.server.refusals.clear()
            await world.clock.advance(61)
            await world.settle()
            assert default_of(world) == "off"

    run(main)


def test_a_namespace_that_goes_gets_no_new_flag_and_nobody_tries_again() -> None:
    async def main() -> None:
        world = World()
        cause = Cause("NamespaceTerminating", "namespace team-a is being terminated")
        status = ApiStatus(403, "Forbidden", "it is being terminated", Details(causes=(cause,)))
        world.server.refusals += [("create FeatureFlag", ApiError("create", status))] * 9
        carrier(world)
        async with world.running():
            assert world.names(FEATURE_FLAG) == []
            assert events(world) == []
            await world.since()
            await world.clock.advance(600)
            assert await world.since("create") == []

    run(main)


def test_a_workload_that_no_webhook_has_seen_is_told_so() -> None:
    async def main() -> None:
        world = World()
        carrier(world, own={INLINE_FLAGS: text()})
        async with world.running():
            assert default_of(world) == "on"
            assert "problem=its pods get no agent, because no webhook has reviewed it" in remarks(world)

    run(main)


def test_what_a_user_remarks_is_replaced_and_other_workloads_are_left_alone() -> None:
    async def main() -> None:
        world = World()
        carrier(world)
        world.put(DEPLOYMENT, "other", {"template": {"metadata": {}, "spec": {}}}, annotations={REMARKS: "mine"})
        async with world.running():
            before = remarks(world)
            live = world.get(DEPLOYMENT, "web")
            live["metadata"]["annotations"][REMARKS] = "mine"
            world.server.put(DEPLOYMENT, live)
            await world.settle()
            assert remarks(world) == before
            assert world.get(DEPLOYMENT, "other")["metadata"]["annotations"] == {REMARKS: "mine"}

    run(main)


@pytest.mark.parametrize("kind", [POD, JOB])
def test_bare_pods_and_jobs_are_kept_by_their_label(kind: Kind) -> None:
    async def main() -> None:
        world, name = World(), f"web-{kind.kind.lower()}"

        def put(default: str, **more: Any) -> None:
            world.put(kind, "web", {}, labels=LABEL, annotations={INLINE_FLAGS: text(default)}, **more)

        put("on")
        async with world.running():
            assert default_of(world, name) == "on"
            put("off")
            await world.settle()
            assert default_of(world, name) == "off"
            world.put(kind, "web", {}, labels=LABEL)
            await world.settle()
            assert world.names(FEATURE_FLAG) == []
            put("on", deletionTimestamp="2026-01-01T00:00:00Z")
            await world.settle()
            assert world.names(FEATURE_FLAG) == []

    run(main)


def test_remarks_follow_standing_orders_and_say_why_pods_are_refused() -> None:
    async def main() -> None:
        world = World()
        world.flag("base", namespace="team-b")
        carrier(world, own={}, marks={STANDING_ORDERS: "team-b/base"})
        async with world.running():
            assert "problem=FeatureFlag team-b/base is in another namespace" in remarks(world)
            world.flag("base", namespace="team-b", annotations={ALLOW_FROM: "team-a"})
            await world.settle()
            first = remarks(world)
            assert first.startswith("scope=cross-namespace, mode=standing-order, refresh=live, config=")
            assert "problem" not in first
            assert len(world.names(ROLE)) == 1
            world.flag("base", "off", namespace="team-b", annotations={ALLOW_FROM: "team-a"})
            await world.settle()
            assert remarks(world) != first
            world.flag("base", "off", namespace="team-b")
            await world.settle()
            assert "problem=" in remarks(world)
            assert world.names(ROLE) == []

    run(main)


def test_a_refused_deployment_is_retried_when_its_flag_is_there() -> None:
    async def main() -> None:
        world = World()
        made = carrier(world, own={}, marks={STANDING_ORDERS: "team-a/base"})
        failure = {"type": "ReplicaFailure", "status": "True", "lastTransitionTime": "then"}
        failure["message"] = 'admission webhook "mutate.openfeature.dev" denied the request'
        world.server.put(DEPLOYMENT, {**made, "status": {"conditions": [failure]}})
        async with world.running():
            retried = "openfeature.dev/pods-retried"
            assert retried not in world.get(DEPLOYMENT, "web")["metadata"]["annotations"]
            world.flag("base")
            await world.settle()
            assert world.get(DEPLOYMENT, "web")["metadata"]["annotations"][retried] == "then"

    run(main)


def test_the_proxy_is_deployed_for_workloads_that_need_it() -> None:
    async def main() -> None:
        world = World({"SIDECAR_SYNC_PROVIDER": "flagd-proxy"})
        system = "open-feature-operator-system"
        world.put(DEPLOYMENT, "open-feature-operator-controller-manager", {}, namespace=system)
        async with world.running():
            assert (system, PROXY) not in world.server.objects[DEPLOYMENT]
            carrier(world)
            await world.settle()
            assert (system, PROXY) in world.server.objects[DEPLOYMENT]

    run(main)
