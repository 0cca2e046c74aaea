"""Critical changes of FeatureFlags: reconciled first, pods refreshed at once, and no tenant first for ever."""

from __future__ import annotations

import json
from typing import Any

from tests.operator.controllers.world import World, refusal
from tests.pipeline.fakes import run
from wigwag.kube.kinds import CONFIG_MAP, FEATURE_FLAG, POD
from wigwag.operator.names import AGENT, FLAGS_CHANGED, ObjectName
from wigwag.sources.critical import PASSES, SECONDS
from wigwag.sources.kubernetes.names import CRITICAL

FILE = {"source": "shop", "provider": "file"}
TOUCH = "patch Pod team-a/web-1"
MARK = {CRITICAL: "true"}


def mounting(world: World, name: str = "web-1", flag: str = "shop") -> None:
    """Put a pod there whose agent reads the ConfigMap of a flag."""
    named = ObjectName("team-a", flag)
    sources = json.dumps([{"uri": f"{named.directory}/{named.file}", "provider": "file"}])
    world.put(POD, name, {"containers": [{"name": AGENT, "args": ["start", "--sources", sources]}]})


def world_with_a_pod(**annotations: str) -> World:
    world = World()
    world.flag(annotations=annotations)
    world.source(FILE)
    world.workload()
    mounting(world)
    return world


def touched(world: World, pod: str = "web-1") -> str:
    annotations: dict[str, str] = world.get(POD, pod)["metadata"].get("annotations") or {}
    return annotations.get(FLAGS_CHANGED, "")


def test_a_critical_change_is_written_first_and_then_the_pods_that_mount_it_are_touched() -> None:
    async def main() -> None:
        world = world_with_a_pod(**MARK)
        mounting(world, "other-1", "another")
        async with world.running():
            assert not touched(world), "the first flags are no change"
            assert '"critical":true' in world.get(CONFIG_MAP, "shop")["data"]["team-a_shop.flagd.json"]
            world.server.asked.clear()
            world.flag(default="off", annotations=MARK)
            await world.settle()
            writes = [each for each in world.server.asked if each.startswith(("apply", "patch", "status"))]
            assert writes == ["apply ConfigMap team-a/shop", TOUCH, "status FeatureFlag team-a/shop"]
            first = touched(world)
            assert first
            assert not touched(world, "other-1")
            world.flag(default="on", annotations=MARK)
            await world.settle()
            assert touched(world) not in ("", first)

    run(main)


def test_an_ordinary_change_touches_no_pod() -> None:
    async def main() -> None:
        world = world_with_a_pod()
        async with world.running():
            world.flag(default="off")
            assert TOUCH not in await world.since()
            assert '"defaultVariant":"off"' in str(world.get(CONFIG_MAP, "shop")["data"])

    run(main)


def test_a_critical_change_goes_before_a_thousand_others() -> None:
    async def main() -> None:
        world = world_with_a_pod(**MARK)
        for number in range(50):
            world.flag(f"flag-{number}")
        async with world.running():
            await world.since()
            for number in range(50):
                world.flag(f"flag-{number}", default="off")
            world.flag(default="off", annotations=MARK)
            await world.settle()
            reads = [each for each in world.server.asked if each.startswith("get FeatureFlag")]
            assert len(set(reads)) == 51
            assert "get FeatureFlag team-a/shop" in reads[:5], "behind what the workers had begun"

    run(main)


def test_a_tenant_that_marks_everything_is_ordinary_after_a_while_and_told_so() -> None:
    async def main() -> None:
        world = world_with_a_pod(**MARK)
        async with world.running():
            await world.since()
            for number in range(PASSES + 2):
                world.flag(default="off" if number % 2 else "on", annotations={**MARK, "n": str(number)})
                world.put(FEATURE_FLAG, "shop", {"flagSpec": {"flags": {"a": {"n": number}}}}, annotations=MARK)
                await world.settle()
            touches = [each for each in world.server.asked if each == TOUCH]
            assert len(touches) <= PASSES
            reasons = [each[3] for each in world.recorder.events]
            assert "TooManyCriticalChanges" in reasons
            world.clock._now += SECONDS
            world.server.asked.clear()
            world.flag(default="on", annotations=MARK)
            assert TOUCH in await world.since()

    run(main)


def test_pods_that_cannot_be_touched_cost_no_config_map() -> None:
    async def main() -> None:
        for code in (403, 404):
            world = world_with_a_pod(**MARK)
            async with world.running():
                world.server.refusals.append(("patch Pod", refusal(code)))
                world.flag(default="off", annotations=MARK)
                assert "status FeatureFlag team-a/shop" in await world.since()
                assert '"defaultVariant":"off"' in str(world.get(CONFIG_MAP, "shop")["data"])
                assert not touched(world)

    run(main)


def test_a_touch_that_fails_is_retried_first() -> None:
    async def main() -> None:
        world = world_with_a_pod(**MARK)
        async with world.running():
            world.server.refusals.append(("patch Pod", refusal(500)))
            world.flag(default="off", annotations=MARK)
            await world.settle()
            await world.clock.advance(5.0)
            await world.settle()
            assert world.server.asked.count(TOUCH) == 2
            assert touched(world)

    run(main)


def test_a_flag_in_the_document_is_as_critical_as_the_object() -> None:
    def document(state: str, critical: Any = True) -> Any:
        return {"flagSpec": {"flags": {"stop": {"state": state, "variants": {"on": True}, "metadata": critical}}}}

    async def main() -> None:
        world = world_with_a_pod()
        world.put(FEATURE_FLAG, "shop", document("ENABLED", {"critical": True}))
        async with world.running():
            world.put(FEATURE_FLAG, "shop", document("DISABLED", {"critical": True}))
            assert TOUCH in await world.since()

    run(main)
