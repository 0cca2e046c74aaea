"""FeatureFlags: ConfigMaps where pods mount them, and the status."""

from __future__ import annotations

import asyncio

from tests.operator.controllers.world import Object, World, refusal
from tests.pipeline.fakes import run
from wigwag.kube.control.apply import MOST_PRUNED
from wigwag.kube.kinds import CONFIG_MAP, DEPLOYMENT, FEATURE_FLAG
from wigwag.operator.configmaps import LABELS
from wigwag.operator.controllers.flags import LARGE
from wigwag.operator.names import ALLOW_FROM, ObjectName, config_map_name
from wigwag.operator.names import FEATURE_FLAG as HELD_FLAG

FILE = {"source": "shop", "provider": "file"}
READ = "get FeatureFlag team-a/shop"
APPLY = "apply ConfigMap team-a/shop"
KEY = "team-a_shop.flagd.json"


def world_with_a_mount() -> World:
    world = World()
    world.flag()
    world.source(FILE)
    world.workload()
    return world


def content(world: World) -> str:
    text: str = world.get(CONFIG_MAP, "shop")["data"][KEY]
    return text


def config_map(world: World, **more: Object) -> None:
    about = {"name": "shop", "namespace": "team-a", **more}
    world.server.put(CONFIG_MAP, {"metadata": about, "data": {KEY: "{}"}})


def test_flags_are_read_when_they_change_and_not_when_all_is_current() -> None:
    async def main() -> None:
        world = world_with_a_mount()
        async with world.running():
            assert world.condition(FEATURE_FLAG, "shop", "Programmed") == ("True", "Mounted")
            await world.since()
            world.workload("another")
            world.server.put(FEATURE_FLAG, {**world.get(FEATURE_FLAG, "shop")})
            assert await world.since("get", "apply", "status FeatureFlag ") == []
            world.flag(default="off")
            assert await world.since(READ, "apply ConfigMap") == [APPLY, READ]
            assert '"defaultVariant":"off"' in content(world)
        async with world.running():  # another leader
            assert await world.since("get", "apply") == []

    run(main)


def test_config_maps_that_somebody_forges_for_a_flag_do_not_hold_up_its_changes() -> None:
    async def main() -> None:
        world = world_with_a_mount()
        async with world.running():
            await world.since()
            for number in range(3 * MOST_PRUNED):
                about = {"labels": LABELS, "annotations": {HELD_FLAG: "team-a/shop"}}
                world.put(CONFIG_MAP, f"forged-{number}", namespace="team-b", **about)
            world.flag(default="off")
            await world.settle()
            asked = [each for each in world.server.asked if each.startswith(("apply", "delete"))]
            assert asked.index(APPLY) < MOST_PRUNED, "before the others are deleted"
            assert world.names(CONFIG_MAP) == ["team-a/shop"]
            assert '"defaultVariant":"off"' in content(world)

    run(main)


def test_a_large_flag_is_checked_beside_the_loop() -> None:
    async def main() -> None:
        world = world_with_a_mount()
        async with world.running():
            spec = {"flagSpec": {"flags": {}, "metadata": {"note": "x" * LARGE}}}
            world.put(FEATURE_FLAG, "shop", spec)
            while world.get(FEATURE_FLAG, "shop")["status"].get("observedGeneration") != 2:  # noqa: ASYNC110 - a thread
                await asyncio.sleep(0.001)

    run(main)


def test_a_config_map_that_is_edited_or_deleted_comes_back() -> None:
    async def main() -> None:
        world = world_with_a_mount()
        async with world.running():
            await world.since()
            live = world.get(CONFIG_MAP, "shop")
            world.server.put(CONFIG_MAP, {**live, "data": {KEY: "{}"}})
            assert APPLY in await world.since()
            assert '"defaultVariant":"on"' in content(world)
            world.server.remove(CONFIG_MAP, ("team-a", "shop"))
            assert APPLY in await world.since()
            assert await world.since() == []

    run(main)


def test_one_that_nobody_mounts_any_more_is_pruned_also_after_a_restart() -> None:
    async def main() -> None:
        world = world_with_a_mount()
        async with world.running():
            world.server.remove(DEPLOYMENT, ("team-a", "web"))
            assert "delete ConfigMap team-a/shop" in await world.since()
            assert world.condition(FEATURE_FLAG, "shop", "Programmed") == ("True", "NotMounted")
            world.workload()
            await world.settle()
        world.server.objects[DEPLOYMENT].clear()
        async with world.running():
            assert world.names(CONFIG_MAP) == []

    run(main)


def test_one_of_the_original_is_adopted() -> None:
    async def main() -> None:
        world = world_with_a_mount()
        config_map(world, annotations={HELD_FLAG: "shop"})
        async with world.running():
            asked = await world.since("patch ConfigMap", "apply ConfigMap")
            assert asked == [APPLY, "patch ConfigMap team-a/shop"]
            assert world.get(CONFIG_MAP, "shop")["metadata"]["labels"] == LABELS
            assert '"defaultVariant":"on"' in content(world)

    run(main)


def test_one_of_the_users_stays_until_it_goes() -> None:
    async def main() -> None:
        world = world_with_a_mount()
        config_map(world)
        async with world.running():
            assert world.condition(FEATURE_FLAG, "shop", "Programmed") == ("False", "ConfigMapNotOurs")
            assert content(world) == "{}"
            assert [each[3] for each in world.recorder.events if each[0] == "FeatureFlag"] == ["ConfigMapNotOurs"]
            world.server.remove(CONFIG_MAP, ("team-a", "shop"))
            await world.settle()
            assert world.condition(FEATURE_FLAG, "shop", "Programmed") == ("True", "Mounted")

    run(main)


def test_one_of_the_users_that_no_watch_has_shown_yet_stays_too() -> None:
    async def main() -> None:
        world = world_with_a_mount()
        async with world.running():
            world.server.held = {CONFIG_MAP}
            world.server.remove(CONFIG_MAP, ("team-a", "shop"))
            config_map(world)
            world.flag(default="off")
            await world.settle()
            assert content(world) == "{}"
            assert world.condition(FEATURE_FLAG, "shop", "Programmed") == ("False", "ConfigMapNotOurs")

    run(main)


def test_pods_of_another_namespace_have_a_config_map_there_while_it_is_granted_or_the_flag_is_gone() -> None:
    async def main() -> None:
        world = World()
        name = config_map_name(ObjectName("team-b", "shop"), "team-a")
        world.flag(namespace="team-b", annotations={ALLOW_FROM: "team-a"})
        world.source({"source": "team-b/shop", "provider": "file"})
        world.workload()
        async with world.running():
            assert world.names(CONFIG_MAP) == [f"team-a/{name}"]
            world.server.remove(FEATURE_FLAG, ("team-b", "shop"))
            await world.settle()
            assert world.names(CONFIG_MAP) == [f"team-a/{name}"], "pods that run keep the last flags"
            world.flag(namespace="team-b")
            await world.settle()
            assert world.names(CONFIG_MAP) == []

    run(main)


def test_a_flag_that_goes_while_it_is_read_is_no_error_and_one_in_deletion_is_left_alone() -> None:
    async def main() -> None:
        world = world_with_a_mount()
        async with world.running():
            await world.since()
            world.server.refusals.append((READ, refusal(404)))
            world.flag(default="off")
            assert await world.since(READ, APPLY) == [READ]
            world.flag(deletionTimestamp="2027-01-01T00:00:00Z")
            world.server.remove(CONFIG_MAP, ("team-a", "shop"))
            assert await world.since(READ, APPLY) == []

    run(main)
