"""gRPC calls of ours: one message out, and one or many back, over one connection.

    async with open_channel(Endpoint((("flags", 8015),), "flags:8015")) as channel:
        response = await channel.unary("/pkg.Service/Get", request, deadline=5)
        with channel.stream("/pkg.Service/Watch", request) as messages:
            async for message in messages: ...

Whatever goes wrong is an `RpcError`; the connection's own troubles are UNAVAILABLE. A channel is one connection and
does not come back: whoever wants that opens another one. There are no tasks, and no queues but the unread messages of a
stream, which are bounded by what the server was granted to send ahead: they wait as they came, compressed or not.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Self

from wigwag.pipeline.clock import Clock, LoopClock
from wigwag.version import __version__
from wigwag.wire.client.grpc_response import ResponseReader
from wigwag.wire.client.http2 import Endpoint, Http2Connection, KeepAlive, connected
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.rpcs import envelope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wigwag.pipeline.clock import Timer
    from wigwag.wire.http import Headers

MAX_MESSAGE = 64 << 20
_LARGEST_TIMEOUT = 99_999_999
_TURN = 16
"""How many pieces of a message are decompressed at once: a megabyte, a few milliseconds."""


@asynccontextmanager
async def open_channel(
    endpoint: Endpoint,
    keep_alive: KeepAlive = KeepAlive(),  # noqa: B008 - a frozen value
    clock: Clock | None = None,
    max_message: int = MAX_MESSAGE,
) -> AsyncIterator[Channel]:
    """Connect; `RpcError` with UNAVAILABLE if that is not possible. Calls under way at the end are broken off."""
    clock = clock or LoopClock()
    async with AsyncExitStack() as stack:
        try:
            connection = await stack.enter_async_context(connected(endpoint, keep_alive, clock))
        except OSError as error:
            raise RpcError(Code.UNAVAILABLE, f"cannot connect: {error}") from error
        yield Channel(connection, endpoint, clock, max_message)


class Channel:
    """A connection to a gRPC server."""

    def __init__(self, connection: Http2Connection, endpoint: Endpoint, clock: Clock, max_message: int) -> None:
        self._connection, self._clock, self._max_message = connection, clock, max_message
        self._common: Headers = (
            (b":method", b"POST"),
            (b":scheme", b"https" if endpoint.tls else b"http"),
            (b":authority", endpoint.authority.encode()),
        )

    @property
    def too_many_pings(self) -> bool:
        """Whether the server said that we ping too often."""
        return self._connection.machine.too_many_pings

    @property
    def room(self) -> int:
        """How many more calls the server takes at present."""
        machine = self._connection.machine
        return 0 if machine.unable() else machine.most - len(machine.streams)

    def stream(
        self, path: str, message: bytes, metadata: Headers = (), *, deadline: float | None = None
    ) -> MessageStream:
        """Call a method that responds with many messages; close what this returns. The deadline is in seconds."""
        if why := self._connection.machine.unable():
            raise RpcError(Code.UNAVAILABLE, why)
        reader = ResponseReader(self._max_message, self._clock.now)
        headers = (*self._common, (b":path", path.encode()), *_HEADERS, *_timeout(deadline), *metadata)
        messages = MessageStream(self._connection, headers, envelope.wrap(message), reader)
        if deadline is not None:
            messages.expire(self._clock, deadline)
        return messages

    async def unary(self, path: str, message: bytes, metadata: Headers = (), *, deadline: float | None = None) -> bytes:
        """Call a method that responds with one message."""
        response: bytes | None = None
        with self.stream(path, message, metadata, deadline=deadline) as messages:
            async for each in messages:
                if response is not None:
                    raise RpcError(Code.INTERNAL, "the response has more than one message")
                response = each
        if response is None:
            raise RpcError(Code.INTERNAL, "the response has no message")
        return response


_HEADERS: Headers = (
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
    (b"user-agent", f"grpc-wigwag/{__version__}".encode()),
    (b"grpc-accept-encoding", b"identity,gzip"),
)


def _timeout(seconds: float | None) -> Headers:
    """Return the header that tells the server how long we wait.

    >>> _timeout(1.5), _timeout(None)
    (((b'grpc-timeout', b'1500m'),), ())
    """
    if seconds is None:
        return ()
    return ((b"grpc-timeout", b"%dm" % max(1, min(round(seconds * 1000), _LARGEST_TIMEOUT))),)


class MessageStream:
    """The messages of one call, as they come. Closing it before it has ended tells the server to stop."""

    def __init__(self, connection: Http2Connection, headers: Headers, body: bytes, reader: ResponseReader) -> None:
        self._connection, self._reader = connection, reader
        self._timer: Timer | None = None
        self._waiting: asyncio.Future[None] | None = None
        reader.wake = self._wake
        self._stream = connection.machine.request(headers, body, reader)
        connection.flush()

    @property
    def partial(self) -> int:
        """How many bytes are here of a message that is not whole yet."""
        return self._reader.partial

    def expire(self, clock: Clock, seconds: float) -> None:
        """End the call with an error after a time."""
        error = RpcError(Code.DEADLINE_EXCEEDED, f"no answer within {seconds:g} s")
        self._timer = clock.call_at(clock.now() + seconds, lambda: self._end(error))

    def close(self) -> None:
        """Stop. A second time, or after the end, this does nothing."""
        self._end(RpcError(Code.CANCELLED, "the call was closed"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while (message := await self._next()) is None:
            pass
        return message

    async def beats(self) -> AsyncIterator[bytes | None]:
        """Yield the messages, and None whenever the server has shown that it is there though it has nothing to say."""
        while True:
            try:
                yield await self._next()
            except StopAsyncIteration:
                return

    async def _next(self) -> bytes | None:
        reader = self._reader
        while True:
            if reader.messages:
                reader.alive = False  # who speaks is there
                return await self._take()
            if reader.over:
                if self._timer is not None:
                    self._timer.cancel()
                raise reader.error or StopAsyncIteration
            if reader.alive:
                reader.alive = False
                return None
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    async def _take(self) -> bytes:
        """Read a message. A large one is decompressed in turns, so that it holds up nobody else."""
        pieces: list[bytes] = []
        try:
            for number, piece in enumerate(self._reader.pieces(), 1):
                pieces.append(piece)
                if not number % _TURN:
                    await asyncio.sleep(0)
        except RpcError as error:
            self._end(error)
            raise
        self._connection.machine.grant(self._stream)
        if self._connection.machine.out:
            self._connection.flush()
        return b"".join(pieces)

    def _end(self, error: RpcError) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._reader.fail(error)
        if not self._stream.gone:
            self._stream.cancel()
            self._connection.flush()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
