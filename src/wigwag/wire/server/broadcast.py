"""Streams that all carry the newest message of a broadcast: no task waits, and a message is encoded once for all.

    publish ─▶ Broadcast ─▶ BroadcastSender.notify ─ room? ─▶ the message in the stream's frame

A stream that is pulled keeps a task, generators and a future, only to find out that there is something new. A stream of
a broadcast is notified instead. Invariant: a stream that has not sent the newest message is being notified, or waits
for room to be notified again; so it may skip messages, but it never ends on an old one.

`BroadcastStream` is what a stream handler returns. It can be pulled like any other stream, so every protocol can carry
it; where the connection is HTTP/2 and the protocol gRPC, the connection sends it without pulling (see `sender`).

The hard case is a stream that must end alone, because a right or its time has ended: `end` ends one stream,
`Broadcast.end` ends all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from wigwag.pipeline.broadcast import Broadcast
from wigwag.wire.rpc import RpcError

Frame: TypeAlias = Callable[[bytes], bytes]
"""Wraps a message for the wire. The result is cached by the function's identity, so all streams must share it."""
Join: TypeAlias = "Callable[[BroadcastStream], Broadcast[Message]]"
"""Called when a stream begins to read; returns what it reads, or raises `RpcError`."""
Guard: TypeAlias = "Callable[[BroadcastStream], object]"
"""Called before the stream joins; may raise `RpcError`."""


class Message:
    """A message that is encoded when the first stream takes it, and framed once for all streams with the same frame."""

    __slots__ = ("_framed", "_make")

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._framed: dict[Frame, bytes] = {}

    def framed(self, frame: Frame) -> bytes:
        """Return the message in a frame: the same object for all who ask for the same frame."""
        framed = self._framed.get(frame)
        if framed is None:
            framed = self._framed[frame] = frame(self._make())
        return framed


class BroadcastStream:
    """One stream of a broadcast. It subscribes with its first pull, or with `open`: it may be dropped before."""

    __slots__ = ("_closing", "_join", "_notify", "_waiter", "broadcast", "revoked", "seen")

    def __init__(self, join: Join) -> None:
        self._join = join
        self._closing: list[Callable[[], object]] = []
        self.revoked: RpcError | None = None
        """Why this stream alone has ended."""
        self._notify: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.broadcast: Broadcast[Message] | None = None
        self.seen = 0
        """The serial of the last message that was sent. `Join` may set it, to wait for the next one."""

    @property
    def error(self) -> RpcError | None:
        """Why the stream has ended; None: it goes on."""
        if self.revoked is not None or self.broadcast is None:
            return self.revoked
        return self.broadcast.error  # type: ignore[return-value]  # broadcasts of messages end with RpcErrors

    def guard(self, guard: Guard) -> None:
        """Have a function called before the stream joins. It may raise, or register what to do at the end."""
        join = self._join

        def guarded(stream: BroadcastStream) -> Broadcast[Message]:
            guard(stream)
            return join(stream)

        self._join = guarded

    def on_close(self, callback: Callable[[], object]) -> None:
        """Have a function called when the stream is closed, the last one first."""
        self._closing.append(callback)

    def open(self, notify: Callable[[], None]) -> Broadcast[Message]:
        """Begin to read: `notify` is called when there is a new message, and when the stream has ended."""
        self._notify = notify
        try:
            self.broadcast = self._join(self)
        except BaseException:
            self.close()
            raise
        self.broadcast.subscribe(notify)
        return self.broadcast

    def end(self, error: RpcError) -> None:
        """End this stream with an error. The first one counts."""
        self.revoked = self.revoked or error
        if self._notify is not None:
            self._notify()

    def close(self) -> None:
        """Read no longer."""
        notify, self._notify = self._notify, None
        if notify is not None and self.broadcast is not None:
            self.broadcast.unsubscribe(notify)
        while self._closing:
            self._closing.pop()()

    def __aiter__(self) -> BroadcastStream:
        return self

    async def __anext__(self) -> bytes:
        broadcast = self.broadcast or self.open(self._wake)
        while self.error is None and broadcast.serial == self.seen:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if (error := self.error) is not None:
            self.close()
            raise error
        self.seen = broadcast.serial
        return broadcast.value.framed(_unframed)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def aclose(self) -> None:
        """Read no longer."""
        self.close()


def _unframed(message: bytes) -> bytes:
    return message
