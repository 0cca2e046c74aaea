"""One connection of the client: to a server or a proxy, by TCP or a unix socket, with TLS or without.

Every wait has an end; whoever closes does not wait for the other side. Errors are those of `errors`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Self

from wigwag.errors import UsageError
from wigwag.wire.client.addresses import Address, Resolve, anywhere, connect, dial
from wigwag.wire.client.errors import ForbiddenError, SlowError, UnreachableError, broken, unreachable, untrusted
from wigwag.wire.h1.client import ResponseLimits, ResponseParser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from wigwag.wire.client.url import Url

READ = 1 << 16


class Http1Connection:
    """A connection that is open."""

    def __init__(self, host: str, ip: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.host, self.ip, self._reader, self._writer = host, ip, reader, writer
        self._waiting: asyncio.Timeout | None = None
        self.idle_since = 0.0
        """When its last response ended, by the loop's clock."""

    async def send(self, data: bytes, end: float) -> None:
        """Send a whole request."""
        async with within(end, self.host, "takes the request too slowly"):
            try:
                self._writer.write(data)
                await self._writer.drain()
            except OSError as error:
                raise broken(self.host, error) from error

    async def receive(self, end: float, what: str) -> bytes:
        """Return what has come; nothing if the other side has closed."""
        async with within(end, self.host, what) as timeout:
            self._waiting = timeout
            try:
                return await self._reader.read(READ)
            except OSError as error:
                raise broken(self.host, error) from error
            finally:
                self._waiting = None
                del timeout  # it has the task, which keeps the error of a cancellation, and that this frame: a cycle

    def wake(self) -> None:
        """End a `receive` that is waiting, as if its time were over."""
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    def usable(self) -> bool:
        """Return whether it seems to be open still."""
        return not (self._reader.at_eof() or self._reader.exception() or self._writer.is_closing())

    async def secure(self, context: ssl.SSLContext, name: str) -> Self:
        """Begin TLS inside of it. If that fails or is cancelled, it is closed.

        asyncio can also connect and begin TLS in one call. But if that is cancelled at its end, it keeps the socket
        open until the other side agrees.
        """
        try:
            await self._writer.start_tls(context, server_hostname=name)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Let go of it at once."""
        self._writer.transport.abort()


class Dialer:
    """Opens connections."""

    def __init__(self, resolve: Resolve, context: Callable[[], ssl.SSLContext], path: str = "") -> None:
        """With a `path`, every host is asked by that unix socket."""
        self._resolve, self._context, self._path = resolve, context, path

    async def open(
        self, url: Url, proxy: Url | None, allowed: Callable[[str], bool], limits: ResponseLimits
    ) -> Http1Connection:
        """Connect, by a proxy or not, and agree on TLS. `allowed` judges the addresses of the URL's host."""
        end = asyncio.get_running_loop().time() + limits.connect
        async with within(end, url.endpoint, "does not let us connect"):
            try:  # in a thread: to read all of the system's authorities takes a while
                context = await asyncio.to_thread(self._context) if url.scheme == "https" else None
                if proxy is not None:
                    return await self._by_proxy(url, proxy, context, allowed, limits)
                if self._path:
                    sock, ip = await connect(Address(socket.AF_UNIX, self._path)), ""
                else:
                    addresses = await self._addresses(url)
                    judge(url, addresses, allowed)
                    sock, ip = await dial(addresses, limits.connect)
                connection = Http1Connection(url.endpoint, ip, *await asyncio.open_connection(sock=sock))
                return connection if context is None else await connection.secure(context, url.host)
            except ssl.SSLError as error:
                raise untrusted(url.endpoint, error) from error
            except OSError as error:
                raise unreachable(url.endpoint, error) from error

    async def _by_proxy(
        self,
        url: Url,
        proxy: Url,
        context: ssl.SSLContext | None,
        allowed: Callable[[str], bool],
        limits: ResponseLimits,
    ) -> Http1Connection:
        """A proxy resolves names by itself. What we can resolve ourselves is judged all the same."""
        if allowed is not anywhere:
            with suppress(OSError):  # a name that only the proxy knows
                judge(url, await self._addresses(url), allowed)
        try:
            sock, _ = await dial(await self._addresses(proxy), limits.connect)
        except OSError as error:
            raise unreachable(f"proxy {proxy.endpoint}", error) from error
        connection = Http1Connection(url.endpoint, "", *await asyncio.open_connection(sock=sock))
        if context is None:
            return connection
        try:
            await tunnel(connection, url, proxy, limits)
        except BaseException:
            connection.close()
            raise
        return await connection.secure(context, url.host)

    async def _addresses(self, url: Url) -> Sequence[Address]:
        try:
            return await self._resolve(url.host, url.port)
        except UnicodeError as error:
            raise UsageError(f"{url.endpoint}: the name is too long, or has an empty part") from error


def judge(url: Url, addresses: Sequence[Address], allowed: Callable[[str], bool]) -> None:
    """Refuse a host if one of its addresses is not allowed: which one is taken would be chance."""
    for address in addresses:
        if not allowed(address.ip):
            raise ForbiddenError(url.endpoint, f"leads to {address.ip}, where this request must not go")


async def tunnel(connection: Http1Connection, url: Url, proxy: Url, limits: ResponseLimits) -> None:
    """Have a proxy connect us through."""
    host, end = f"proxy {proxy.endpoint}", asyncio.get_running_loop().time() + limits.connect
    lines = [f"CONNECT {url.endpoint} HTTP/1.1", f"Host: {url.endpoint}"]
    lines += [f"Proxy-Authorization: {proxy.basic}"] if proxy.basic else []
    await connection.send("\r\n".join((*lines, "", "")).encode("latin-1"), end)
    response = ResponseParser(host, limits, head_only=True)
    while not response.done:
        response.feed(await connection.receive(end, "does not answer our CONNECT"))
    if not 200 <= response.status < 300:
        reason = f"answered {response.status} to CONNECT {url.endpoint}; check its rules, and its credentials"
        raise UnreachableError(host, reason)


@asynccontextmanager
async def within(end: float, host: object, what: str) -> AsyncIterator[asyncio.Timeout]:
    """Bound a wait; it ends with `SlowError`."""
    try:
        async with asyncio.timeout_at(end) as timeout:
            yield timeout
    except TimeoutError as error:
        raise SlowError(host, f"{what}; see whether it is overloaded, or allow more time") from error
