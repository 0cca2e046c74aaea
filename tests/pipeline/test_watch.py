"""The supervisor's manners."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.fakes import FakeClock, FakeWatcher, run, settle
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.clock import LoopClock, sleep_until
from wigwag.pipeline.parse import parsed
from wigwag.pipeline.spec import UNCHANGED, Unavailable, Watcher
from wigwag.pipeline.watch import Watches, WatchPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Bench:
    """Watches under test, what they deliver, and the time."""

    def __init__(self, watcher: Watcher[str, Any] | None = None) -> None:
        self.fake, self.clock = FakeWatcher(), FakeClock()
        self.got: list[tuple[str, Any]] = []
        self.turned = 0
        self.watcher = watcher or self.fake.watch
        backoff = Backoff(first=1.0, most=8.0)
        self.policy = WatchPolicy(backoff, self.clock, random=lambda: 1.0)
        self.watches: Watches[str, Any]

    def turn(self) -> None:
        self.turned += 1

    @asynccontextmanager
    async def watching(self, *specs: str) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            self.watches = Watches(
                group, self.watcher, lambda spec, value: self.got.append((spec, value)), self.turn, self.policy
            )
            self.watches.want(specs)
            await settle()
            yield
            self.watches.want(())


def test_a_failed_watcher_is_started_again_later_and_later() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.watching("a"):
            pauses = []
            for _ in range(5):
                await bench.fake.push("a", OSError("gone"))
                pauses += bench.clock.pending()
                await bench.clock.advance(pauses[-1])
            assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0]
            assert bench.fake.started == ["a"] * 6
            assert bench.watches.statuses()[0].restarts == 5

    run(main)


def test_a_watcher_that_ends_is_started_again_too() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.watching("a"):
            await bench.fake.push("a", 1, StopAsyncIteration)
            (status,) = bench.watches.statuses()
            assert (status.state, status.error, status.values) == ("failing", "the watch ended", 1)
            await bench.clock.advance(1)
            await bench.fake.push("a", 2)
            assert bench.got == [("a", 1), ("a", 2)]

    run(main)


@pytest.mark.parametrize(("item", "pause"), [("value", 1), (UNCHANGED, 1), (Unavailable("not yet"), 8)])
def test_only_a_watcher_that_delivered_data_ends_the_row_of_failures(item: Any, pause: float) -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.watching("a"):
            for _ in range(4):
                await bench.fake.push("a", OSError())
                await bench.clock.advance(8)
            await bench.fake.push("a", item, OSError())
            assert bench.clock.pending() == [pause]

    run(main)


def test_a_watcher_that_delivers_once_and_fails_is_limited_per_minute() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.watching("a"):
            while bench.clock.now() < 1000 + 600:
                await bench.fake.push("a", "value", OSError())
                await bench.clock.advance(*bench.clock.pending())
            assert len(bench.fake.started) <= 6 + 600 / 8 + 1

    run(main)


def test_a_status_tells_the_whole_story() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.watching("a"):
            (status,) = bench.watches.statuses()
            assert (status.state, status.age(bench.clock.now()), status.error) == ("starting", None, None)
            await bench.fake.push("a", 1, 2)
            await bench.clock.advance(5)
            (status,) = bench.watches.statuses()
            assert (status.state, status.values, status.age(bench.clock.now())) == ("live", 2, 5)
            await bench.fake.push("a", ValueError("bad"))
            await bench.clock.advance(1)
            (status,) = bench.watches.statuses()
            assert (status.state, status.error, status.restarts) == ("failing", "ValueError: bad", 1)
            assert (status.age(bench.clock.now()), status.since, status.failed) == (6, 1005, 1005)
            await bench.fake.push("a", 3)
            (recovered,) = bench.watches.statuses()
            assert (recovered.state, recovered.error, recovered.since) == ("live", "ValueError: bad", 1006)
            assert status.state == "failing", "a record that was read does not change"
        assert bench.turned >= 3

    run(main)


def test_trouble_changes_the_status_and_nothing_else() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.watching("a"):
            await bench.fake.push("a", 1, Unavailable("not there"))
            (status,) = bench.watches.statuses()
            assert (status.state, status.error, status.restarts) == ("failing", "not there", 0)
            await bench.fake.push("a", 1)
            assert bench.watches.statuses()[0].state == "live"
            assert bench.fake.started == ["a"]
            assert bench.got == [("a", 1), ("a", 1)]

    run(main)


def test_only_changes_of_state_or_error_ring() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.watching("a"):
            await bench.fake.push("a", 1, 2, 3, Unavailable("x"), Unavailable("x"), Unavailable("y"), 4)
            assert bench.turned == 4

    run(main)


def test_what_is_wanted_stays_and_what_is_not_is_cancelled() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.watching("a", "b"):
            bench.watches.want(["b", "c"])
            await settle()
            assert bench.fake.started == ["a", "b", "c"]
            assert bench.fake.stopped == ["a"]
            assert [status.spec for status in bench.watches.statuses()] == ["b", "c"]
        assert bench.fake.running() == []

    run(main)


def test_a_watch_that_is_cancelled_is_freed_without_the_garbage_collector() -> None:
    """The collector does not see what a connection costs, and runs rarely: thousands of watches would stay."""

    async def main() -> None:
        bench = Bench()
        async with bench.watching("a"):
            await bench.fake.push("a", 1)
            watch = weakref.ref(bench.watches._running["a"][0])
            bench.watches.want([])
            await settle()
            assert watch() is None

    gc.disable()
    try:
        run(main)
    finally:
        gc.enable()


def test_a_spec_that_goes_and_comes_back_at_once_has_one_watcher_and_a_new_status() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.watching("a"):
            await bench.fake.push("a", 1)
            for _ in range(100):
                bench.watches.want([])
                bench.watches.want(["a"])
            await settle()
            assert bench.fake.running() == ["a"]
            assert bench.watches.statuses()[0].state == "starting"

    run(main)


def test_a_watcher_that_is_slow_to_close_holds_up_nobody() -> None:
    async def main() -> None:
        release = asyncio.Event()

        async def watcher(spec: str) -> AsyncIterator[int]:
            try:
                yield 1
                await asyncio.Event().wait()
            finally:
                await release.wait()

        bench = Bench(watcher)
        async with bench.watching("a"):
            bench.watches.want(["b"])
            await settle()
            assert bench.got == [("a", 1), ("b", 1)]
            release.set()

    run(main)


@pytest.mark.parametrize("answer", [RuntimeError, None])
def test_a_watcher_that_will_not_stop_is_stopped(answer: type[Exception] | None) -> None:
    async def main() -> None:
        async def watcher(spec: str) -> AsyncIterator[int]:
            while True:
                try:
                    yield 1
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if answer is not None:
                        raise answer from None

        bench = Bench(watcher)
        async with bench.watching("a"):
            assert bench.got == [("a", 1)]
        assert bench.got == [("a", 1)]

    run(main)


def test_a_watcher_cancelled_from_within_has_failed() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.watching("a"):
            await bench.fake.push("a", asyncio.CancelledError())
            assert bench.watches.statuses()[0].error == "CancelledError"
            await bench.clock.advance(1)
            await bench.fake.push("a", 1)
            assert bench.got == [("a", 1)]

    run(main)


def test_a_watcher_that_never_waits_does_not_starve_the_others() -> None:
    async def main() -> None:
        async def watcher(spec: str) -> AsyncIterator[int]:
            for number in range(10**9):
                yield number

        bench = Bench(watcher)
        async with bench.watching("a", "b"):
            assert {spec for spec, _ in bench.got} == {"a", "b"}

    run(main)


def test_a_document_that_cannot_be_parsed_is_trouble_of_its_own_watch_only() -> None:
    async def main() -> None:
        bench = Bench()
        bench.watcher = parsed(bench.fake.watch, lambda spec, text: int(text))
        async with bench.watching("a", "b"):
            await bench.fake.push("a", "1", "x")
            await bench.fake.push("b", "2", Unavailable("away"))
            assert bench.got == [("a", 1), ("b", 2)]
            one, two = bench.watches.statuses()
            assert (one.state, two.error) == ("failing", "away")
            assert "invalid literal" in (one.error or "")
            await bench.fake.push("a", "3")
            assert bench.watches.statuses()[0].state == "live"
        assert bench.fake.running() == []

    run(main)


def test_the_loops_own_clock_waits_until_the_time_and_not_less() -> None:
    async def main() -> None:
        clock = LoopClock()
        when = clock.now() + 0.01
        await sleep_until(clock, when)
        assert clock.now() >= when

    run(main)


def test_what_is_unchanged_is_fresh_again_and_ends_trouble_without_being_delivered_again() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.watching("a"):
            await bench.fake.push("a", UNCHANGED)
            assert bench.watches.statuses()[0].state == "starting"  # nothing was said that could still hold
            await bench.fake.push("a", 1, Unavailable("away"))
            await bench.clock.advance(10)
            assert bench.watches.statuses()[0].age(bench.clock.now()) == 10
            await bench.fake.push("a", UNCHANGED)
            status = bench.watches.statuses()[0]
            assert (status.state, status.age(bench.clock.now()), status.values) == ("live", 0, 1)
            assert bench.got == [("a", 1)]

    run(main)


def test_a_document_that_is_unchanged_is_as_bad_as_it_was() -> None:
    async def main() -> None:
        bench = Bench()
        bench.watcher = parsed(bench.fake.watch, lambda spec, text: int(text))
        async with bench.watching("a"):
            await bench.fake.push("a", "1", "one", UNCHANGED)
            assert bench.watches.statuses()[0].state == "failing"
            await bench.fake.push("a", "2", UNCHANGED)
            assert bench.watches.statuses()[0].state == "live"
            assert bench.got == [("a", 1), ("a", 2)]

    run(main)
