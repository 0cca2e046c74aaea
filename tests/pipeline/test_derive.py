"""Derived watches: late ones are waited for and marked, and those that never settle are limited."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.fakes import FakeClock, FakeWatcher, run, running
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.limit import Burst, Interval, unlimited
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted
from wigwag.pipeline.watch import WatchPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from wigwag.pipeline.aggregate import Values
    from wigwag.pipeline.limit import Limiter


def picture(values: Values[Any, Any]) -> tuple[dict[Any, Any], tuple[Any, ...]]:
    return dict(values), values.waiting


class Bench:
    def __init__(
        self,
        derive: Callable[[Any], Awaitable[Iterable[Wanted[Any]]]],
        late: float = 2.0,
        settle: Callable[[], Limiter] = lambda: Burst(3, 30.0),
        limit: Callable[[], Limiter] = lambda: unlimited,
    ) -> None:
        self.fake, self.clock = FakeWatcher(), FakeClock()
        self.asked = 0

        async def counted(snapshot: Any) -> Iterable[Wanted[Any]]:
            self.asked += 1
            return await derive(snapshot)

        policy = WatchPolicy(clock=self.clock, limit=limit, late=late, settle=settle)
        self.pipeline: Pipeline[Any, Any, Any] = Pipeline(
            [Wanted("k8s")], self.fake.watch, picture, counted, policy=policy
        )
        self.published: list[Any] = []
        self.pipeline.published.subscribe(lambda: self.published.append(self.pipeline.published.value))
        self.push = self.fake.push


async def services(snapshot: tuple[dict[Any, Any], Any]) -> list[Wanted[Any]]:
    return [Wanted(name) for name in snapshot[0]["k8s"]]


def test_a_late_watch_is_part_of_the_next_snapshot() -> None:
    async def main() -> None:
        bench = Bench(services)
        async with running(bench.pipeline):
            await bench.push("k8s", [])
            await bench.push("k8s", ["bar"])
            assert len(bench.published) == 1, "the snapshot waits for bar"
            await bench.clock.advance(1.0)
            await bench.push("bar", "10.0.0.1")
            assert bench.published[1:] == [({"k8s": ["bar"], "bar": "10.0.0.1"}, ())]

    run(main)


def test_a_late_watch_that_does_not_answer_is_marked_and_joins_when_it_does() -> None:
    async def main() -> None:
        bench = Bench(services)
        async with running(bench.pipeline):
            await bench.push("k8s", [])
            await bench.push("k8s", ["bar"])
            await bench.clock.advance(2.0)
            assert bench.published[1:] == [({"k8s": ["bar"]}, ("bar",))]
            await bench.push("k8s", ["bar", "baz"])
            assert len(bench.published) == 2, "baz has its own time"
            await bench.push("baz", "10.0.0.2")
            assert bench.published[-1] == ({"k8s": ["bar", "baz"], "baz": "10.0.0.2"}, ("bar",))
            await bench.push("bar", "10.0.0.1")
            assert bench.published[-1][1] == ()

    run(main)


def test_a_service_that_is_taken_back_is_never_published_with_its_old_value() -> None:
    async def main() -> None:
        bench = Bench(services)
        async with running(bench.pipeline):
            await bench.push("k8s", ["bar"])
            await bench.push("bar", "old")
            await bench.push("k8s", [])
            await bench.push("k8s", ["bar"])
            await bench.push("bar", "new")
            seen = [values.get("bar") for values, _ in bench.published]
            assert seen == ["old", None, "new"]

    run(main)


def test_derive_is_asked_once_for_all_watches_that_it_waits_for() -> None:
    async def main() -> None:
        names = [f"service-{number}" for number in range(100)]
        bench = Bench(services)
        async with running(bench.pipeline):
            await bench.push("k8s", names)
            for name in names:
                await bench.push(name, "10.0.0.1")
            assert (len(bench.published), bench.asked) == (1, 2), "when they were missing, and when all were there"

    run(main)


def test_derive_that_never_settles_is_slowed_down_and_the_rest_goes_on() -> None:
    async def flip(snapshot: tuple[dict[Any, Any], Any]) -> list[Wanted[Any]]:
        return [Wanted("b" if "a" in snapshot[0] else "a", required=False)]

    async def main() -> None:
        bench = Bench(flip)
        async with running(bench.pipeline):
            await bench.push("k8s", 1)
            for _ in range(10):
                await bench.push("a", 1)
                await bench.push("b", 1)
            started = len(bench.fake.started)
            assert bench.pipeline.report().unsettled
            assert started <= 5, bench.fake.started
            await bench.clock.advance(31.0)
            assert len(bench.fake.started) == started + 1, "one more change when its time has come"
            await bench.push("k8s", 2)
            assert bench.published[-1][0]["k8s"] == 2

    run(main)


def test_changes_of_the_initial_watches_are_never_slowed_down() -> None:
    async def main() -> None:
        bench = Bench(services, late=0.0)
        async with running(bench.pipeline):
            for number in range(200):
                await bench.push("k8s", [f"service-{number}"])
                assert bench.fake.running() == sorted(["k8s", f"service-{number}"])
            assert bench.pipeline.report().unsettled is None

    run(main)


def test_one_that_flips_is_unsettled_until_it_has_agreed_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """Every other time it wants what is watched anyway: that is no end of the trouble, and not another message."""

    async def main() -> None:
        wants = cycle([["x"], []])

        async def flip(snapshot: Any) -> list[Wanted[Any]]:
            return [Wanted("y"), *(Wanted(name) for name in next(wants))]

        bench = Bench(flip)
        async with running(bench.pipeline):
            await bench.push("k8s", 0)
            await bench.push("y", 0)
            for number in range(1, 20):
                await bench.push("x", number)
                await bench.push("y", number)
            assert bench.published[-1][0]["y"] == 19, "the rest goes on"
            for number in range(20, 30):
                await bench.push("y", number)
                assert bench.pipeline.report().unsettled
            assert len(caplog.messages) == 1
            wants = cycle([["x"]])
            await bench.clock.advance(60.0)
            assert bench.pipeline.report().unsettled is None

    run(main)
    assert "stay as they are for 30 s; check the watch hook" in caplog.text


def test_another_order_is_no_change() -> None:
    """Programs that iterate over a hash table return their watches in another order each time."""

    async def main() -> None:
        orders = iter([["x", "y"], ["y", "x"]] * 20)

        async def shuffled(snapshot: Any) -> list[Wanted[Any]]:
            return [Wanted(name) for name in next(orders)]

        bench = Bench(shuffled)
        async with running(bench.pipeline):
            await bench.push("k8s", 0)
            for number in range(15):
                await bench.push("x", number)
                await bench.push("y", number)
            assert bench.asked > 20
            assert bench.pipeline.report().unsettled is None
            assert (len(bench.fake.started), bench.fake.stopped) == (3, [])

    run(main)


def test_derive_can_be_asked_again() -> None:
    async def main() -> None:
        bench = Bench(services)
        async with running(bench.pipeline):
            await bench.push("k8s", [])
            asked = bench.asked
            bench.pipeline.derive_again()
            await bench.push("elsewhere")
            assert bench.asked == asked + 1

    run(main)


def test_the_first_snapshot_is_not_limited_but_counts() -> None:
    async def main() -> None:
        bench = Bench(services, limit=lambda: Interval(1.0))
        async with running(bench.pipeline):
            await bench.push("k8s", ["bar"])
            await bench.push("bar", 1)
            assert len(bench.published) == 1
            await bench.push("bar", 2)
            assert len(bench.published) == 1
            await bench.clock.advance(1.0)
            assert len(bench.published) == 2

    run(main)


def test_a_late_watch_that_answers_at_once_is_published_at_once() -> None:
    async def main() -> None:
        bench = Bench(services, limit=lambda: Interval(1.0))
        async with running(bench.pipeline):
            await bench.push("k8s", [])
            await bench.clock.advance(10.0)
            await bench.push("k8s", ["bar"])
            await bench.push("bar", 1)
            assert len(bench.published) == 2, "it is the snapshot that the permission was for"
            await bench.push("bar", 2)
            assert len(bench.published) == 2
            await bench.clock.advance(1.0)
            assert len(bench.published) == 3

    run(main)


def test_values_that_change_nothing_are_limited_too() -> None:
    async def main() -> None:
        bench = Bench(services, limit=lambda: Interval(1.0))
        async with running(bench.pipeline):
            await bench.push("k8s", [])
            await bench.clock.advance(10.0)
            asked = bench.asked
            for _ in range(10):
                await bench.push("k8s", [])
            assert bench.asked - asked == 1
            await bench.clock.advance(1.0)
            assert (bench.asked - asked, len(bench.published)) == (2, 1)

    run(main)


def test_snapshots_keep_their_distance_though_derive_takes_long() -> None:
    """The limiter counts from the snapshot, not from its permission: a slow `derive` lies between the two."""

    async def main() -> None:
        pauses = iter([0.0, 0.8, 0.0, 5.0, 0.0])

        async def slow(snapshot: Any) -> list[Wanted[Any]]:
            await sleep_until(bench.clock, bench.clock.now() + next(pauses))
            return []

        bench = Bench(slow, limit=lambda: Interval(1.0))
        times: list[float] = []
        bench.pipeline.published.subscribe(lambda: times.append(bench.clock.now() - 1000.0))
        async with running(bench.pipeline):
            await bench.push("k8s", 0)
            for number in range(1, 5):
                await bench.clock.advance(1.0)
                await bench.push("k8s", number)
            await bench.clock.advance(20.0)
        assert times == pytest.approx([0.0, 1.8, 2.8, 8.8, 9.8])

    run(main)
