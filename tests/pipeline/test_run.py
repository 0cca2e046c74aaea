"""The pipeline as a whole: gate, levels, derived watches, limits, failures."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

from tests.pipeline.fakes import FakeClock, FakeWatcher, run, running, settle
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.limit import Composite, Interval, unlimited
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Restored, Unavailable, Wanted
from wigwag.pipeline.watch import WatchPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.pipeline.limit import Limiter


class Bench:
    def __init__(self, *wanted: Any, limit: Callable[[], Limiter] = lambda: unlimited, **options: Any) -> None:
        self.fake, self.clock = FakeWatcher(), FakeClock()
        options.setdefault("assemble", dict)
        backoff = Backoff(first=1.0, most=8.0)
        self.pipeline: Pipeline[Any, Any, Any] = Pipeline(
            [want if isinstance(want, Wanted) else Wanted(want) for want in wanted],
            self.fake.watch,
            policy=WatchPolicy(backoff, self.clock, lambda: 1.0, limit),
            **options,
        )
        self.push = self.fake.push

    @property
    def picture(self) -> Any:
        return self.pipeline.published.value

    @property
    def serial(self) -> int:
        return self.pipeline.published.serial


async def services(picture: dict[Any, Any]) -> list[Wanted[Any]]:
    """Derive one watch for every service that the value of `k8s` names."""
    return [Wanted(("consul", name)) for name in picture["k8s"]]


def test_nothing_is_published_before_every_initial_watch_has_answered() -> None:
    async def main() -> None:
        bench = Bench("a", "b")
        async with running(bench.pipeline):
            await bench.push("a", 1)
            assert bench.serial == 0
            assert bench.pipeline.report().waiting == ("b",)
            assert not bench.pipeline.report().complete
            await bench.push("b", None)  # empty counts
            assert bench.picture == {"a": 1, "b": None}
            assert bench.pipeline.report().complete
        assert bench.fake.running() == []

    run(main)


def test_values_come_in_the_order_in_which_they_are_wanted() -> None:
    async def main() -> None:
        bench = Bench("a", "b", "c", assemble=lambda values: list(values.items()))
        async with running(bench.pipeline):
            for spec in "cab":
                await bench.push(spec, spec.upper())
            assert bench.picture == [("a", "A"), ("b", "B"), ("c", "C")]
            bench.pipeline.want([Wanted("c"), Wanted("a")])
            await settle()
            assert bench.picture == [("c", "C"), ("a", "A")]

    run(main)


def test_nothing_wanted_is_a_picture_of_nothing() -> None:
    async def main() -> None:
        bench = Bench()
        async with running(bench.pipeline):
            assert (bench.picture, bench.serial) == ({}, 1)

    run(main)


def test_an_optional_watch_is_not_waited_for_but_joins_when_it_answers() -> None:
    async def main() -> None:
        bench = Bench("a", Wanted("b", required=False))
        async with running(bench.pipeline):
            await bench.push("a", 1)
            assert bench.picture == {"a": 1}
            await bench.push("b", 2)
            assert bench.picture == {"a": 1, "b": 2}

    run(main)


def test_a_watch_with_a_grace_period_is_waited_for_that_long() -> None:
    async def main() -> None:
        bench = Bench("a", Wanted("b", grace=30.0), Wanted("c", grace=10.0))
        async with running(bench.pipeline):
            await bench.push("a", 1)
            await bench.push("b", OSError("down"))
            await bench.clock.advance(29.9)
            assert bench.serial == 0
            await bench.clock.advance(0.1)
            assert bench.picture == {"a": 1}

    run(main)


def test_trouble_is_not_an_answer() -> None:
    async def main() -> None:
        bench = Bench("a")
        async with running(bench.pipeline):
            await bench.push("a", Unavailable("not yet"))
            assert bench.serial == 0
            await bench.push("a", 1)
            assert bench.picture == {"a": 1}

    run(main)


def test_a_derived_watch_delays_the_first_picture_and_leaves_with_its_cause() -> None:
    async def main() -> None:
        bench = Bench("k8s", derive=services)
        async with running(bench.pipeline):
            await bench.push("k8s", ["bar"])
            assert bench.serial == 0
            assert ("consul", "bar") in bench.fake.started
            await bench.push(("consul", "bar"), ["1.2.3.4"])
            assert bench.picture == {"k8s": ["bar"], ("consul", "bar"): ["1.2.3.4"]}
            await bench.push("k8s", [])
            assert bench.picture == {"k8s": []}
            assert bench.fake.running() == ["k8s"]
            assert [status.spec for status in bench.pipeline.statuses()] == ["k8s"]
            await bench.push("k8s", ["bar"])
            assert bench.picture == {"k8s": ["bar"]}, "the old answer is forgotten"

    run(main)


def test_watches_derived_from_derived_watches_are_waited_for_too() -> None:
    async def derive(picture: dict[str, str]) -> list[Wanted[str]]:
        return [Wanted(follows) for follows in picture.values() if follows]

    async def main() -> None:
        bench = Bench("a", derive=derive)
        async with running(bench.pipeline):
            for spec, follows in ("a", "b"), ("b", "c"), ("c", "d"):
                await bench.push(spec, follows)
                assert bench.serial == 0
            await bench.push("d", "")
            assert (bench.picture, bench.serial) == ({"a": "b", "b": "c", "c": "d", "d": ""}, 1)
            await bench.push("a", "")
            assert bench.picture == {"a": ""}, "the whole chain goes"
            assert bench.fake.running() == ["a"]

    run(main)


def test_a_derived_watch_that_never_answers_blocks_only_while_it_is_wanted() -> None:
    async def main() -> None:
        bench = Bench("k8s", derive=services)
        async with running(bench.pipeline):
            await bench.push("k8s", ["broken"])
            assert bench.serial == 0
            await bench.push("k8s", [])
            assert bench.picture == {"k8s": []}

    run(main)


def test_once_open_the_gate_does_not_shut_for_a_new_derived_watch() -> None:
    async def main() -> None:
        bench = Bench("k8s", derive=services)
        async with running(bench.pipeline):
            await bench.push("k8s", [])
            await bench.push("k8s", ["bar"])
            assert bench.picture == {"k8s": ["bar"]}
            assert bench.pipeline.report().waiting == (("consul", "bar"),)

    run(main)


def test_derive_is_not_asked_before_all_initial_watches_have_answered() -> None:
    async def main() -> None:
        asked = []

        async def derive(picture: dict[str, int]) -> list[Wanted[str]]:
            asked.append(picture)
            return []

        bench = Bench("a", "b", derive=derive)
        async with running(bench.pipeline):
            await bench.push("a", 1)
            assert asked == []
            await bench.push("b", 2)
            assert asked == [{"a": 1, "b": 2}]

    run(main)


def test_what_comes_while_derive_is_busy_is_seen_afterwards() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def derive(picture: dict[str, int]) -> list[Wanted[str]]:
            await gate.wait()
            return []

        bench = Bench("a", derive=derive)
        async with running(bench.pipeline):
            await bench.push("a", 1, 2, 3)
            await bench.push("a", 4)
            gate.set()
            await settle()
            assert bench.picture == {"a": 4}
            gate.clear()
            await bench.push("a", 5)
            bench.pipeline.want([])
            gate.set()
            await settle()
            assert bench.picture == {}

    run(main)


def test_an_answer_that_comes_while_derive_is_busy_is_in_the_first_picture() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        gate.set()

        async def derive(picture: dict[Any, Any]) -> list[Wanted[Any]]:
            await gate.wait()
            return await services(picture)

        bench = Bench("k8s", derive=derive)
        async with running(bench.pipeline):
            await bench.push("k8s", ["a"])
            gate.clear()
            await bench.push("k8s", ["a"])
            await bench.push(("consul", "a"), 1)
            gate.set()
            await settle()
            assert (bench.picture, bench.serial) == ({"k8s": ["a"], ("consul", "a"): 1}, 1)

    run(main)


def test_a_derive_that_fails_is_asked_again_and_changes_nothing_meanwhile() -> None:
    async def main() -> None:
        fail = [False]

        async def derive(picture: dict[Any, Any]) -> list[Wanted[Any]]:
            if fail[0]:
                raise TimeoutError("hook")
            return await services(picture)

        bench = Bench("k8s", derive=derive)
        async with running(bench.pipeline):
            await bench.push("k8s", ["a"])
            await bench.push(("consul", "a"), 1)
            fail[0] = True
            await bench.push("k8s", ["b"])
            assert bench.pipeline.report().error == "TimeoutError: hook"
            assert (bench.serial, bench.fake.running()) == (1, [("consul", "a"), "k8s"])
            fail[0] = False
            await bench.clock.advance(1)
            assert bench.pipeline.report().error is None
            assert (bench.picture, bench.fake.running()) == ({"k8s": ["b"]}, [("consul", "b"), "k8s"])

    run(main)


def test_if_assemble_raises_the_last_good_picture_stays_and_the_error_is_visible() -> None:
    async def main() -> None:
        bench = Bench("a", assemble=lambda values: 1 / values["a"])
        async with running(bench.pipeline):
            await bench.push("a", 2)
            await bench.push("a", 0)
            assert (bench.picture, bench.serial) == (0.5, 1)
            assert bench.pipeline.report().error == "ZeroDivisionError: division by zero"
            await bench.push("a", 4)
            assert (bench.picture, bench.pipeline.report().error) == (0.25, None)

    run(main)


def test_a_failing_watch_keeps_its_last_value_while_the_others_go_on() -> None:
    async def main() -> None:
        bench = Bench("a", "b")
        async with running(bench.pipeline):
            await bench.push("a", 1)
            await bench.push("b", 1)
            await bench.push("a", RuntimeError("gone"))
            await bench.push("b", 2)
            assert bench.picture == {"a": 1, "b": 2}
            assert [status.state for status in bench.pipeline.statuses()] == ["failing", "live"]
            await bench.clock.advance(1)
            await bench.push("a", 2)
            assert bench.picture == {"a": 2, "b": 2}
        assert [status.state for status in bench.pipeline.statuses()] == ["stopped", "stopped"]

    run(main)


def test_equal_content_is_not_published_again() -> None:
    async def main() -> None:
        bench = Bench("a", key=lambda picture: picture["a"].lower())
        async with running(bench.pipeline):
            for value in "x", "x", "X", "y":
                await bench.push("a", value)
            assert (bench.picture, bench.serial) == ({"a": "y"}, 2)

    run(main)


def test_a_picture_from_an_earlier_life_serves_until_the_first_new_one() -> None:
    async def main() -> None:
        bench = Bench("a")
        bench.pipeline.published.publish({"a": 1})
        async with running(bench.pipeline):
            assert (bench.picture, bench.pipeline.report().complete) == ({"a": 1}, False)
            await bench.push("a", 1)
            assert (bench.serial, bench.pipeline.report().complete) == (1, True)
            await bench.push("a", 2)
            assert (bench.serial, bench.picture) == (2, {"a": 2})

    run(main)


def test_a_burst_is_published_as_a_leading_and_a_trailing_picture() -> None:
    async def main() -> None:
        bench = Bench("a", limit=lambda: Interval(0.25))
        async with running(bench.pipeline):
            for value in range(500):
                await bench.push("a", value)
            assert (bench.picture, bench.serial) == ({"a": 0}, 1)
            await bench.clock.advance(0.25)
            assert (bench.picture, bench.serial) == ({"a": 499}, 2)
            await bench.push("a", 500)
            assert bench.serial == 2, "the trailing picture counts: at most one per interval"
            await bench.clock.advance(0.25)
            assert (bench.picture, bench.serial) == ({"a": 500}, 3)
            await bench.clock.advance(60)
            await bench.push("a", 501)
            assert bench.serial == 4

    run(main)


def test_with_watts_limiter_the_start_is_not_held_up() -> None:
    async def main() -> None:
        bench = Bench("k8s", derive=services, limit=lambda: Composite(unlimited, Interval(1.0), 1.0))
        async with running(bench.pipeline):
            await bench.push("k8s", ["a", "b"])
            await bench.push(("consul", "a"), 1)
            await bench.push(("consul", "b"), 2)
            assert bench.serial == 1

    run(main)


def test_watches_can_be_added_and_removed_from_outside_at_any_time() -> None:
    async def main() -> None:
        bench = Bench("a")
        bench.pipeline.want([Wanted("b")])
        async with running(bench.pipeline):
            assert bench.fake.started == ["b"]
            await bench.push("b", 1)
            bench.pipeline.want([Wanted("b"), Wanted("c")])
            await settle()
            await bench.push("c", 2)
            assert bench.picture == {"b": 1, "c": 2}
            bench.pipeline.want([Wanted("c")])
            await settle()
            assert bench.picture == {"c": 2}
        bench.pipeline.want([Wanted("z")])

    run(main)


def test_the_first_of_equal_specs_counts() -> None:
    async def main() -> None:
        bench = Bench(Wanted("a", required=False), Wanted("a"))
        async with running(bench.pipeline):
            assert bench.fake.started == ["a"]
            assert bench.serial == 1

    run(main)


def test_rapid_changes_of_derived_watches_end_with_none() -> None:
    async def main() -> None:
        bench = Bench("k8s", derive=services)
        async with running(bench.pipeline):
            for count in range(200):
                await bench.push("k8s", range(count % 50))
            await bench.push("k8s", [])
            assert bench.fake.running() == ["k8s"]
            assert len(asyncio.all_tasks()) == 3  # this one, the pipeline, one watch

    run(main)


def test_a_status_change_rings() -> None:
    async def main() -> None:
        bench = Bench("a")
        async with running(bench.pipeline):
            serial = bench.pipeline.status_changes.serial
            await bench.push("a", 1)
            await bench.pipeline.status_changes.after(serial)
            assert bench.pipeline.statuses()[0].state == "live"

    run(main)


def test_a_pipeline_that_stops_leaves_no_timer_and_no_open_generator() -> None:
    async def main() -> None:
        bench = Bench("a", Wanted("b", grace=10.0), derive=services)
        async with running(bench.pipeline):
            await bench.push("a", OSError())
        assert bench.clock.pending() == []
        assert bench.fake.running() == []
        gc.collect()

    run(main)


def test_restored_values_make_the_first_picture_at_once_and_go_one_by_one() -> None:
    async def main() -> None:
        bench = Bench("a", "b", restored={"a": Restored(1, 30.0), "b": Restored(2, 5.0), "gone": Restored(3, 1.0)})
        async with running(bench.pipeline):
            assert bench.picture == {"a": 1, "b": 2}
            await bench.push("a", Unavailable("away"))
            await bench.clock.advance(10)
            first, second = bench.pipeline.statuses()
            assert (first.restored, first.age(bench.clock.now()), first.state) == (True, 40.0, "failing")
            await bench.push("b", 4)
            assert bench.picture == {"a": 1, "b": 4}
            first, second = bench.pipeline.statuses()
            assert (first.restored, second.restored, second.age(bench.clock.now())) == (True, False, 0.0)

    run(main)
