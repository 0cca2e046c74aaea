"""Exactly one watcher for every wanted spec, started again when it fails or ends.

`Watches.want` is called with all that is wanted; it starts what is new and cancels what is no longer wanted, and never
waits for either: a watcher that is slow to close cannot hold up the others. How long to wait before the next attempt is
decided by `backoff`; a watcher that retries by itself says why.

The hard case is a watcher that raises `CancelledError` though nobody cancelled it (an inner task, a closed client): a
task group takes that for a normal end, and the watch would be gone without a log line. Here it is a failure like any
other. The opposite, a watcher that swallows its cancellation and goes on, is stopped at its next value.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import random
from typing import TYPE_CHECKING, Generic, TypeVar

from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import Clock, LoopClock, sleep_until
from wigwag.pipeline.limit import Burst, Limiter, unlimited
from wigwag.pipeline.spec import UNCHANGED, S, Unavailable, Unchanged, V, describe
from wigwag.pipeline.status import Status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from wigwag.pipeline.spec import Watcher

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchPolicy:
    """Back-off, clock, random numbers and limiter of all watches of a pipeline."""

    backoff: Backoff = field(default_factory=Backoff)
    clock: Clock = field(default_factory=LoopClock)
    random: Callable[[], float] = random
    limit: Callable[[], Limiter] = lambda: unlimited
    """Makes the limiter of a pipeline; limiters have state, so each pipeline has its own."""
    pause: float = 0.0
    """After a snapshot, the next one waits this many times as long as that one took to make and to hand out."""
    late: float = 0.0
    """Once the gate is open: how many seconds a snapshot waits for a watch that is wanted since then."""
    settle: Callable[[], Limiter] = lambda: Burst(20, 30.0)
    """Makes the limiter of changes that `derive` makes to its watches though no initial watch has changed."""


@asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close a stream at the end, if it is one that can be closed."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


async def first(items: AsyncIterator[V | Unavailable | Unchanged]) -> V | Unavailable | None:
    """Return the first value or `Unavailable` of a watcher, and close it; None if it ends before."""
    async with closing(items) as stream:
        async for item in stream:
            if not isinstance(item, Unchanged):
                return item
    return None


def stop_if_cancelled() -> None:
    """Raise `CancelledError` if this task was cancelled, even if something has swallowed the cancellation."""
    if _cancelled():  # the frame that raises must not refer to the task, which keeps the error: that is a cycle
        raise asyncio.CancelledError


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Watch(Generic[S, V]):
    """One spec, its watcher, and how that is doing."""

    def __init__(
        self,
        spec: S,
        watcher: Watcher[S, V],
        deliver: Callable[[S, V], None],
        status_changed: Callable[[], None],
        policy: WatchPolicy,
        age: float | None = None,
    ) -> None:
        self._watcher, self._deliver, self._status_changed, self._policy = watcher, deliver, status_changed, policy
        self._retry = Retry(policy.backoff, policy.random)
        now = policy.clock.now()
        self.status = Status(spec, now, confirmed=None if age is None else now - age)

    async def run(self) -> None:
        """Watch until cancelled."""
        clock = self._policy.clock
        try:
            while True:
                reason = await self._attempt()
                self._failed(reason)
                await sleep_until(clock, self._retry.next(clock.now()))
                self.status = self.status.again()
        finally:
            self._set_status(self.status.stopped(clock.now()))

    async def _attempt(self) -> str:
        """Run the watcher once; return why it ended."""
        reason = "the watch ended"
        try:
            async with closing(self._watcher(self.status.spec)) as stream:
                async for item in stream:
                    stop_if_cancelled()
                    self._take(item)
                    await asyncio.sleep(0)  # one that always has something to yield must not starve the others
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001 - it may fail in any way: that is its status
            reason = describe(error)
        stop_if_cancelled()
        return reason

    def _take(self, item: V | Unavailable | Unchanged) -> None:
        if isinstance(item, Unavailable):
            self._failed(item.reason)
            return
        now = self._policy.clock.now()
        self._retry.succeeded()
        if item is UNCHANGED:
            self._set_status(self.status.same(now))
            return
        self._set_status(self.status.good(now))
        self._deliver(self.status.spec, item)

    def _failed(self, reason: str) -> None:
        if self.status.state != "failing" or self.status.error != reason:
            log.warning("%s: %s", self.status.spec, reason)
        self._set_status(self.status.bad(reason, self._policy.clock.now()))

    def _set_status(self, status: Status[S]) -> None:
        before, self.status = self.status, status
        if (before.state, before.error) != (status.state, status.error):
            self._status_changed()


class Watches(Generic[S, V]):
    """The watches that are wanted, as children of a task group."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        watcher: Watcher[S, V],
        deliver: Callable[[S, V], None],
        status_changed: Callable[[], None],
        policy: WatchPolicy,
        ages: Mapping[S, float] | None = None,
    ) -> None:
        """`ages` has how old the values are that some watches begin with."""
        self._group, self._watcher, self._deliver = group, watcher, deliver
        self._status_changed, self._policy, self._ages = status_changed, policy, ages or {}
        self._running: dict[S, tuple[Watch[S, V], asyncio.Task[None]]] = {}

    def want(self, specs: Iterable[S]) -> None:
        """Watch exactly these."""
        before, self._running = self._running, {}
        for spec in specs:
            self._running[spec] = before.pop(spec) if spec in before else self._start(spec)
        for _, task in before.values():
            task.cancel()

    def statuses(self) -> tuple[Status[S], ...]:
        """Return how each wanted watch is doing, in the order in which they are wanted."""
        return tuple(watch.status for watch, _ in self._running.values())

    def _start(self, spec: S) -> tuple[Watch[S, V], asyncio.Task[None]]:
        watch = Watch(spec, self._watcher, self._deliver, self._status_changed, self._policy, self._ages.get(spec))
        return watch, self._group.create_task(watch.run(), name=f"watch {spec}")
