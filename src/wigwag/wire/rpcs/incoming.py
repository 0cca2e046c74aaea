"""A request body that is read while it arrives: for calls in which the client goes on sending.

The connection feeds pieces as frames come; one handler takes them. What waits is bounded by the connection, which sees
`held` and breaks off a stream whose client sends faster than its handler reads.
"""

from __future__ import annotations

import asyncio
from collections import deque


class RequestBody:
    """Pieces of one body, in order: `async for piece in incoming`."""

    __slots__ = ("_ended", "_pieces", "_waiter", "held")

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self.held = 0
        """Bytes that have arrived and were not taken yet."""

    @classmethod
    def whole(cls, body: bytes) -> RequestBody:
        """Return a body that is there already."""
        incoming = cls()
        incoming.feed(body)
        incoming.end()
        return incoming

    def feed(self, piece: bytes) -> None:
        """Add a piece."""
        if piece:
            self._pieces.append(piece)
            self.held += len(piece)
            self._wake()

    def end(self) -> None:
        """Note that the body is complete."""
        self._ended = True
        self._wake()

    def __aiter__(self) -> RequestBody:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        piece = self._pieces.popleft()
        self.held -= len(piece)
        return piece

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
