"""Statuses: written when they differ, for this object only, and what has changed is an Event once."""

from __future__ import annotations

import pytest

from tests.operator.controllers.world import World, refusal
from tests.pipeline.fakes import run
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import FEATURE_FLAG_SOURCE
from wigwag.operator.reconcile.status import ConditionState, conditions
from wigwag.operator.resources.featureflagsource import FeatureFlagSourceStatus
from wigwag.operator.resources.kubernetes import ObjectMeta


def status(reason: str, value: str = "False", digest: str = "") -> FeatureFlagSourceStatus:
    state = ConditionState("True" if value == "True" else "False", reason, "what to do")
    return FeatureFlagSourceStatus(conditions=conditions((), {"Resolved": state}, 1, 0.0), digest=digest)


NONE, MISSING, FOUND = FeatureFlagSourceStatus(), status("FlagMissing"), status("Resolved", "True")
EVENT = ("FeatureFlagSource", "team-a/flags", "Warning", "FlagMissing", "what to do")
WRITE = "status FeatureFlagSource team-a/flags"


def about(world: World) -> ObjectMeta:
    return ObjectMeta(name="flags", namespace="team-a", uid=world.source()["metadata"]["uid"])


def test_a_status_is_written_once_as_a_whole_and_an_event_recorded_once() -> None:
    async def main() -> None:
        world = World()
        source = about(world)
        report = world.context.report
        await report(FEATURE_FLAG_SOURCE, source, MISSING, MISSING)
        assert (world.server.asked, world.recorder.events) == ([], [])
        await report(FEATURE_FLAG_SOURCE, source, NONE, status("FlagMissing", digest="1"))
        assert (world.server.asked, world.recorder.events) == ([WRITE], [EVENT])
        await report(FEATURE_FLAG_SOURCE, source, status("FlagMissing", digest="1"), MISSING)
        assert world.recorder.events == [EVENT], "the condition is the same"
        assert "digest" not in world.get(FEATURE_FLAG_SOURCE, "flags")["status"]
        await report(FEATURE_FLAG_SOURCE, source, MISSING, FOUND)
        assert [each[2:4] for each in world.recorder.events[1:]] == [("Normal", "Resolved")]

    run(main)


def test_an_object_that_was_created_again_meanwhile_keeps_its_status_and_one_that_is_gone_is_no_error() -> None:
    async def main() -> None:
        world = World()
        source = about(world)
        world.server.remove(FEATURE_FLAG_SOURCE, ("team-a", "flags"))
        await world.context.report(FEATURE_FLAG_SOURCE, source, NONE, MISSING)
        world.source()
        await world.context.report(FEATURE_FLAG_SOURCE, source, NONE, MISSING)
        assert world.server.asked == [WRITE, WRITE]
        assert (world.get(FEATURE_FLAG_SOURCE, "flags")["status"], world.recorder.events) == ({}, [])

    run(main)


def test_another_error_is_raised_and_nothing_is_recorded() -> None:
    async def main() -> None:
        world = World()
        source = about(world)
        world.server.refusals.append(("status", refusal(403)))
        with pytest.raises(ApiError, match="403"):
            await world.context.report(FEATURE_FLAG_SOURCE, source, NONE, MISSING)
        assert world.recorder.events == []

    run(main)
