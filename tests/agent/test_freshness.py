"""When flags are called stale, and when they no longer are."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import wigwag
from tests.pipeline.fakes import FakeClock, FakeWatcher, run, settle
from wigwag.agent.assemble import assembler
from wigwag.agent.freshness import Freshness, stale, too_strict
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import UNCHANGED, Restored, Unavailable, Wanted
from wigwag.pipeline.status import Status
from wigwag.pipeline.watch import WatchPolicy
from wigwag.serve.management.metrics import Metrics
from wigwag.serve.resolve import AGE, SNAPSHOT, Resolver
from wigwag.sources.source import Source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wigwag.agent.facts import Value
    from wigwag.flags.flagset import FlagSet
    from wigwag.serve.snapshot import Snapshot

LOW, HIGH = Source("low", "file", 0), Source("high", "file", 1)
RULE = {"if": [{"==": [{"var": "tier"}, "gold"]}, "off"]}


def flags(source: str, *keys: str, **more: Any) -> FlagSet:
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on", **more}
    return wigwag.load({"flags": dict.fromkeys(keys, flag)}, source=source)


class Bench:
    def __init__(self, limit: float = 0.0, restored: dict[Source, Restored[FlagSet]] | None = None) -> None:
        self.clock, self.fake = FakeClock(), FakeWatcher()
        self.pipeline: Pipeline[Source, Value, Snapshot] = Pipeline(
            [Wanted(LOW), Wanted(HIGH)],
            self.fake.watch,
            assembler(lambda: 0.0),
            policy=WatchPolicy(clock=self.clock, random=lambda: 1.0),
            restored=restored,
        )
        self.freshness = Freshness(self.pipeline, self.clock, limit)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.pipeline.run()), group.create_task(self.freshness.run())]
            await settle()
            yield
            for task in tasks:
                task.cancel()

    def reason(self, key: str, *, metadata: bool = False, **context: Any) -> tuple[str, dict[str, Any]]:
        snapshot = self.pipeline.published.value
        assert snapshot is not None
        resolver = Resolver(Metrics(), self.freshness, metadata=metadata)
        found = resolver.resolve(snapshot, snapshot.flags, key, None, context)
        return found.reason, found.metadata


def test_without_a_limit_only_what_was_restored_is_stale() -> None:
    old = Status(LOW, 0.0, confirmed=1.0, values=1)
    assert stale([old], 1e9, 0.0)[0] == frozenset()
    assert stale([Status(LOW, 0.0, confirmed=1.0)], 2.0, 0.0)[0] == {LOW}
    assert stale([Status(LOW, 0.0)], 1e9, 1.0)[0] == frozenset()  # nothing is not old


@pytest.mark.parametrize(("age", "expected", "pause"), [(9.0, frozenset(), 1.0), (10.5, frozenset({LOW}), 0.5)])
def test_the_limit_decides_and_tells_when_to_look_again(age: float, expected: frozenset[Source], pause: float) -> None:
    status = Status(LOW, 0.0, confirmed=0.0, values=1)
    assert stale([status], age, 10.0) == (expected, pause)


def test_a_limit_that_calls_a_healthy_source_stale_is_told_at_start() -> None:
    stream = Source("host:1", "grpc")
    assert [remark.partition(":")[0] for remark in too_strict([LOW, stream], 10.0)] == ["source host"]
    assert not list(too_strict([LOW, stream], 0.0))
    assert not list(too_strict([LOW, stream], 60.0))


def test_flags_of_a_silent_source_become_stale_and_fresh_again_while_others_do_not() -> None:
    async def main() -> None:
        bench = Bench(limit=10.0)
        async with bench.running():
            await bench.fake.push(LOW, flags("low", "a", "b", targeting=RULE))
            await bench.fake.push(HIGH, flags("high", "b"))
            assert bench.reason("a") == ("DEFAULT", {})
            await bench.fake.push(LOW, Unavailable("away"))
            for _ in range(4):
                await bench.clock.advance(3)
                await bench.fake.push(HIGH, UNCHANGED)
            assert bench.freshness.stale == {LOW}
            assert bench.reason("a") == ("STALE", {})
            assert bench.reason("a", tier="gold")[0] == "STALE"
            assert bench.reason("b")[0] == "STATIC"  # it is high's now
            assert bench.reason("nothing")[0] == "ERROR"
            await bench.fake.push(LOW, UNCHANGED)
            assert bench.reason("a")[0] == "DEFAULT"

    run(main)


def test_a_live_source_that_is_late_is_stale_until_it_is_heard_of() -> None:
    async def main() -> None:
        bench = Bench(limit=10.0)
        async with bench.running():
            await bench.fake.push(LOW, flags("low", "a"))
            await bench.fake.push(HIGH, flags("high", "b"))
            await bench.clock.advance(10.2)
            assert bench.freshness.stale == {LOW, HIGH}
            await bench.fake.push(LOW, UNCHANGED)  # its state does not change by that
            await bench.clock.advance(0.6)
            assert bench.freshness.stale == {HIGH}

    run(main)


def test_restored_flags_are_stale_until_their_source_answers() -> None:
    async def main() -> None:
        bench = Bench(restored={LOW: Restored(flags("low", "a"), 100.0), HIGH: Restored(flags("high", "b"), 7.0)})
        async with bench.running():
            assert bench.reason("a") == bench.reason("b") == ("STALE", {})
            await bench.fake.push(HIGH, flags("high", "b"))
            assert (bench.reason("a")[0], bench.reason("b")[0]) == ("STALE", "STATIC")

    run(main)


def test_answers_tell_the_snapshot_and_its_age_if_asked() -> None:
    async def main() -> None:
        bench = Bench(restored={LOW: Restored(flags("low", "a"), 100.0), HIGH: Restored(flags("high", "b"), 7.0)})
        async with bench.running():
            snapshot = bench.pipeline.published.value
            assert snapshot is not None
            await bench.clock.advance(0.5)
            assert bench.reason("a", metadata=True) == ("STALE", {SNAPSHOT: snapshot.id, AGE: 100.5})
            assert bench.reason("b", metadata=True) == ("STALE", {SNAPSHOT: snapshot.id, AGE: 7.5})
            assert bench.reason("nothing", metadata=True) == ("ERROR", {SNAPSHOT: snapshot.id})

    run(main)
