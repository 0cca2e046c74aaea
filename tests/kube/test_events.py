"""The Event recorder: repeats are one Event, and nothing waits, grows or retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.pipeline.fakes import FakeClock, run, settle
from wigwag.kube.client import KubeDeps
from wigwag.kube.control.events import LONGEST, EventLimits, EventRecorder
from wigwag.kube.errors import ApiError, ApiStatus
from wigwag.kube.kinds import CONFIG_MAP, NODE, Kind

ABOUT = {"metadata": {"name": "shop", "namespace": "ns", "uid": "u1"}}
AWAY = ApiError("POST /events", ApiStatus(503, "Unavailable"))


class EventServer:
    """Holds Events; `error` is raised instead."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.error: ApiError | None = None

    async def create(self, kind: Kind, body: Mapping[str, Any]) -> dict[str, Any]:
        self._answer()
        assert body["metadata"]["name"] not in self.events
        self.events[body["metadata"]["name"]] = dict(body)
        return dict(body)

    async def patch(self, kind: Kind, name: str, change: Any, namespace: str = "") -> dict[str, Any]:
        self._answer()
        if name not in self.events:
            raise ApiError("PATCH /events", ApiStatus(404, "NotFound"))
        assert self.events[name]["metadata"]["namespace"] == namespace
        self.events[name] |= change
        return self.events[name]

    def _answer(self) -> None:
        self.writes += 1
        if self.error is not None:
            raise self.error

    def counts(self) -> list[int]:
        return [event["count"] for event in self.events.values()]


@asynccontextmanager
async def recording(
    clock: FakeClock,
    limits: EventLimits = EventLimits(),  # noqa: B008
) -> AsyncIterator[tuple[EventRecorder, EventServer]]:
    server = EventServer()
    numbers = iter(range(10_000))
    deps = KubeDeps(clock=clock, wall=clock.now, random=lambda: next(numbers) / 10_000, environment={})
    recorder = EventRecorder(server, "wigwag-operator", "pod-1", limits, deps)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        await settle()
        yield recorder, server
        task.cancel()


def test_repeats_are_one_event_with_a_count_and_those_of_a_burst_one_request() -> None:
    async def main() -> None:
        clock = FakeClock()
        async with recording(clock) as (recorder, server):
            for _ in range(5):
                recorder.record(CONFIG_MAP, ABOUT, "Warning", "NotOurs", "it has no label")
            await settle()
            assert (server.counts(), server.writes) == ([5], 1)
            await clock.advance(60.0)
            recorder.record(CONFIG_MAP, ABOUT, "Warning", "NotOurs", "it has no label")
            recorder.record(CONFIG_MAP, ABOUT, "Warning", "NotOurs", "another reason")
            await settle()
            assert (sorted(server.counts()), server.writes) == ([1, 6], 3)
            event = next(event for event in server.events.values() if event["count"] == 6)
            assert event["lastTimestamp"] > event["firstTimestamp"]
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "ns", "name": "shop", "uid": "u1"}
            assert event["involvedObject"] == reference
            assert event["source"]["component"] == "wigwag-operator"

    run(main)


def test_an_event_that_has_expired_on_the_server_is_created_anew() -> None:
    async def main() -> None:
        async with recording(FakeClock()) as (recorder, server):
            for _ in range(2):
                recorder.record(CONFIG_MAP, ABOUT, "Normal", "Applied", "done")
                await settle()
                server.events.clear()
            recorder.record(CONFIG_MAP, ABOUT, "Normal", "Applied", "done")
            await settle()
            assert server.counts() == [1]

    run(main)


def test_one_object_cannot_write_more_than_its_share_and_others_are_not_affected() -> None:
    async def main() -> None:
        clock = FakeClock()
        async with recording(clock, EventLimits(burst=3, seconds=10.0)) as (recorder, server):
            for number in range(20):
                recorder.record(CONFIG_MAP, ABOUT, "Warning", "Failed", f"attempt {number}")
                await settle()
            assert server.writes == 3
            recorder.record(CONFIG_MAP, {"metadata": {**ABOUT["metadata"], "name": "b"}}, "Normal", "Applied", "done")
            await settle()
            assert server.writes == 4
            await clock.advance(10.0)
            recorder.record(CONFIG_MAP, ABOUT, "Warning", "Failed", "attempt 5")
            await settle()
            assert sorted(server.counts()) == [1, 1, 1, 1, 2]
            assert recorder.dropped.values == {("rate",): 17}

    run(main)


def test_without_a_server_events_are_dropped_and_recording_goes_on() -> None:
    async def main() -> None:
        async with recording(FakeClock()) as (recorder, server):
            server.error = AWAY
            recorder.record(CONFIG_MAP, ABOUT, "Normal", "Applied", "done")
            await settle()
            assert (server.writes, recorder.dropped.values) == (1, {("api",): 1})
            server.error = None
            recorder.record(CONFIG_MAP, ABOUT, "Normal", "Applied", "done")
            await settle()
            assert server.counts() == [1]

    run(main)


def test_memory_and_messages_are_bounded() -> None:
    async def main() -> None:
        async with recording(FakeClock(), EventLimits(objects=10, pending=4)) as (recorder, server):
            for number in range(50):
                about = {"metadata": {"name": f"n{number}"}}
                recorder.record(NODE, about, "Normal", "Applied", "x" * 5000)
            await settle()
            assert server.writes == 4
            assert {len(event["message"]) for event in server.events.values()} == {LONGEST}
            assert {event["metadata"]["namespace"] for event in server.events.values()} == {"default"}
            assert recorder.dropped.values == {("full",): 46}

    run(main)


def test_the_name_of_an_event_is_valid_whatever_its_object_is_called() -> None:
    async def main() -> None:
        async with recording(FakeClock()) as (recorder, server):
            for name in ("system:node", "a" * 253):
                recorder.record(NODE, {"metadata": {"name": name}}, "Normal", "Applied", "done")
            await settle()
            assert all(name.startswith("event.") and len(name) < 253 for name in server.events)

    run(main)
