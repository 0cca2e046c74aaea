"""What every protocol becomes, and what every handler answers with.

    bytes ─▶ http1 | http2 ─▶ Request ─▶ Handler ─▶ Reply | Stream ─▶ http1 | http2 ─▶ bytes

A handler is an ordinary function, called when the whole request is there, and answers at once; only what has to wait is
awaited. Over HTTP/2, a request that `Early` names is handed over when its headers are there, and its body is
`incoming`. A `Stream` is pulled chunk by chunk as the client takes it, so a slow client holds up nobody but itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote_to_bytes

from msgspec import Struct

if TYPE_CHECKING:
    from wigwag.wire.rpc import RpcError
    from wigwag.wire.rpcs.incoming import RequestBody
    from wigwag.wire.server.broadcast import BroadcastStream, Frame
    from wigwag.wire.server.identity import Identity

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Names in lower case, in order, repeated where they were repeated."""
MOST_PARAMETERS = 100
"""Of a query. No path of ours has that many, and each costs time that others wait for."""


class Request(Struct, eq=False):
    """One whole request. (A Struct, because there is one per request, and they are made at C speed.)"""

    method: bytes
    path: bytes
    query: bytes = b""
    headers: Headers = ()
    body: bytes = b""
    version: int = 1
    peer: Peer | None = None
    known: Mapping[bytes, bytes] | None = None
    """The first value of each header, if whoever remembers the head has worked that out already."""
    incoming: RequestBody | None = None
    """The body, where it is still arriving; `body` is then empty."""

    @property
    def fields(self) -> Mapping[bytes, bytes]:
        """The first value of each header."""
        return self.known or first_values(self.headers)

    def header(self, name: bytes, default: bytes | None = None) -> bytes | None:
        """Return the first header of that name, which must be in lower case."""
        for key, value in self.headers:
            if key == name:
                return value
        return default


def first_values(headers: Headers) -> Mapping[bytes, bytes]:
    """Return the first value of each header."""
    return dict(reversed(headers))


def parsed(query: bytes) -> dict[bytes, bytes]:
    """Return the parameters of a query; those after the first hundred are ignored.

    >>> parsed(b"encoding=json&message=%7B%7D")
    {b'encoding': b'json', b'message': b'{}'}
    """
    pairs = (pair.replace(b"+", b" ").partition(b"=") for pair in query.split(b"&", MOST_PARAMETERS)[:MOST_PARAMETERS])
    return {unquote_to_bytes(name): unquote_to_bytes(value) for name, _, value in pairs}


class Peer:
    """Who is at the other end of a connection: its address, and the identity its client certificate proves."""

    __slots__ = ("address", "certificate", "scheme")

    def __init__(self, address: str = "", scheme: str = "http", certificate: Identity | None = None) -> None:
        self.address, self.scheme, self.certificate = address, scheme, certificate


class Reply(Struct, eq=False):
    """A whole answer. Trailers go out where the protocol has them: always in HTTP/2, in HTTP/1.1 when asked for."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    trailers: Headers | None = None


class Stream:
    """An answer that goes on: chunks as they come, then trailers, which the chunks' generator may still be deciding.

    The chunks are closed (`aclose`) when the client goes away, and cancelled when the server is drained and its grace
    period is over.
    """

    __slots__ = ("chunks", "headers", "status", "trailers")

    def __init__(
        self,
        status: int,
        headers: Headers,
        chunks: AsyncIterator[bytes],
        trailers: Callable[[], Headers] | None = None,
    ) -> None:
        self.status, self.headers, self.chunks, self.trailers = status, headers, chunks, trailers


class BroadcastAnswer(Stream):
    """A stream of a broadcast. A connection that cannot send it so pulls the chunks, as of any stream."""

    __slots__ = ("ending", "frame", "messages", "seconds")

    def __init__(
        self,
        stream: Stream,
        messages: BroadcastStream,
        frame: Frame,
        ending: Callable[[RpcError], Headers],
        seconds: float | None = None,
    ) -> None:
        """`ending` gives the trailers of an error, and `seconds` is how long the client waits for the end."""
        super().__init__(stream.status, stream.headers, stream.chunks, stream.trailers)
        self.messages, self.frame, self.ending, self.seconds = messages, frame, ending, seconds


Answer: TypeAlias = Reply | Stream
Handler: TypeAlias = Callable[[Request], Answer | Awaitable[Answer]]
Early: TypeAlias = Callable[[bytes, Mapping[bytes, bytes]], bool]
"""Tells by the path and the headers of an HTTP/2 request whether its handler wants it before the body is there."""
