"""A clock and watchers that the test drives, so that the test chooses the order of events. Nothing waits for time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Hashable

    from wigwag.pipeline.run import Pipeline

T = TypeVar("T")


def run(main: Callable[[], Coroutine[Any, Any, T]], timeout: float = 60.0) -> T:
    """Run a test to its end, under a timeout, and see that it leaves no task behind."""

    async def body() -> T:
        async with asyncio.timeout(timeout):
            result = await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(body())


async def settle(turns: int = 40) -> None:
    """Let everybody run until nobody has anything to do."""
    for _ in range(turns):
        await asyncio.sleep(0)


class FakeTimer:
    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when, self.callback, self.over = when, callback, False

    def cancel(self) -> None:
        self.over = True


class FakeClock:
    """Time stands still until the test moves it."""

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self._timers: list[FakeTimer] = []

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], object]) -> FakeTimer:
        timer = FakeTimer(when, callback)
        self._timers.append(timer)
        return timer

    def pending(self) -> list[float]:
        """Return how far ahead the timers are that will ring."""
        self._timers = sorted((timer for timer in self._timers if not timer.over), key=lambda timer: timer.when)
        return [timer.when - self._now for timer in self._timers]

    async def advance(self, seconds: float) -> None:
        """Move the time on, ringing the timers on the way one after the other."""
        end = self._now + seconds
        await settle()
        while self.pending() and self._timers[0].when <= end:
            timer = self._timers[0]
            timer.over = True
            self._now = max(self._now, timer.when)
            timer.callback()
            await settle()
        self._now = end
        await settle()


class FakeWatcher:
    """Watchers that yield, raise or end when the test says so."""

    def __init__(self) -> None:
        self.started: list[Hashable] = []
        self.stopped: list[Hashable] = []
        self._inboxes: dict[Hashable, asyncio.Queue[Any]] = defaultdict(asyncio.Queue)

    async def push(self, spec: Hashable, *items: object) -> None:
        """Have the watcher of a spec yield items; an exception it raises, and at `StopAsyncIteration` it ends."""
        for item in items:
            self._inboxes[spec].put_nowait(item)
        await settle()

    async def watch(self, spec: Any) -> AsyncIterator[Any]:
        self.started.append(spec)
        try:
            while True:
                item = await self._inboxes[spec].get()
                if item is StopAsyncIteration:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self.stopped.append(spec)

    def running(self) -> list[Hashable]:
        left = list(self.started)
        for spec in self.stopped:
            left.remove(spec)
        return sorted(left, key=str)


@asynccontextmanager
async def running(pipeline: Pipeline[Any, Any, Any]) -> AsyncIterator[None]:
    """Run a pipeline beside the test, and stop it by cancelling, as a face does."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pipeline.run())
        await settle()
        yield
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
