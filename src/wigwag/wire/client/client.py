"""Our HTTP/1.1 client: one request at a time and its response, whole or piece by piece, within limits.

    request ─▶ idle connection, or dial (resolve, judge, connect, proxy, TLS) ─▶ send ─▶ head ─▶ body ─▶ keep or close

Nothing of a response is taken on trust: time, size, framing and compression are bounded, and a whole body is a whole
body. A connection is kept for the next request if the response ended cleanly.

The hard case is a kept connection that the server closes just as the next request goes out. If nothing at all has come
back, and the request may be repeated, it is sent once more on a new connection; nobody needs to know. One that must not
be repeated gets a new connection, or, if the caller wants that, one that was used a moment ago.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wigwag.wire.client import addresses
from wigwag.wire.client.addresses import anywhere
from wigwag.wire.client.decode import BodyDecoder
from wigwag.wire.client.errors import BrokenError, SlowError
from wigwag.wire.client.http1 import Dialer, Http1Connection
from wigwag.wire.client.proxies import Proxies
from wigwag.wire.client.tls import Trust, current_context
from wigwag.wire.h1.client import ClientRequest, Fields, ResponseLimits, ResponseParser, oversize, render

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from wigwag.wire.client.addresses import Resolve
    from wigwag.wire.client.url import Url

REPEATABLE = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
MOST_IDLE = 4
"""Servers to which connections are kept."""
_TIMED_OUT = 408
_Key = tuple[tuple[str, str, int], "Url | None"]


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """A whole response."""

    url: Url
    status: int
    fields: Fields
    body: bytes

    def field(self, name: str) -> str:
        """Return the first field of that name, which must be in lower case, or nothing."""
        return next((value for key, value in self.fields if key == name), "")


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request under way: how it goes, and when it must be over."""

    request: ClientRequest
    proxy: Url | None
    allowed: Callable[[str], bool]
    limits: ResponseLimits
    end: float

    @property
    def key(self) -> _Key:
        """What a kept connection must be for."""
        return self.request.url.origin, self.proxy

    @property
    def repeatable(self) -> bool:
        """Whether it may happen twice."""
        return self.request.method in REPEATABLE

    def parser(self) -> ResponseParser:
        """Return the parser of a response of which nothing has come yet."""
        return ResponseParser(self.request.url.endpoint, self.limits, head_only=self.request.method == "HEAD")


class StreamedResponse:
    """A response whose body is still to come."""

    def __init__(
        self, connection: Http1Connection, parser: ResponseParser, limits: ResponseLimits, rest: list[bytes], end: float
    ) -> None:
        self._connection, self._parser, self._limits, self._rest, self._end = connection, parser, limits, rest, end
        self.status, self.fields = parser.status, tuple(parser.fields)
        self._woken = False

    def field(self, name: str) -> str:
        """Return the first field of that name, which must be in lower case, or nothing."""
        return self._parser.field(name)

    def wake(self) -> None:
        """Give the reader of `pieces` its turn now, though nothing has come: it gets an empty piece."""
        self._woken = True
        self._connection.wake()

    async def pieces(self, wake: Callable[[], float] | None = None) -> AsyncIterator[bytes]:
        """Yield the body, decompressed, piece by piece as it comes. Others get their turn between two pieces.

        `wake` returns when, in the loop's time, the reader wants its turn though nothing has come: an empty piece.
        """
        size, most = 0, self._limits.body_bytes
        try:
            unpack = BodyDecoder(self.field("content-encoding"))
            while (data := await self._more(wake)) is not None:
                for piece in unpack.pieces(data) if data else (data,):
                    size += len(piece)
                    if most is not None and size > most:
                        raise oversize(self._connection.host, most)
                    yield piece
                    await asyncio.sleep(0)
            unpack.end()
        except ValueError as error:
            raise BrokenError(self._connection.host, str(error)) from error

    async def _more(self, wake: Callable[[], float] | None) -> bytes | None:
        """Return some more of the body as it comes, nothing when it is time to wake, None at its end."""
        while not self._rest:
            if self._parser.done:
                return None
            idle = self._limits.idle
            end = self._end if idle is None else min(self._end, asyncio.get_running_loop().time() + idle)
            turn = -math.inf if self._woken else end if wake is None else min(end, wake())
            try:
                self._rest = self._parser.feed(await self._connection.receive(turn, "sends the body too slowly"))
            except SlowError:
                if turn < end or self._woken:
                    self._woken = False
                    return b""
                raise
        rest, self._rest = self._rest, []
        return b"".join(rest)


