"""gRPC calls of ours: one message out, and one or many back, over one connection.

    async with open_channel(Endpoint((("flags", 8015),), "flags:8015")) as channel:
        found = await channel.unary("/pkg.Service/Get", request, deadline=5)
        with channel.stream("/pkg.Service/Watch", request) as answers:
            async for message in answers: ...

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
from wigwag.wire.client.grpc_answer import ResponseReader
from wigwag.wire.client.http2_dial import Endpoint, dialled
from wigwag.wire.client.http2_link import Http2Link, KeepAlive
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
) -> AsyncIterator[Channel]:
    """Connect; `RpcError` with UNAVAILABLE if that is not possible. Calls under way at the end are broken off."""
    clock = clock or LoopClock()
    async with AsyncExitStack() as stack:
        try:
            link = await stack.enter_async_context(dialled(endpoint, keep_alive, clock))
        except OSError as error:
            raise RpcError(Code.UNAVAILABLE, f"cannot connect: {error}") from error
        yield Channel(link, endpoint, clock)


class Channel:
    """A connection to a server of gRPC."""

    def __init__(self, link: Http2Link, endpoint: Endpoint, clock: Clock) -> None:
        self._link, self._clock = link, clock
        self._common: Headers = (
            (b":method", b"POST"),
            (b":scheme", b"https" if endpoint.tls else b"http"),
            (b":authority", endpoint.authority.encode()),
        )

    @property
    def too_many_pings(self) -> bool:
        """Whether the server said that we ping too often."""
        return self._link.machine.too_many_pings

    @property
    def room(self) -> int:
        """How many more calls the server takes at present."""
        machine = self._link.machine
        return 0 if machine.unable() else machine.most - len(machine.streams)

    def stream(
        self,
        path: str,
        message: bytes,
        metadata: Headers = (),
        *,
        deadline: float | None = None,
        max_message: int = MAX_MESSAGE,
    ) -> MessageStream:
        """Call a method that answers with many messages; close what this returns. The deadline is in seconds."""
        if why := self._link.machine.unable():
            raise RpcError(Code.UNAVAILABLE, why)
        reception = ResponseReader(max_message, self._clock.now)
        headers = (*self._common, (b":path", path.encode()), *_HEADERS, *_timeout(deadline), *metadata)
        answers = MessageStream(self._link, headers, envelope.wrap(message), reception)
        if deadline is not None:
            answers.expire(self._clock, deadline)
        return answers

    async def unary(
        self,
        path: str,
        message: bytes,
        metadata: Headers = (),
        *,
        deadline: float | None = None,
        max_message: int = MAX_MESSAGE,
    ) -> bytes:
        """Call a method that answers with one message."""
        found: bytes | None = None
        with self.stream(path, message, metadata, deadline=deadline, max_message=max_message) as answers:
            async for each in answers:
                if found is not None:
                    raise RpcError(Code.INTERNAL, "the answer has more than one message")
                found = each
        if found is None:
            raise RpcError(Code.INTERNAL, "the answer has no message")
        return found


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

    __slots__ = ("_link", "_reception", "_stream", "_timer", "_waiting")

    def __init__(self, link: Http2Link, headers: Headers, body: bytes, reception: ResponseReader) -> None:
        self._link, self._reception = link, reception
        self._timer: Timer | None = None
        self._waiting: asyncio.Future[None] | None = None
        reception.wake = self._wake
        self._stream = link.machine.request(headers, body, reception)
        link.flush()

    @property
    def partial(self) -> int:
        """How many bytes are here of a message that is not whole yet."""
        return self._reception.partial

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
        reception = self._reception
        while True:
            if reception.messages:
                reception.alive = False  # who speaks is there
                return await self._take()
            if reception.over:
                if self._timer is not None:
                    self._timer.cancel()
                raise reception.error or StopAsyncIteration
            if reception.alive:
                reception.alive = False
                return None
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    async def _take(self) -> bytes:
        """Read a message. One that becomes large is made in turns, so that it holds up nobody else."""
        made: list[bytes] = []
        try:
            for number, piece in enumerate(self._reception.pieces(), 1):
                made.append(piece)
                if not number % _TURN:
                    await asyncio.sleep(0)
        except RpcError as error:
            self._end(error)
            raise
        self._link.machine.grant(self._stream)
        if self._link.machine.out:
            self._link.flush()
        return b"".join(made)

    def _end(self, error: RpcError) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._reception.fail(error)
        if not self._stream.gone:
            self._stream.cancel()
            self._link.flush()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
