"""What open streams are allowed: each permission is reviewed again while it is in use, and its streams end with it.

    admit ─▶ Permission (one per token and target) ─▶ review, every few minutes ─▶ still allowed: again later
                 │                                       ├─▶ refused: its streams end with that error
                 ▼                                       └─▶ the API server cannot be asked: streams go on, retry
              streams

When a token expires, or a service account or a role binding is deleted, the proxy is not notified. So it asks. Streams
with the same token and target share a permission and therefore a review. The time of each review has jitter, so that
the reviews of streams that were opened together spread out. A permission is forgotten with its last stream.

A token is held in memory for as long as one of its streams is open, because a review needs it. It is in no log.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from random import random
from typing import TYPE_CHECKING, Protocol

from wigwag.errors import WigwagError
from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import Clock, LoopClock
from wigwag.wire.rpc import Code, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.pipeline.clock import Timer
    from wigwag.proxy.shares import NamespaceShares
    from wigwag.sources.source import Source
    from wigwag.wire.server.broadcast import BroadcastStream, Guard

OUTAGE = Backoff(first=5.0, most=60.0)
"""How a review is retried if the API server cannot be asked."""
log = logging.getLogger("wigwag.proxy")


class Reviewer(Protocol):
    """Decides whether a token may have a source."""

    async def __call__(self, token: str | None, source: Source, *, cached: bool = True) -> str:
        """Return whose it is, as a namespace; raise `RpcError` if it may not, or if nobody can say (UNAVAILABLE)."""
        ...


class Permission:
    """That a token may have a source, and the streams that make use of it."""

    __slots__ = ("retry", "source", "streams", "timer", "token")

    def __init__(self, token: str, source: Source, retry: Retry) -> None:
        self.token, self.source, self.retry = token, source, retry
        self.streams: dict[BroadcastStream, None] = {}
        self.timer: Timer | None = None


class Permissions:
    """The permissions of all open streams; `run` reviews them."""

    def __init__(
        self,
        review: Reviewer,
        seconds: float,
        revoked: Callable[[], None],
        clock: Clock = LoopClock(),  # noqa: B008 - it has no state
        random: Callable[[], float] = random,
        shares: NamespaceShares | None = None,
    ) -> None:
        """`seconds` is the longest time from review to review; `revoked` is called for each stream that is ended.

        `shares` limit what each namespace holds; None: nothing does.
        """
        self._review, self._seconds, self._revoked, self._shares = review, seconds, revoked, shares
        self._clock, self._random = clock, random
        self._group: asyncio.TaskGroup | None = None
        self._open: dict[tuple[str, Source], Permission] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def __call__(self, token: str | None, source: Source) -> Guard:
        """Return what adds a stream to its permission, or raise `RpcError`."""
        namespace = await self._review(token, source)
        assert token is not None  # the review refuses it otherwise
        if self._shares is not None:
            self._shares.check(namespace, source)
        return partial(self._admit, token, source, namespace)

    async def run(self) -> None:
        """Review until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._group:
                await asyncio.Event().wait()
        finally:
            self._group = None
            for permission in self._open.values():
                _cancel(permission)

    def _admit(self, token: str, source: Source, namespace: str, stream: BroadcastStream) -> None:
        key = token, source
        permission = self._open.get(key)
        if permission is None:
            permission = self._open[key] = Permission(token, source, Retry(OUTAGE, self._random))
            self._schedule(permission)
        permission.streams[stream] = None
        stream.on_close(partial(self._leave, permission, stream))
        if self._shares is not None:
            self._shares.add(namespace, source)
            stream.on_close(partial(self._shares.remove, namespace, source))

    def _leave(self, permission: Permission, stream: BroadcastStream) -> None:
        del permission.streams[stream]
        if not permission.streams:
            self._forget(permission)

    def _schedule(self, permission: Permission, when: float | None = None) -> None:
        if when is None:
            when = self._clock.now() + self._seconds * (0.5 + 0.5 * self._random())
        permission.timer = self._clock.call_at(when, partial(self._due, permission))

    def _due(self, permission: Permission) -> None:
        permission.timer = None
        if self._group is not None:
            self._group.create_task(self._again(permission), name="review")

    async def _again(self, permission: Permission) -> None:
        try:
            await self._review(permission.token, permission.source, cached=False)
        except WigwagError as error:
            if isinstance(error, RpcError) and error.code is not Code.UNAVAILABLE:
                self._end(permission, error)
                return
            when: float | None = permission.retry.next(self._clock.now())
            log.warning("%s: cannot check permission again: %s; open streams stay open", permission.source.name, error)
        else:
            permission.retry.succeeded()
            when = None
        if permission.streams:
            self._schedule(permission, when)

    def _end(self, permission: Permission, error: RpcError) -> None:
        """End the streams of a permission, and no others."""
        self._forget(permission)
        streams = list(permission.streams)
        log.info("%s: closing %d streams: %s: %s", permission.source.name, len(streams), error.code.name, error.message)
        for stream in streams:
            self._revoked()
            stream.end(error)

    def _forget(self, permission: Permission) -> None:
        _cancel(permission)
        key = permission.token, permission.source
        if self._open.get(key) is permission:
            del self._open[key]


def _cancel(permission: Permission) -> None:
    if permission.timer is not None:
        permission.timer.cancel()
        permission.timer = None