class Client:
    """Makes requests, with one trust and one way out."""

    def __init__(
        self,
        *,
        trust: Trust = Trust(),  # noqa: B008 - a frozen value
        proxies: Proxies = Proxies(),  # noqa: B008 - a frozen value
        limits: ResponseLimits = ResponseLimits(),  # noqa: B008 - a frozen value
        path: str = "",
        keep: bool = True,
        spare: int = 1,
        fresh: float = 0.0,
        resolve: Resolve = addresses.resolve,
    ) -> None:
        """`path`: of a unix socket by which every host is asked. `keep`: whether connections are kept.

        `spare`: how many idle ones are kept per server. `fresh`: how many seconds one may have been idle that is used
        for a request which must not be repeated; if the server has closed it, that request fails.
        """
        self.limits = limits
        self._proxies, self._keep, self._spare, self._path, self._fresh = proxies, keep, spare, path, fresh
        self._dialler = Dialer(resolve, current_context(trust), path)
        self._idle: dict[_Key, list[Http1Connection]] = {}

    async def fetch(
        self, request: ClientRequest, allowed: Callable[[str], bool] = anywhere, limits: ResponseLimits | None = None
    ) -> ClientResponse:
        """Return the whole response. It raises `FetchError`, or `UsageError` if the request itself cannot be."""
        async with self.stream(request, allowed, limits) as incoming:
            body = b"".join([piece async for piece in incoming.pieces()])
        return ClientResponse(request.url, incoming.status, incoming.fields, body)

    @asynccontextmanager
    async def stream(
        self, request: ClientRequest, allowed: Callable[[str], bool] = anywhere, limits: ResponseLimits | None = None
    ) -> AsyncIterator[StreamedResponse]:
        """Yield the response as soon as its head is there. Read its body to the end, or the connection is lost."""
        limits = limits or self.limits
        proxy = None if self._path else self._proxies.choose(request.url)
        seconds = math.inf if limits.total is None else limits.total
        pending = PendingRequest(request, proxy, allowed, limits, asyncio.get_running_loop().time() + seconds)
        connection, parser, rest = await self._ask(pending)
        try:
            yield StreamedResponse(connection, parser, limits, rest, pending.end)
        finally:
            if parser.done and parser.keep and self._keep and (self._fresh or pending.repeatable):
                self._put(pending.key, connection)
            else:
                connection.close()

    def close(self) -> None:
        """Close what is kept. Requests under way go on, and keep nothing."""
        self._keep = False
        for key in list(self._idle):
            self._drop(key, 0)

    async def _ask(self, pending: PendingRequest) -> tuple[Http1Connection, ResponseParser, list[bytes]]:
        """Send a request; return the response so far: its head, and what of the body came with it."""
        if (connection := self._take(pending)) is not None:
            parser = pending.parser()
            try:
                rest = await self._head(connection, pending, parser)
                if parser.status != _TIMED_OUT:  # which a server says when it is about to close
                    return connection, parser, rest
                connection.close()
            except BrokenError:
                if not (parser.untouched and pending.repeatable):
                    raise
        left = pending.end - asyncio.get_running_loop().time()
        limits = replace(pending.limits, connect=min(pending.limits.connect, left))
        connection = await self._dialler.open(pending.request.url, pending.proxy, pending.allowed, limits)
        parser = pending.parser()
        return connection, parser, await self._head(connection, pending, parser)

    async def _head(self, connection: Http1Connection, pending: PendingRequest, parser: ResponseParser) -> list[bytes]:
        """Send a request and wait for the head of the response; return what of the body came with it."""
        rest: list[bytes] = []
        end = min(pending.end, asyncio.get_running_loop().time() + pending.limits.head)
        try:
            await connection.send(render(pending.request, pending.proxy, keep=self._keep), end)
            while not parser.status:
                rest += parser.feed(await connection.receive(end, "does not answer in time"))
        except BaseException:
            connection.close()
            raise
        return rest

    def _take(self, pending: PendingRequest) -> Http1Connection | None:
        """Return a kept connection that may be used for this; close those that may not."""
        kept = self._idle.get(pending.key, [])
        judge, oldest = pending.allowed, -math.inf
        if not pending.repeatable:
            oldest = asyncio.get_running_loop().time() - self._fresh
        while kept and kept[-1].idle_since > oldest:
            connection = kept.pop()
            if connection.usable() and (judge is anywhere or (connection.ip and judge(connection.ip))):
                return connection
            connection.close()
        return None

    def _put(self, key: _Key, connection: Http1Connection) -> None:
        """Keep a connection, and let the oldest go if they become too many."""
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle[key] = [*self._idle.pop(key, ()), connection]
        self._drop(key, self._spare)
        for server in list(self._idle)[:-MOST_IDLE]:
            self._drop(server, 0)

    def _drop(self, key: _Key, most: int) -> None:
        """Close the oldest connections to a server that are more than `most`."""
        kept = self._idle.pop(key)
        for connection in kept[: max(0, len(kept) - most)]:
            connection.close()
        if most:
            self._idle[key] = kept[-most:]
