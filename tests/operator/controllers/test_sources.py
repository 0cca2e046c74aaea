"""FeatureFlagSources: workloads are rolled, paced and once; the status."""

from __future__ import annotations

import pytest

from tests.operator.controllers.world import World, refusal
from tests.pipeline.fakes import run
from wigwag.kube.kinds import DAEMON_SET, DEPLOYMENT, FEATURE_FLAG_SOURCE, STATEFUL_SET
from wigwag.operator.names import RESTARTED_AT

HTTP = {"source": "http://flags.test", "provider": "http"}


def edited(world: World, port: int) -> None:
    world.source(HTTP, port=port, rolloutOnChange=True)


def rolled(world: World) -> list[str]:
    templates = {key[1]: each["spec"]["template"] for key, each in world.server.objects[DEPLOYMENT].items()}
    return [name for name, each in templates.items() if RESTARTED_AT in each["metadata"]["annotations"]]


def world_of(*names: str, rate: int = 100) -> World:
    world = World(rollout_rate=rate)
    edited(world, 1)
    for name in names:
        world.workload(name)
    return world


def test_all_kinds_of_workloads_are_rolled_before_the_status_says_so() -> None:
    async def main() -> None:
        world = world_of("web")
        for kind in (STATEFUL_SET, DAEMON_SET):
            world.workload(kind=kind)
        async with world.running():
            before = world.get(FEATURE_FLAG_SOURCE, "flags")["status"]["digest"]
            assert await world.since("patch") == [], "a source that is new rolls nothing"
            edited(world, 2)
            await world.clock.advance(1.0)
            rolls = [f"patch {kind} team-a/web" for kind in ("DaemonSet", "Deployment", "StatefulSet")]
            assert await world.since("patch") == rolls
            await world.clock.advance(1.0)
            status = world.get(FEATURE_FLAG_SOURCE, "flags")["status"]
            assert status["digest"] != before
            assert (status["observedGeneration"], status["workloads"]) == (2, 3)
            assert {event[:4] for event in world.recorder.events} >= {
                (kind, "team-a/web", "Normal", "FlagSourceChanged") for kind in ("DaemonSet", "Deployment")
            }
            world.server.asked.clear()
        async with world.running():  # another leader
            await world.clock.advance(5.0)
            assert await world.since("patch", "status") == []

    run(main)


@pytest.mark.parametrize("rate", [1, 2])
def test_rollouts_are_paced_although_each_patch_is_a_reason_to_look_again(rate: int) -> None:
    async def main() -> None:
        world = world_of("a", "b", "c", "d", rate=rate)
        async with world.running():
            edited(world, 2)
            await world.settle()
            assert len(rolled(world)) == 1
            await world.clock.advance(1.0 / rate - 0.01)
            assert len(rolled(world)) == 1
            await world.clock.advance(0.02)
            assert len(rolled(world)) == 2
            await world.clock.advance(3.0)
            assert rolled(world) == ["a", "b", "c", "d"]
            assert world.condition(FEATURE_FLAG_SOURCE, "flags", "Programmed") == ("True", "UpToDate")

    run(main)


def test_an_edit_during_a_rollout_counts_in_the_next_turn() -> None:
    async def main() -> None:
        world = world_of("a", "b", "c", rate=1)
        async with world.running():
            edited(world, 2)
            await world.settle()
            assert world.condition(FEATURE_FLAG_SOURCE, "flags", "Programmed") == ("False", "RollingOut")
            edited(world, 3)
            await world.clock.advance(6.0)
            assert [each[-1] for each in await world.since("patch")] == ["a", "a", "b", "c"]
            assert not [each for each in world.recorder.events if each[3] == "RollingOut"], "it passes by itself"

    run(main)


@pytest.mark.parametrize("code", [404, 422])
def test_a_workload_that_is_gone_or_was_rolled_is_no_error(code: int) -> None:
    async def main() -> None:
        world = world_of("web", "other")
        async with world.running():
            world.server.refusals.append(("patch Deployment team-a/web", refusal(code)))
            edited(world, 2)
            await world.settle()
            assert "web" not in rolled(world)
            await world.clock.advance(1.0)
            assert sorted(rolled(world)) == ["other", "web"], "the next plan is made from what there is"
            assert not _failing(world)

    run(main)


def test_another_error_is_retried_and_holds_up_no_other_workload() -> None:
    async def main() -> None:
        world = world_of("a", "b")
        async with world.running():
            world.server.refusals += [("patch Deployment team-a/a", refusal(500))] * 20
            edited(world, 2)
            await world.clock.advance(0.02)
            assert rolled(world) == ["b"]
            assert world.condition(FEATURE_FLAG_SOURCE, "flags", "Programmed") == ("False", "RollingOut")
            world.server.refusals.clear()
            await world.clock.advance(5.0)
            assert sorted(rolled(world)) == ["a", "b"]

    run(main)


def test_a_watch_that_is_behind_rolls_nothing_twice() -> None:
    async def main() -> None:
        world = world_of("web")
        async with world.running():
            edited(world, 2)
            await world.settle()
            generation = world.get(DEPLOYMENT, "web")["metadata"]["generation"]
            world.server.held = {DEPLOYMENT}
            edited(world, 3)
            await world.clock.advance(5.0)
            assert world.get(DEPLOYMENT, "web")["metadata"]["generation"] == generation + 1
            assert world.condition(FEATURE_FLAG_SOURCE, "flags", "Programmed") == ("False", "RollingOut")
            world.server.release()
            await world.clock.advance(2.0)
            assert world.condition(FEATURE_FLAG_SOURCE, "flags", "Programmed") == ("True", "UpToDate")

    run(main)


def test_there_is_no_status_before_all_workloads_are_known() -> None:
    async def main() -> None:
        world = world_of("web")
        world.server.hidden = {STATEFUL_SET}
        async with world.running():
            assert await world.since("status FeatureFlagSource") == []
            world.server.release()
            assert await world.since("status FeatureFlagSource") == ["status FeatureFlagSource team-a/flags"]

    run(main)


def _failing(world: World) -> bool:
    return any(each.failing for each in world.context.metrics._controllers.values())
