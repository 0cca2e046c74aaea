"""Our HTTP/1.1 client: one request at a time and its answer, whole or piece by piece, within limits.

    Call ─▶ idle connection, or dial (resolve, judge, connect, proxy, TLS) ─▶ send ─▶ head ─▶ body ─▶ keep or close

Nothing of an answer is taken on trust: time, size, framing and compression are bounded, and a whole body is a whole
body. A connection is kept for the next request if the answer ended cleanly.

The hard case is a kept connection that the server closes just as the next request goes out. If nothing at all has come
back, and the request may be repeated, it is sent once more on a new connection; nobody needs to know.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wigwag.wire.client import addresses
from wigwag.wire.client.addresses import anywhere
from wigwag.wire.client.decode import decoder
from wigwag.wire.client.errors import BrokenError, SlowError
from wigwag.wire.client.link import Dialer, Http1Link, rendered
from wigwag.wire.client.proxies import Proxies
from wigwag.wire.client.tls import Contexts, Trust
from wigwag.wire.h1.client import Answer, ClientRequest, Fields, ResponseLimits, oversize

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from wigwag.wire.client.addresses import Resolve
    from wigwag.wire.client.url import Url

REPEATABLE = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
MOST_IDLE = 4
_TIMED_OUT = 408
_Key = tuple[tuple[str, str, int], "Url | None"]


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """A whole answer."""

    url: Url
    status: int
    fields: Fields
    body: bytes

    def field(self, name: str) -> str:
        """Return the first field of that name, which must be in lower case, or nothing."""
        return next((value for key, value in self.fields if key == name), "")


@dataclass(frozen=True, slots=True)
class RequestProgress:
    """A request under way: how it goes, and when it must be over."""

    call: ClientRequest
    proxy: Url | None
    allowed: Callable[[str], bool]
    limits: ResponseLimits
    end: float

    @property
    def key(self) -> _Key:
        """What a kept connection must be for."""
        return self.call.url.origin, self.proxy

    def answer(self) -> Answer:
        """Return an answer of which nothing has come yet."""
        return Answer(self.call.url.endpoint, self.limits, head_only=self.call.method == "HEAD")


class StreamedResponse:
    """An answer whose body is still to come."""

    def __init__(self, link: Http1Link, answer: Answer, limits: ResponseLimits, rest: list[bytes], end: float) -> None:
        self._link, self._answer, self._limits, self._rest, self._end = link, answer, limits, rest, end
        self.status, self.fields = answer.status, tuple(answer.fields)
        self._woken = False

    def field(self, name: str) -> str:
        """Return the first field of that name, which must be in lower case, or nothing."""
        return self._answer.field(name)

    def wake(self) -> None:
        """Give the reader of `pieces` its turn now, though nothing has come: it gets an empty piece."""
        self._woken = True
        self._link.wake()

    async def pieces(self, wake: Callable[[], float] | None = None) -> AsyncIterator[bytes]:
        """Yield the body, decompressed, piece by piece as it comes. Others get their turn between two pieces.

        `wake` tells when, in the loop's time, the reader wants its turn though nothing has come: an empty piece.
        """
        size, most = 0, self._limits.body_bytes
        try:
            unpack = decoder(self.field("content-encoding"))
            while (data := await self._more(wake)) is not None:
                for piece in unpack.pieces(data) if data else (data,):
                    size += len(piece)
                    if most is not None and size > most:
                        raise oversize(self._link.host, most)
                    yield piece
                    await asyncio.sleep(0)
            unpack.end()
        except ValueError as error:
            raise BrokenError(self._link.host, str(error)) from error

    async def _more(self, wake: Callable[[], float] | None) -> bytes | None:
        """Return some more of the body as it comes, nothing when it is time to wake, None at its end."""
        while not self._rest:
            if self._answer.done:
                return None
            end = self._patience()
            turn = -math.inf if self._woken else end if wake is None else min(end, wake())
            try:
                data = await self._link.receive(turn, "sends the body too slowly")
            except SlowError:
                if turn < end or self._woken:
                    self._woken = False
                    return b""
                raise
            if data:
                self._rest = self._answer.feed(data)
            else:
                self._answer.end()
        rest, self._rest = self._rest, []
        return b"".join(rest)

    def _patience(self) -> float:
        """Return the time until which more must have come."""
        idle = self._limits.idle
        return self._end if idle is None else min(self._end, asyncio.get_running_loop().time() + idle)


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
        resolve: Resolve = addresses.resolve,
    ) -> None:
        """`path`: of a unix socket by which every host is asked. `keep`: whether connections are kept."""
        self.limits = limits
        self._proxies, self._keep, self._path = proxies, keep, path
        self._dialler = Dialer(resolve, Contexts(trust).current, path)
        self._idle: dict[_Key, Http1Link] = {}

    async def fetch(
        self, call: ClientRequest, allowed: Callable[[str], bool] = anywhere, limits: ResponseLimits | None = None
    ) -> ClientResponse:
        """Return the whole answer. It raises `FetchError`, or `UsageError` if the request itself cannot be."""
        async with self.stream(call, allowed, limits) as incoming:
            body = b"".join([piece async for piece in incoming.pieces()])
        return ClientResponse(call.url, incoming.status, incoming.fields, body)

    @asynccontextmanager
    async def stream(
        self, call: ClientRequest, allowed: Callable[[str], bool] = anywhere, limits: ResponseLimits | None = None
    ) -> AsyncIterator[StreamedResponse]:
        """Yield the answer as soon as its head is there. If its body is not read to the end, the connection is lost."""
        errand = self._errand(call, allowed, limits or self.limits)
        link, answer, rest = await self._ask(errand)
        try:
            yield StreamedResponse(link, answer, errand.limits, rest, errand.end)
        finally:
            if answer.done and answer.keep and self._keep and call.method in REPEATABLE:
                self._put(errand.key, link)
            else:
                link.close()

    def close(self) -> None:
        """Close what is kept."""
        for link in self._idle.values():
            link.close()
        self._idle.clear()

    def _errand(self, call: ClientRequest, allowed: Callable[[str], bool], limits: ResponseLimits) -> RequestProgress:
        proxy = None if self._path else self._proxies.choose(call.url)
        seconds = math.inf if limits.total is None else limits.total
        return RequestProgress(call, proxy, allowed, limits, asyncio.get_running_loop().time() + seconds)

    async def _ask(self, errand: RequestProgress) -> tuple[Http1Link, Answer, list[bytes]]:
        """Send a request; return the answer so far: its head, and what of the body came with it."""
        link, answer = self._take(errand), errand.answer()
        if link is not None:
            rest = await self._again(link, errand, answer)
            if rest is not None:
                return link, answer, rest
        link, answer = await self._open(errand), errand.answer()
        return link, answer, await self._head(link, errand, answer)

    async def _open(self, errand: RequestProgress) -> Http1Link:
        left = errand.end - asyncio.get_running_loop().time()
        limits = replace(errand.limits, connect=min(errand.limits.connect, left))
        return await self._dialler.open(errand.call.url, errand.proxy, errand.allowed, limits)

    async def _again(self, link: Http1Link, errand: RequestProgress, answer: Answer) -> list[bytes] | None:
        """Ask on a kept connection; None if the server had given it up, in silence or with a word of farewell."""
        try:
            rest = await self._head(link, errand, answer)
        except BrokenError:
            if answer.untouched:
                return None
            raise
        if answer.status != _TIMED_OUT:
            return rest
        link.close()
        return None

    async def _head(self, link: Http1Link, errand: RequestProgress, answer: Answer) -> list[bytes]:
        """Send a request and wait for the head of the answer; return what of the body came with it."""
        rest: list[bytes] = []
        end = min(errand.end, asyncio.get_running_loop().time() + errand.limits.head)
        try:
            await link.send(rendered(errand.call, errand.proxy, keep=self._keep), end)
            while not answer.status:
                data = await link.receive(end, "does not answer in time")
                if data:
                    rest += answer.feed(data)
                else:
                    answer.end()
        except BaseException:
            link.close()
            raise
        return rest

    def _take(self, errand: RequestProgress) -> Http1Link | None:
        """Return a kept connection that may be used for this."""
        if errand.call.method not in REPEATABLE or (link := self._idle.pop(errand.key, None)) is None:
            return None
        if link.usable() and (errand.allowed is anywhere or (link.ip and errand.allowed(link.ip))):
            return link
        link.close()
        return None

    def _put(self, key: _Key, link: Http1Link) -> None:
        """Keep a connection, and let the oldest go if they become too many."""
        surplus = [key] if key in self._idle else list(self._idle)[: max(0, len(self._idle) + 1 - MOST_IDLE)]
        for old in surplus:
            self._idle.pop(old).close()
        self._idle[key] = link
