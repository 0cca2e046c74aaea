"""The published snapshots as streams see them: the current one, each next one, silence, and the end.

Whoever publishes calls `advance`; thousands of streams wait on futures of their own, so a change costs each of them one
wake-up and nothing else. A stream that is busy when several snapshots go by sees only the last of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from wigwag.wire.rpc import Code, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from wigwag.serve.management.history import SnapshotHistory
    from wigwag.serve.snapshot import Snapshot

FOREVER = 86400.0
"""Seconds that nobody waits for."""
TIMEOUT = "stream closed due to server-side timeout"
NOT_YET = "there are no flags to hand out yet: not every required source has answered"
STOPPING = "stream closed because the server is stopping"
Step: TypeAlias = "tuple[Snapshot, Snapshot | None]"
"""(seen before, current): the same one twice when it is time for a sign of life, None for the current at the end."""


class Feed:
    """Snapshots, the latest first. There is always a current one; before the first is published it is the empty one."""

    def __init__(self, first: Snapshot, *, history: SnapshotHistory | None = None) -> None:
        self._snapshot, self.history = first, history
        self._closed = False
        self._waiters: set[asyncio.Future[None]] = set()

    def current(self) -> Snapshot:
        """Return the snapshot that a request works on."""
        return self._snapshot

    @property
    def published(self) -> bool:
        """Whether there has been anything to publish."""
        return self._snapshot.extent != "none"

    async def whole(self, patience: float) -> Snapshot:
        """Return the current snapshot; wait, but not for ever, until it has the flags of all required sources.

        Whoever takes a document for all there is would drop the flags that are missing from a part.
        """
        now = asyncio.get_running_loop().time
        end = now() + patience
        while self._snapshot.extent != "whole" and not self._closed:
            if now() >= end:
                raise RpcError(Code.UNAVAILABLE, NOT_YET)
            await self._wait(end)
        return self._snapshot

    def advance(self, snapshot: Snapshot) -> None:
        """Make this the current snapshot and wake whoever waits for it."""
        self._snapshot = snapshot
        if self.history is not None:
            self.history.add(snapshot)
        self._wake()

    def close(self) -> None:
        """Tell every stream that this is the end."""
        self._closed = True
        self._wake()

    async def over(self) -> None:
        """Wait for the end."""
        while not self._closed:
            await self._wait(asyncio.get_running_loop().time() + FOREVER)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            _settle(waiter)

    async def steps(self, since: Snapshot, silence: float = FOREVER, deadline: float = 0.0) -> AsyncGenerator[Step]:
        """Yield each step after a snapshot; after `silence` seconds a sign of life; `deadline` ends it with an error.

        Steps do not put the sign of life off: whoever selects other flags than those that change hears nothing of them.
        """
        now = asyncio.get_running_loop().time
        seen = since
        del since  # so that a stream holds on to the last snapshot it saw, not to the first
        due, end = now() + silence, now() + deadline if deadline else float("inf")
        while not self._closed:
            if self._snapshot is seen:
                await self._wait(min(due, end))
                if now() >= end:
                    raise RpcError(Code.DEADLINE_EXCEEDED, TIMEOUT)
            if not self._closed:
                due = now() + silence if self._snapshot is seen else due
                previous, seen = seen, self._snapshot
                yield previous, seen
                del previous  # or a quiet stream would keep it alive
        yield seen, None

    async def _wait(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at(until, _settle, waiter)
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)


def stopping() -> RpcError:
    """Return how streams end when the agent stops: providers in JavaScript never come back after one that ends well."""
    return RpcError(Code.UNAVAILABLE, STOPPING)


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
