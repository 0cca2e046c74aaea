"""The order in which new values are parsed: urgent ones at once, ordinary ones one after the other.

    urgent   ──────────────────────────────▶ parse
    ordinary ──▶ queue ──▶ one per turn of the loop, or two in threads if they are large ──▶ parse

Many sources that change at the same moment would keep the loop busy until all of them are parsed. Here the loop looks
for other events after each: an urgent value that arrives meanwhile waits for one ordinary value, not for all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
LARGE_AT_ONCE = 2
"""Large ordinary values that are parsed at the same time: threads share one interpreter, and the rest are kept free."""


class ParseLanes:
    """Decides when a value is parsed. One for all watches of a pipeline."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._moving = False
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def parse(self, job: Callable[[], T], *, urgent: bool, large: bool) -> T:
        """Run a job: in a thread if it is large; at once if it is urgent, otherwise when it is its turn."""
        if urgent:
            return await asyncio.to_thread(job) if large else job()
        if large:
            async with self._large:
                return await asyncio.to_thread(job)
        await self._turn()
        return job()

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        if not self._moving:
            self._moving = True
            loop.call_soon(self._move)
        await waiter

    def _move(self) -> None:
        """Let the next one go; those that were cancelled meanwhile are passed over."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break
        self._moving = bool(self._waiting)
        if self._moving:
            asyncio.get_running_loop().call_soon(self._move)
