"""The work queue: no key is lost, and no key is in two workers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.fakes import FakeClock, run, settle
from wigwag.kube.control.queue import KeyQueue, WorkQueue
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.limit import Burst, Interval, Limiter, unlimited

KEYS = st.sampled_from("abc")


@dataclass
class QueueModel:
    """The queue, and beside it what it owes: keys that were added and not taken since, and when the delayed come."""

    queue: KeyQueue[str]
    now: float = 0.0
    owed: set[str] = field(default_factory=set)
    due: dict[str, float] = field(default_factory=dict)
    in_work: set[str] = field(default_factory=set)

    def add(self, key: str, _: float) -> None:
        self.queue.add(key)
        self.owed.add(key)

    def add_at(self, key: str, seconds: float) -> None:
        self.queue.add_at(key, self.now + seconds)
        self.due[key] = min(self.now + seconds, self.due.get(key, math.inf))

    def retry(self, key: str, seconds: float) -> None:
        when = self.queue.retry(key, self.now, seconds)
        assert when >= self.now + seconds
        self.due[key] = min(when, self.due.get(key, math.inf))

    def take(self, _: str = "", __: float = 0.0) -> bool:
        for key in [key for key, when in self.due.items() if when <= self.now]:
            del self.due[key]
            self.owed.add(key)
        taken = self.queue.take(self.now)
        if taken is None:
            return False
        assert taken in self.owed - self.in_work
        self.owed.remove(taken)
        self.in_work.add(taken)
        return True

    def finish(self, key: str, _: float = 0.0) -> None:
        if key in self.in_work:
            self.in_work.remove(key)
            self.queue.finish(key)

    def wait(self, _: str, seconds: float) -> None:
        self.now += seconds


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "add_at", "retry", "take", "finish", "wait"]), KEYS, st.floats(0, 3)),
        max_size=60,
    ),
    st.sampled_from([lambda: unlimited, lambda: Burst(2, 1.0), lambda: Interval(0.7)]),
)
def test_every_key_is_taken_after_it_was_added_and_never_while_it_is_in_work(
    steps: list[tuple[str, str, float]], limiter: Callable[[], Limiter]
) -> None:
    model = QueueModel(KeyQueue(Backoff(first=1.0, most=4.0), lambda: 0.5, limiter()))
    for what, key, seconds in steps:
        getattr(model, what)(key, seconds)
    for _ in range(100):
        for key in list(model.in_work):
            model.finish(key)
        if not model.take():
            model.now = max(model.now, min(model.queue.next_at(), model.now + 100.0))
    assert (model.owed, model.due) == (set(), {})
    assert len(model.queue) == model.queue.delayed == model.queue.in_work == 0


def test_keys_are_taken_in_order_and_once() -> None:
    queue = KeyQueue[str]()
    for key in "abcab":
        queue.add(key)
    assert [queue.take(0.0) for _ in range(4)] == ["a", "b", "c", None]


def test_groups_take_turns_and_each_keeps_its_order() -> None:
    queue = KeyQueue[tuple[str, int]](group=lambda key: key[0])
    for number in range(3):
        queue.add(("mallory", number))
    queue.add(("alice", 0))
    queue.add(("mallory", 3))
    assert len(queue) == 5
    taken = [queue.take(0.0) for _ in range(3)]
    assert taken == [("mallory", 0), ("alice", 0), ("mallory", 1)]
    queue.add(("alice", 1))
    queue.finish(("alice", 0))
    assert [queue.take(0.0) for _ in range(4)] == [("mallory", 2), ("alice", 1), ("mallory", 3), None]


def test_of_several_times_the_earliest_counts() -> None:
    queue = KeyQueue[str]()
    for when in (5.0, 3.0, 4.0):
        queue.add_at("a", when)
    assert (queue.next_at(), queue.take(2.9), queue.take(3.0)) == (3.0, None, "a")
    queue.finish("a")
    assert queue.take(100.0) is None


def test_back_off_grows_by_key_and_is_forgotten_after_a_success() -> None:
    queue = KeyQueue[str](Backoff(first=1.0, most=8.0), lambda: 1.0)
    assert [queue.retry("a", 0.0) for _ in range(3)] == [1.0, 2.0, 4.0]
    assert queue.retry("b", 0.0) == 1.0
    queue.forget("a")
    assert queue.retry("a", 0.0) == 1.0


def test_the_limiter_paces_the_keys_and_loses_none() -> None:
    queue = KeyQueue[int](limit=Burst(2, 1.0))
    for key in range(4):
        queue.add(key)
    assert [queue.take(0.0) for _ in range(3)] == [0, 1, None]
    assert (queue.next_at(), queue.take(0.5), queue.take(1.0), queue.take(1.5)) == (1.0, None, 2, None)
    assert queue.take(queue.next_at()) == 3


@given(
    st.lists(st.tuples(st.floats(0, 2), st.integers(0, 3)), max_size=20),
    st.lists(st.floats(0, 1.5), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_workers_never_share_a_key_and_see_every_addition(
    additions: list[tuple[float, int]], durations: list[float], workers: int
) -> None:
    async def main() -> None:
        clock = FakeClock()
        queue = WorkQueue[int](clock=clock)
        busy: set[int] = set()
        unseen: set[int] = set()

        async def work(turn: int) -> None:
            while True:
                async with queue.next() as key:
                    assert key not in busy
                    unseen.discard(key)
                    busy.add(key)
                    turn += 1
                    await sleep_until(clock, clock.now() + durations[turn % len(durations)])
                    busy.remove(key)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work(number)) for number in range(workers)]
            for pause, key in additions:
                await clock.advance(pause)
                unseen.add(key)
                queue.add(key)
            await clock.advance(100.0)
            assert (busy, unseen) == (set(), set())
            for task in tasks:
                task.cancel()

    run(main)


def test_a_delayed_key_wakes_a_worker_that_waits() -> None:
    async def main() -> None:
        clock = FakeClock()
        queue = WorkQueue[str](KeyQueue(Backoff(first=4.0), lambda: 1.0), clock)
        async with asyncio.TaskGroup() as group:
            for begin, seconds in ((lambda: queue.add_after("a", 2.0), 2.0), (lambda: queue.retry("a"), 4.0)):
                taken = group.create_task(next_key(queue))
                await settle()
                begin()
                await clock.advance(seconds - 0.1)
                assert not taken.done()
                await clock.advance(0.2)
                assert taken.result() == "a"

    run(main)


def test_a_key_added_while_in_work_is_worked_on_again() -> None:
    async def main() -> None:
        queue = WorkQueue[str](clock=FakeClock())
        queue.add("a")
        async with asyncio.TaskGroup() as group, queue.next():
            queue.add("a")
            second = group.create_task(next_key(queue))
            await settle()
            assert not second.done()
        assert second.result() == "a"

    run(main)


def test_a_key_whose_worker_is_cancelled_is_not_lost() -> None:
    async def main() -> None:
        queue = WorkQueue[str](clock=FakeClock())
        queue.add("a")

        async def work() -> None:
            async with queue.next():
                await asyncio.Event().wait()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(work())
            await settle()
            task.cancel()
        assert await next_key(queue) == "a"

    run(main)


async def next_key(queue: WorkQueue[str]) -> str:
    async with queue.next() as key:
        return key


def test_an_urgent_key_is_taken_first_and_without_asking_the_limiter() -> None:
    queue = KeyQueue[str](limit=Interval(10.0))
    for key in "abc":
        queue.add(key)
    assert queue.take(0.0) == "a"
    queue.add("c", urgent=True)
    queue.add("u", urgent=True)
    queue.add("u")
    assert [queue.take(1.0), queue.take(1.0), queue.take(1.0)] == ["c", "u", None]
    assert queue.take(10.0) == "b"


def test_an_urgent_key_that_is_in_work_or_has_failed_stays_urgent() -> None:
    queue = KeyQueue[str](random=lambda: 1.0)
    queue.add("u")
    assert queue.take(0.0) == "u"
    queue.add("u", urgent=True)
    queue.add("a")
    assert queue.take(0.0, urgent_only=True) is None, "one key is in one worker at a time"
    queue.finish("u")
    assert queue.take(0.0, urgent_only=True) == "u"
    when = queue.retry("u", 0.0)
    queue.finish("u")
    assert queue.take(0.0, urgent_only=True) is None
    assert queue.next_at(urgent_only=True) == when
    assert queue.take(when) == "u", "though another one is ready for longer"
    queue.forget("u")
    queue.retry("u", when)
    queue.finish("u")
    assert [queue.take(when + 60), queue.take(when + 60)] == ["a", "u"]


def test_a_worker_for_urgent_keys_leaves_the_others_alone() -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        queue.add("a")

        async def first() -> str:
            async with queue.next(urgent_only=True) as key:
                return key

        async with asyncio.TaskGroup() as group:
            worker = group.create_task(first())
            await settle()
            assert not worker.done()
            queue.add("u", urgent=True)
        assert worker.result() == "u"
        async with queue.next() as key:
            assert key == "a"

    run(main)
