"""Whatever happens in whatever order: the gate holds, the last value arrives, faults change nothing, nothing leaks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.fakes import FakeClock, FakeWatcher, run, running, settle
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.limit import Burst, Composite, Interval, unlimited
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Unavailable, Wanted
from wigwag.pipeline.watch import WatchPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.pipeline.limit import Limiter

LIMITS: dict[str, Callable[[], Limiter]] = {
    "unlimited": lambda: unlimited,
    "interval": lambda: Interval(0.25),
    "burst": lambda: Burst(2, 1.0),
    "watt": lambda: Composite(unlimited, Interval(0.25), 0.25),
}
INITIAL = {"a": Wanted("a"), "b": Wanted("b"), "g": Wanted("g", grace=5.0), "o": Wanted("o", required=False)}
DERIVED = ("x", "y")

names = st.sampled_from([*INITIAL, *DERIVED])
values = st.tuples(st.integers(0, 3), st.sampled_from(["", "x", "y", "xy"]))
"""A value is a number and the derived watches it asks for."""
steps = st.one_of(
    st.tuples(st.just("value"), names, values),
    st.tuples(st.just("value"), names, values),
    st.tuples(
        st.just("fault"), names, st.sampled_from([OSError("x"), Unavailable("y"), StopAsyncIteration, ValueError("z")])
    ),
    st.tuples(st.just("time"), st.sampled_from([0.01, 0.25, 1.0, 6.0, 200.0]), st.none()),
    st.tuples(st.just("want"), st.sets(st.sampled_from(list(INITIAL)), min_size=1), st.none()),
    st.tuples(st.just("turn"), st.integers(1, 9), st.none()),
    st.tuples(st.just("turn"), st.integers(1, 9), st.none()),
)


class World:
    """A pipeline, a subscriber, and what an onlooker knows of the values."""

    def __init__(self, limit: str) -> None:
        self.fake, self.clock = FakeWatcher(), FakeClock()
        self.initial = set(INITIAL)
        self.seen: list[Any] = []
        self.pipeline: Pipeline[str, Any, dict[str, Any]] = Pipeline(
            INITIAL.values(),
            self.fake.watch,
            dict,
            self.derive,
            policy=WatchPolicy(Backoff(0.1, 8.0), self.clock, lambda: 0.5, LIMITS[limit]),
        )

    async def derive(self, picture: dict[str, Any]) -> list[Wanted[str]]:
        await settle(3)
        return [Wanted(name) for name in sorted(asked(picture, self.initial))]

    async def read(self) -> None:
        async for picture in self.pipeline.published:
            self.seen.append(picture)
            await asyncio.sleep(0)

    async def do(self, kind: str, what: Any, item: Any) -> None:
        if kind in {"value", "fault"}:
            self.fake._inboxes[what].put_nowait(item)
        elif kind == "time":
            await self.clock.advance(what)
        elif kind == "want":
            self.initial = what
            self.pipeline.want([INITIAL[name] for name in sorted(what)])
        else:
            await settle(what)

    def gate_holds(self) -> None:
        """The first picture has all that is required and all that is derived from it."""
        if self.seen:
            first = self.seen[0]
            assert {"a", "b"} | asked(first, self.initial) <= first.keys()


def asked(picture: dict[str, Any], initial: set[str]) -> set[str]:
    """What is derived hangs on the initial watches only, so that the end of it is known."""
    return {name for spec, (_, wants) in picture.items() if spec in initial for name in wants}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(list(LIMITS)), st.lists(steps, max_size=40))
def test_the_invariants_hold_in_every_order_of_events(limit: str, schedule: list[tuple[str, Any, Any]]) -> None:
    async def main() -> None:
        world, never_left = World(limit), True
        async with running(world.pipeline), asyncio.TaskGroup() as group:
            reader = group.create_task(world.read())
            for step in schedule:
                await world.do(*step)
                never_left = never_left and world.initial == set(INITIAL)
                if never_left:
                    world.gate_holds()
            for spec in world.initial:
                world.fake._inboxes[spec].put_nowait((9, ""))
            await world.clock.advance(1000.0)
            expected = dict.fromkeys(world.initial, (9, ""))
            assert world.pipeline.published.value == expected
            assert world.seen[-1] == expected
            assert world.fake.running() == sorted(world.initial)
            assert all(status.state == "live" for status in world.pipeline.statuses())
            reader.cancel()
        assert world.fake.running() == []
        assert world.clock.pending() == []

    run(main)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.integers(0, 5), st.just(OSError("down")))), max_size=30))
def test_faults_leave_no_trace_in_the_pictures(schedule: list[tuple[str, Any]]) -> None:
    async def main() -> None:
        fake, clock = FakeWatcher(), FakeClock()
        pipeline: Pipeline[str, int, dict[str, int]] = Pipeline(
            [Wanted("a"), Wanted("b")], fake.watch, dict, policy=WatchPolicy(clock=clock, random=lambda: 0.5)
        )
        model: dict[str, int] = {}
        async with running(pipeline):
            for spec, item in schedule:
                await fake.push(spec, item)
                if isinstance(item, OSError):
                    await clock.advance(60.0)
                else:
                    model[spec] = item
                assert pipeline.published.value == (model if len(model) == 2 else None)

    run(main)
