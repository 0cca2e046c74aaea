"""Notify hooks: one at a time, in order, the newest next, and what happens when one fails."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.fakes import FakeClock, run, settle
from tests.watt.driven import Driven, Numbered, Published
from tests.watt.processes import marker, run_on, until
from tests.watt.receiver import receiving
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.clock import LoopClock, sleep_until
from wigwag.watt.hooks.hook import Hook, HookError, parse_hook


def test_hooks_get_a_snapshot_one_after_the_other() -> None:
    async def main() -> None:
        first, second = Driven(), Driven()
        published = Published(first.hook(), second.hook())
        async with published.running():
            assert first.calls == []
            await published.publish()
            assert (first.calls, second.calls) == ([1], [])
            await first.end()
            assert (first.calls, second.calls) == ([1], [1])
            await second.end()
            await settle()
            assert (first.calls, second.calls) == ([1], [1])

    run(main)


def test_a_snapshot_from_before_the_start_counts() -> None:
    async def main() -> None:
        hook = Driven()
        published = Published(hook.hook())
        await published.publish()
        async with published.running():
            assert hook.calls == [1]
            await hook.end()

    run(main)


def test_the_newest_is_next_and_those_in_between_are_left_out() -> None:
    async def main() -> None:
        hook = Driven()
        published = Published(hook.hook())
        async with published.running():
            for _ in range(5):
                await published.publish()
            assert hook.calls == [1]
            await hook.end()
            assert hook.calls == [1, 5]
            await hook.end()
            assert hook.calls == [1, 5]

    run(main)


def test_all_hooks_of_a_set_get_one_snapshot_though_there_is_a_newer_one() -> None:
    async def main() -> None:
        first, second = Driven(), Driven()
        published = Published(first.hook(), second.hook())
        async with published.running():
            await published.publish()
            await published.publish()
            await first.end()
            assert (first.calls, second.calls) == ([1], [1])
            await second.end()
            assert (first.calls, second.calls) == ([1, 2], [1])
            await first.end()
            await second.end()

    run(main)


def test_equal_content_is_not_sent_again_unless_asked_for() -> None:
    async def main() -> None:
        hook = Driven()
        published = Published(hook.hook())
        async with published.running():
            await published.publish("same")
            await published.publish("same")
            await hook.end()
            await published.publish("same")
            assert hook.calls == [1]
            published.notify.resync()
            await settle()
            assert hook.calls == [1, 3]
            published.notify.resync()
            await hook.end()
            assert hook.calls == [1, 3, 3]
            await hook.end()
            assert hook.calls == [1, 3, 3]

    run(main)


def test_a_hook_that_fails_is_called_again_after_a_pause_with_the_newest() -> None:
    async def main() -> None:
        first, second = Driven(), Driven()
        published = Published(first.hook(), second.hook(), backoff=Backoff(first=1.0))
        async with published.running():
            await published.publish()
            await first.end(ValueError("no"))
            assert not published.notify.ready
            for _ in range(3):
                await published.publish()
            await published.clock.advance(0.9)
            assert (first.calls, second.calls) == ([1], [])
            await published.clock.advance(0.1)
            assert (first.calls, second.calls) == ([1, 4], [])
            await first.end(ValueError("no"))
            await published.clock.advance(1.9)
            assert first.calls == [1, 4]
            await published.clock.advance(0.1)
            await first.end()
            assert (first.calls, second.calls) == ([1, 4, 4], [4])
            await second.end()
            assert published.notify.ready

    run(main)


def test_after_a_failure_hooks_in_front_get_a_newer_snapshot_first() -> None:
    async def main() -> None:
        first, second = Driven(), Driven()
        published = Published(first.hook(), second.hook(), backoff=Backoff(first=1.0))
        async with published.running():
            await published.publish()
            await first.end()
            await second.end(ValueError("no"))
            await published.clock.advance(1.0)
            assert (first.calls, second.calls) == ([1], [1, 1])  # nothing newer: the same hook again
            await second.end(ValueError("no"))
            await published.publish()
            await published.clock.advance(2.0)
            assert (first.calls, second.calls) == ([1, 2], [1, 1])
            await first.end()
            assert second.calls == [1, 1, 2]
            await second.end()

    run(main)


def test_content_that_comes_back_after_a_failure_is_sent_again() -> None:
    async def main() -> None:
        hook = Driven()
        published = Published(hook.hook())
        async with published.running():
            await published.publish("a")
            await hook.end()
            await published.publish("b")
            await published.publish("a")
            await hook.end(ValueError("halfway"))
            await published.clock.advance(1.0)
            assert hook.calls == [1, 2, 3]
            await hook.end()

    run(main)


def test_a_resync_before_the_first_snapshot_waits_for_it() -> None:
    async def main() -> None:
        hook = Driven()
        published = Published(hook.hook())
        published.notify.resync()
        async with published.running():
            published.notify.resync()
            await published.publish()
            assert hook.calls == [1]
            await hook.end()
            assert hook.calls == [1]

    run(main)


def test_a_resync_ends_the_pause() -> None:
    async def main() -> None:
        hook = Driven()
        published = Published(hook.hook(), backoff=Backoff(first=30.0))
        async with published.running():
            await published.publish()
            await hook.end(ValueError("no"))
            published.notify.resync()
            await settle()
            assert hook.calls == [1, 1]
            await hook.end()

    run(main)


def test_with_skip_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        first, second = Driven("first"), Driven("second")
        published = Published(first.hook(on_failure="skip"), second.hook())
        async with published.running():
            await published.publish()
            await first.end(ValueError("no"))
            assert (first.calls, second.calls, published.notify.ready) == ([1], [1], True)
            await second.end()
            await published.clock.advance(600.0)
            assert first.calls == [1]
            await published.publish()
            await first.end()
            await second.end()
            assert published.notify.ready

    run(main)
    assert caplog.messages == [
        "the hook first: it raised ValueError: no; snapshot 1, which it does not get again: the others go on"
    ]


def test_with_fatal_the_error_is_raised() -> None:
    async def main() -> None:
        hook = Driven("reload")
        published = Published(hook.hook(on_failure="fatal"))
        await published.publish()
        with pytest.raises(HookError, match="the hook reload: it raised ValueError: no") as caught:  # noqa: PT012
            async with asyncio.TaskGroup() as group:
                task = group.create_task(asyncio.wait_for(caught_of(published), 10))
                await settle()
                await hook.end(ValueError("no"))
            raise await task
        assert caught.value.exit_code == 1

    async def caught_of(published: Published) -> HookError:
        try:
            await published.notify.run()
        except HookError as error:
            return error
        raise AssertionError

    run(main)


def test_the_statuses_tell_how_it_went() -> None:
    async def main() -> None:
        hook = Driven("reload")
        published = Published(hook.hook(), backoff=Backoff(first=1.0))
        async with published.running():
            (status,) = published.notify.statuses()
            assert (status.name, status.state, status.runs) == ("reload", "never run", 0)
            assert published.notify.ready
            await published.publish()
            await published.clock.advance(3.0)
            assert published.notify.statuses()[0].running_since == 1000.0
            await hook.end()
            (status,) = published.notify.statuses()
            assert (status.state, status.last_ok, status.seconds, status.running_since) == ("ok", 1, 3.0, None)
            await published.publish()
            await hook.end(ValueError("no"))
            (status,) = published.notify.statuses()
            assert (status.state, status.last_ok, status.error) == ("degraded", 1, "it raised ValueError: no")
            assert (status.runs, status.failures, status.since) == (2, 1, 1003.0)
            await published.clock.advance(1.0)
            await hook.end()
            (status,) = published.notify.statuses()
            assert (status.state, status.last_ok, status.error, status.runs) == ("ok", 2, None, 3)

    run(main)


def test_sets_do_not_wait_for_each_other() -> None:
    async def main() -> None:
        slow, quick = Driven(), Driven()
        one = Published(slow.hook())
        two = Published(quick.hook(), clock=one.clock)
        async with one.running(), two.running():
            for published in (one, two):
                await published.publish()
            await quick.end()
            await two.publish()
            assert (slow.calls, quick.calls) == ([1], [1, 2])
            await quick.end()
            await slow.end()

    run(main)


@pytest.mark.parametrize("seconds", [2.0, 100.0])
def test_at_shutdown_a_running_hook_has_some_time_to_end(seconds: float) -> None:
    clock, ended = FakeClock(), []

    async def work(snapshot: Any) -> None:
        try:
            await sleep_until(clock, clock.now() + seconds)
            ended.append("done")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def main() -> None:
        published = Published(Hook(work, "test"), Hook(work, "never"), clock=clock, grace=5.0)
        async with published.running() as task:
            await published.publish()
            task.cancel()
            await clock.advance(1.0)
            assert not task.done()
            await clock.advance(4.0)
            assert task.done()

    run(main)
    assert ended == ["done" if seconds < 5.0 else "cancelled"]


def test_a_second_cancellation_ends_the_hook_at_once() -> None:
    async def main() -> None:
        hook = Driven()
        published = Published(hook.hook())
        async with published.running() as task:
            await published.publish()
            task.cancel()
            await settle()
            assert not task.done()
            task.cancel()
            await settle()
            assert task.done()
            assert hook.running == []
            assert published.notify.statuses()[0].running_since is None

    run(main)


def test_a_command_gets_the_url_as_its_last_argument_and_the_rest_by_environment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        hook = parse_hook(
            'echo "$WATT_SNAPSHOT_ID $WATT_SNAPSHOT_URL $WATT_SNAPSHOT_DIGEST $WATT_INITIAL"', name="echo"
        )
        published = Published(hook)
        async with published.running():
            for number in (1, 2):
                await published.publish()
                await until(lambda: published.notify.statuses()[0].last_ok == number)  # noqa: B023

    run(main)
    assert caplog.messages == [
        "hook echo: 1 http://h/1 digest1 1 http://h/1",
        "hook echo: 2 http://h/2 digest2 0 http://h/2",
    ]


def test_a_url_gets_a_small_document() -> None:
    async def main() -> None:
        async with receiving() as received:
            published = Published(parse_hook(received.url))
            async with published.running():
                received.answer = b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"
                await published.publish(complete=False)
                await until(lambda: published.notify.statuses()[0].failures)
                received.answer = b"HTTP/1.1 204 No Content\r\n\r\n"
                await published.clock.advance(1.0)
                await until(lambda: published.notify.statuses()[0].last_ok)
                await published.publish()
                await until(lambda: published.notify.statuses()[0].last_ok == 2)
        first = {"id": 1, "url": "http://h/1", "digest": "digest1", "complete": False, "initial": True}
        second = {"id": 2, "url": "http://h/2", "digest": "digest2", "complete": True, "initial": False}
        assert [msgspec.json.decode(body) for body in received.bodies] == [first, first, second]
        assert ["X-Snapshot-Id: 1" in head for head in received.heads] == [True, True, False]

    run(main)


@st.composite
def schedules(draw: st.DrawFn) -> Any:
    """Hooks with their policy, what each call does, and when snapshots are published."""
    policies = draw(st.lists(st.sampled_from(["retry", "skip"]), min_size=1, max_size=3))
    outcomes = draw(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=12))
    events = draw(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["a", "b", "c", "resync"])), max_size=15))
    return policies, outcomes, events


class Witness:
    """Hooks that take their time and fail as a schedule says, and what they saw."""

    def __init__(self, policies: Any, outcomes: Any) -> None:
        self.clock = FakeClock()
        self.policies, self._outcomes = policies, iter(outcomes)
        self.hooks = [Hook(self._call(place), f"hook{place}", on_failure=each) for place, each in enumerate(policies)]
        self.calls: list[list[tuple[Numbered, bool]]] = [[] for _ in policies]
        self.running = 0
        self.wrong: list[object] = []

    def _call(self, place: int) -> Any:
        async def call(snapshot: Numbered) -> None:
            if self.running:
                self.wrong.append("overlap")
            if place and self.calls[place - 1][-1][0].digest != snapshot.digest:
                self.wrong.append("order")  # whoever is in front has seen it, well or not
            self.running += 1
            seconds, ok = next(self._outcomes, (1, True))
            self.calls[place].append((snapshot, ok))
            await sleep_until(self.clock, self.clock.now() + seconds)
            self.running -= 1
            if not ok:
                raise ValueError("no")

        return call

    def check(self, newest: Numbered | None, resyncs: int) -> None:
        """See that each hook ended on the newest, never went back, and was not called without need."""
        assert self.wrong == []
        for policy, calls in zip(self.policies, self.calls, strict=True):
            ids = [snapshot.id for snapshot, _ in calls]
            assert ids == sorted(ids)
            assert (calls[-1][0].digest if calls else None) == (newest.digest if newest else None)
            assert not calls or calls[-1][1] or policy == "skip"
            again = [old for (old, ok), (new, _) in pairwise(calls) if ok and old.digest == new.digest]
            assert len(again) <= resyncs


@settings(max_examples=100)
@given(schedules())
def test_hooks_never_overlap_and_end_on_the_newest_under_random_timing(schedule: Any) -> None:
    policies, outcomes, events = schedule

    async def main() -> None:
        witness = Witness(policies, outcomes)
        published = Published(*witness.hooks, clock=witness.clock)
        async with published.running() as task:
            for seconds, event in events:
                await witness.clock.advance(seconds)
                if event == "resync":
                    published.notify.resync()
                else:
                    await published.publish(event)
            await witness.clock.advance(1000.0)
            assert not task.done()
        witness.check(published.broadcast.value, sum(event == "resync" for _, event in events))

    run(main)


SCRIPT = """
mkdir {lock} || echo overlap >> {log}
echo "$WATT_SNAPSHOT_ID" >> {log}
sleep 0.0$(( $$ % 4 ))
rmdir {lock}
"""


def test_real_commands_do_not_overlap_either(tmp_path: Path) -> None:
    log = tmp_path / "log"
    hook = parse_hook(f"sh -c '{SCRIPT.format(lock=tmp_path / 'lock', log=log)}'", name="test")

    async def main() -> None:
        published = Published(hook, hook, clock=LoopClock())  # type: ignore[arg-type]
        random, clock = Random(3), LoopClock()
        async with published.running():
            for _ in range(40):
                await published.publish()
                await sleep_until(clock, clock.now() + random.random() * 0.02)
            await until(lambda: published.notify.statuses()[1].last_ok == 40)

    run_on("uvloop", main)
    lines = log.read_text().split()
    assert lines == [number for number in dict.fromkeys(lines) for _ in range(2)]
    assert lines[-1] == "40"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_cancelled_at_any_moment_no_command_is_left(loop: str) -> None:
    async def main() -> None:
        random, clock = Random(11), LoopClock()
        for _ in range(15):
            text = random.choice(["sleep 60 & sleep 60;:", "trap '' TERM; sleep 60; sleep 60;:", "true;:"])
            hook = parse_hook(text, name="test")
            published = Published(hook, clock=clock, grace=0.1, environment=environment)  # type: ignore[arg-type]
            await published.publish()
            async with published.running() as task:
                await sleep_until(clock, clock.now() + random.random() * 0.03)
                task.cancel()
                if random.random() < 0.5:
                    await asyncio.sleep(0)
                    task.cancel()

    with marker("notify") as environment:
        run_on(loop, main)
