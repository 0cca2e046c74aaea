"""An event loop in which time passes only when nobody has anything to do, and threads work when the seed says so.

Everything that the product does with time goes through the loop (`LoopClock`, timeouts, the timers of streams), so the
product itself runs here, unchanged, a day in milliseconds and the same each time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOMENT = 1e-6
"""Seconds in which nothing is due, but everybody who has something to do gets to do it."""


class StuckError(AssertionError):
    """Nothing would ever happen again."""


class _Clockwork:
    """In the place of a selector: instead of waiting, it moves the time on."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise StuckError("everybody waits for somebody else")
        self._loop.now += max(timeout, 0.0)
        return []


class Job:
    """What was given to a thread, until it is done."""

    def __init__(self, future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        self._future, self._work, self.done = future, work, False

    def run(self) -> None:
        """Do it, as far as the loop can tell in one moment."""
        if self.done:
            return
        self.done = True
        try:
            result = self._work()
        except Exception as error:  # noqa: BLE001 - as an executor does
            if not self._future.done():
                self._future.set_exception(error)
        else:
            if not self._future.done():
                self._future.set_result(result)


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop without sockets and without waiting."""

    def __init__(self, takes: Callable[[Callable[..., Any]], float] = lambda work: 0.0) -> None:
        """`takes` says how many seconds a job of a thread takes."""
        super().__init__()
        self._selector = _Clockwork(self)
        self._clock_resolution = 1e-9
        self._takes = takes
        self.now = 1000.0
        self.jobs: list[Job] = []

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future: asyncio.Future[Any] = self.create_future()
        job = Job(future, lambda: func(*args))
        self.jobs = [known for known in self.jobs if not known.done] + [job]
        self.call_later(self._takes(func), job.run)
        return future

    def pending(self) -> list[Job]:
        """Return the jobs that are under way."""
        return [job for job in self.jobs if not job.done]

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""


async def settle() -> None:
    """Let everybody run until nobody has anything to do."""
    await asyncio.sleep(MOMENT)
