"""Urgent values: parsed before others, published without waiting for the limiter, and never out of order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tests.pipeline.fakes import FakeClock, FakeWatcher, run, running, settle
from wigwag.pipeline.lanes import LARGE_AT_ONCE, ParseLanes
from wigwag.pipeline.limit import Interval, unlimited
from wigwag.pipeline.parse import parsed_in_order
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Unavailable, Urgent, Wanted
from wigwag.pipeline.watch import WatchPolicy


class Plant:
    """A pipeline of `a` and `b` whose snapshots the test sees; `work` is how long it takes to make one."""

    def __init__(self, interval: float = 0.0, pause: float = 0.0) -> None:
        self.fake, self.clock, self.work = FakeWatcher(), FakeClock(0.0), 0.0
        limit = Interval(interval) if interval else unlimited
        policy = WatchPolicy(clock=self.clock, random=lambda: 1.0, limit=lambda: limit, pause=pause)
        self.pipeline: Pipeline[str, Any, Any] = Pipeline(
            [Wanted("a"), Wanted("b")], self.fake.watch, self._assemble, policy=policy
        )
        self.seen: list[tuple[float, Any, Any]] = []
        self.pipeline.published.subscribe(self._note)

    def _assemble(self, values: Any) -> dict[str, Any]:
        self.clock._now += self.work
        return dict(values)

    def _note(self) -> None:
        value = self.pipeline.published.value
        self.seen.append((round(self.clock.now(), 6), value["a"], value["b"]))


def test_an_urgent_value_is_published_at_once_while_an_ordinary_one_waits_for_the_interval() -> None:
    async def main() -> None:
        plant = Plant(interval=1.0)
        async with running(plant.pipeline):
            await plant.fake.push("a", 0)
            await plant.fake.push("b", 0)
            await plant.clock.advance(0.25)
            await plant.fake.push("a", 1)
            assert plant.seen == [(0.0, 0, 0)]
            await plant.fake.push("b", Urgent(1))
            assert plant.seen == [(0.0, 0, 0), (0.25, 1, 1)], "with all that waited: one picture, in order"
            await plant.fake.push("a", 2)
            assert len(plant.seen) == 2, "the limiter still holds for what is ordinary"
            await plant.clock.advance(2.0)
            assert plant.seen[2:] == [(1.0, 2, 1)]

    run(main)


def test_an_urgent_value_that_comes_before_anything_waits_ends_no_later_wait() -> None:
    async def main() -> None:
        plant = Plant(interval=1.0)
        async with running(plant.pipeline):
            await plant.fake.push("a", Urgent(0))
            await plant.fake.push("b", 0)
            await plant.fake.push("a", 1)
            assert plant.seen == [(0.0, 0, 0)]
            await plant.clock.advance(1.0)
            assert plant.seen[1:] == [(1.0, 1, 0)]

    run(main)


def test_after_a_snapshot_that_took_long_ordinary_values_wait_and_urgent_ones_do_not() -> None:
    async def main() -> None:
        plant = Plant(pause=4.0)
        async with running(plant.pipeline):
            await plant.fake.push("a", -1)
            await plant.fake.push("b", 0)
            plant.work, plant.seen = 0.01, []
            await plant.fake.push("a", 0)
            await plant.fake.push("a", 1)
            assert plant.seen == [(0.01, 0, 0)]
            await plant.clock.advance(0.02)
            await plant.fake.push("b", Urgent(1))
            assert plant.seen[1:] == [(0.04, 1, 1)]
            await plant.fake.push("a", 2)
            assert len(plant.seen) == 2
            await plant.clock.advance(0.05)
            assert plant.seen[2:] == [(0.09, 2, 1)]
            plant.work = 60.0
            await plant.clock.advance(1.0)
            await plant.fake.push("a", 3)
            await plant.fake.push("a", 4)
            assert len(plant.seen) == 4
            await plant.clock.advance(0.1)
            assert len(plant.seen) == 5, "no pause is longer than that"

    run(main)


def test_urgent_values_are_parsed_before_those_that_wait_for_their_turn() -> None:
    async def main() -> None:
        order: list[str] = []
        inboxes = {name: asyncio.Queue[str]() for name in "abcdu"}

        async def watch(spec: str) -> AsyncIterator[str]:
            while True:
                yield await inboxes[spec].get()

        def parse(spec: str, value: str) -> str:
            if value == "bad":
                raise ValueError("no good")
            order.append(spec + value)
            return value

        watcher = parsed_in_order(watch, parse, lambda *_: False, lambda spec, _: spec == "u")
        results: dict[str, list[Any]] = {name: [] for name in inboxes}

        async def follow(spec: str) -> None:
            async for item in watcher(spec):
                results[spec].append(item)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(follow(spec)) for spec in inboxes]
            await settle()
            for name in "abcd":
                inboxes[name].put_nowait("1")
            inboxes["a"].put_nowait("2")
            inboxes["u"].put_nowait("1")
            await settle()
            assert order.index("u1") < 2, "behind one ordinary value at most"
            assert [each for each in order if each[0] == "a"] == ["a1", "a2"], "each source keeps its order"
            inboxes["u"].put_nowait("bad")
            await settle()
            assert results["u"] == [Urgent("1"), Unavailable("ValueError: no good")]
            assert results["a"] == ["1", "2"]
            for task in tasks:
                task.cancel()

    run(main)


def test_large_ordinary_values_leave_threads_to_urgent_ones_and_who_is_cancelled_holds_up_nobody() -> None:
    async def main() -> None:
        lanes, started = ParseLanes(), asyncio.Semaphore(0)
        loop, go_on = asyncio.get_running_loop(), asyncio.Event()

        def job() -> str:
            loop.call_soon_threadsafe(started.release)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
            return "large"

        async with asyncio.TaskGroup() as group:
            large = [group.create_task(lanes.parse(job, urgent=False, large=True)) for _ in range(LARGE_AT_ONCE + 1)]
            for _ in range(LARGE_AT_ONCE):
                await started.acquire()
            assert await lanes.parse(lambda: "first", urgent=True, large=True) == "first"
            waiting = group.create_task(lanes.parse(lambda: "cancelled", urgent=False, large=False))
            await asyncio.sleep(0)
            waiting.cancel()
            assert await lanes.parse(lambda: "small", urgent=False, large=False) == "small"
            go_on.set()
        assert [task.result() for task in large] == ["large"] * (LARGE_AT_ONCE + 1)

    run(main)
