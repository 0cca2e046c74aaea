"""HTTP requests and responses, whatever the version: what every protocol becomes, and what every handler returns.

    bytes ─▶ h1 | h2 ─▶ Request ─▶ Handler ─▶ Reply | Stream ─▶ h1 | h2 ─▶ bytes

A handler is an ordinary function, called when the whole request is there, and responds at once; only what has to wait
is awaited. Over HTTP/2, a request that `Early` names is handed over when its headers are there, and its body is
`incoming`. A `Stream` is pulled chunk by chunk as the client takes it, so a slow client holds up nobody but itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from wigwag.wire.peer import Peer

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Names in lower case, in order, repeated where they were repeated."""
RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE, UNKNOWN = 8, 13, 14, 2
GRPC_STATUS = {413: RESOURCE_EXHAUSTED, 431: RESOURCE_EXHAUSTED, 500: INTERNAL, 503: UNAVAILABLE}
MOST_PARAMETERS = 100
"""Of a query. No path of ours has that many, and each costs time that others wait for."""


class RequestBody:
    """A request body that is read while it arrives: `async for piece in incoming`.

    The connection feeds pieces as frames come; one handler takes them. What waits is bounded by the connection, which
    sees `held` and breaks off a stream whose client sends faster than its handler reads.
    """

    __slots__ = ("_pieces", "held")

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
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
            self._pieces.put_nowait(piece)
            self.held += len(piece)

    def end(self) -> None:
        """Note that the body is complete."""
        self._pieces.put_nowait(b"")

    def __aiter__(self) -> RequestBody:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._pieces.get()
        if not piece:
            self.end()  # for whoever asks again
            raise StopAsyncIteration
        self.held -= len(piece)
        return piece


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


def etag_matches(header: bytes | None, etag: bytes) -> bool:
    """Compare an ETag weakly with an `If-None-Match` header: a list of tags, or `*`.

    >>> etag_matches(b'"a", W/"b"', b'"b"'), etag_matches(b"*", b'"b"'), etag_matches(None, b'"b"')
    (True, True, False)
    """
    if header is None:
        return False
    tags = [tag.strip().removeprefix(b"W/") for tag in header.split(b",")]
    return b"*" in tags or etag in tags


class Reply(Struct, eq=False):
    """A whole response. Trailers go out where the protocol has them: always in HTTP/2, in HTTP/1.1 when asked for."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    trailers: Headers | None = None


def error_reply(status: int, headers: Headers = ()) -> Reply:
    """Return the response of an error that no handler made, to a request with those headers; gRPC gets a status."""
    phrase = HTTPStatus(status).phrase
    kind = next((value for name, value in headers if name == b"content-type"), b"")
    if kind.startswith(b"application/grpc") and not kind.startswith(b"application/grpc-web"):
        code = b"%d" % GRPC_STATUS.get(status, UNKNOWN)
        return Reply(200, ((b"content-type", kind), (b"grpc-status", code), (b"grpc-message", phrase.encode())))
    return Reply(status, ((b"content-type", b"text/plain; charset=utf-8"),), f"{phrase}\n".encode())


class Stream:
    """A response that goes on: chunks as they come, then trailers, which the chunks' generator may still be deciding.

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


Response: TypeAlias = Reply | Stream
Handler: TypeAlias = Callable[[Request], Response | Awaitable[Response]]
Early: TypeAlias = Callable[[bytes, Mapping[bytes, bytes]], bool]
"""Decides by the path and the headers of an HTTP/2 request whether its handler wants it before the body is there."""
