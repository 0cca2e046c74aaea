"""Time as an argument: a clock tells the time and calls back; waiting is built on that.

`call_at` and not `sleep` is the seam: a wait that may end early, by an event, then needs no task of its own, and a
test's clock is a sorted list. Times are seconds of a monotonic clock; ages are differences of them.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Timer(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None:
        """Forget the call. A second time, or after the call, this does nothing."""


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> float:
        """Return the time in seconds. It never goes backwards."""
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call back at a time, in the loop, not before this returns."""
        ...


class LoopClock:
    """The clock of the running loop."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_at(when, callback)


async def sleep_until(clock: Clock, when: float) -> None:
    """Wait until a time. Loops round their timers, so it looks again; it always lets others run."""
    await asyncio.sleep(0)
    while clock.now() < when:
        await wait_event(clock, asyncio.Event(), when)


async def wait_event(clock: Clock, event: asyncio.Event, until: float) -> None:
    """Wait for an event, or until about a time, and clear the event."""
    timer = clock.call_at(until, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
    event.clear()


@asynccontextmanager
async def deadline(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Raise `TimeoutError` after so many seconds of the clock."""
    async with asyncio.timeout(None) as timeout:
        timer = clock.call_at(clock.now() + seconds, lambda: timeout.reschedule(-1.0))
        try:
            yield
        finally:
            timer.cancel()
