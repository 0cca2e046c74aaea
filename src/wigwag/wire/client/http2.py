"""An HTTP/2 connection of ours: from an endpoint to a server that speaks it, and whether that server is still there.

Every address is tried in turn, each with a time of its own, until one answers as HTTP/2 servers do: a socket that
connects proves little. What each of them did instead is in the error. The authority of certificates is read anew for
every connection, since files are replaced while we run.

A connection can be dead without a word: a node that lost its power, a firewall that forgot us. So we ping from time to
time, whatever else happens; if nothing at all arrives for a while after a ping, the connection is over. The next ping
waits for the answer to the one before, so that pings never arrive closer together than we promise: servers punish
those that do.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from wigwag.wire.client.addresses import Address, connect, resolve
from wigwag.wire.client.tls import Trust
from wigwag.wire.h2.client import CLIENT_LIMITS, Http2Client
from wigwag.wire.h2.frames import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from wigwag.pipeline.clock import Clock, Timer

Place: TypeAlias = tuple[str, int] | str
"""A host and a port, or the path of a unix socket; one that begins with NUL is abstract."""
MOST_TRIED = 16
SHUTDOWN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is, what it is called, and whom to believe that it is the one."""

    places: tuple[Place, ...]
    authority: str
    """What the server is asked for; without its port also the name in its certificate."""
    tls: bool = False
    trust: Trust = Trust()
    """The files with the authorities of its certificate, and with our own."""
    patience: float = 10.0
    """Seconds to connect and greet, for each address."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """When to ask whether the other end is there, in seconds."""

    every: float = 30.0
    """From the answer to one ping to the next ping; 0: never ping."""
    patience: float = 20.0
    """How long nothing may arrive after a ping."""


class Http2Connection(asyncio.Protocol):
    """One connection. Whoever asks something on its machine calls `flush`."""

    def __init__(self, keep_alive: KeepAlive, clock: Clock) -> None:
        self._keep_alive, self._clock = keep_alive, clock
        self.machine = Http2Client(CLIENT_LIMITS, clock.now())
        self.transport: asyncio.Transport
        self._greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closed = asyncio.Event()
        self._timer: Timer | None = None
        self._pinged = self._received = clock.now()

    # the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self.transport = cast("asyncio.Transport", transport)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Take what came, and send what that makes us send."""
        self._received, pongs = self._clock.now(), self.machine.pongs
        self.machine.receive(data, self._received)
        if self.machine.greeted and not self._greeted.done():
            self._greeted.set_result(None)
            self._wait()
        elif self.machine.pongs > pongs:
            self._wait()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits for a response."""
        self._set(0, None)
        self.machine.lost("the server closed the connection" if exc is None else f"the connection was lost: {exc}")
        if not self._greeted.done() and self.machine.ended is not None:
            self._greeted.set_exception(ConnectionError(self.machine.ended.reason))
        self._closed.set()

    def pause_writing(self) -> None:
        """Take nothing more from a server that does not take what we send."""
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        if not self.transport.is_closing():
            self.transport.resume_reading()

    # our calls

    async def greeted(self) -> None:
        """Wait until the other end has shown that it speaks HTTP/2; `ConnectionError` if it does not."""
        secure: ssl.SSLObject | None = self.transport.get_extra_info("ssl_object")
        if secure is not None and secure.selected_alpn_protocol() not in ("h2", None):  # None may still be one
            raise ConnectionError("it does not speak HTTP/2: TLS agreed on something else")
        await self._greeted

    def flush(self) -> None:
        """Send what there is to send, and close if that was all. What waits then might do so for ever: drop it."""
        machine, transport = self.machine, self.transport
        if machine.out:
            transport.write(b"".join(machine.out))
            machine.out.clear()
        if machine.closing and transport.get_write_buffer_size():
            transport.abort()
        elif machine.closing:
            transport.close()

    async def close(self) -> None:
        """End the connection, and wait until it is over."""
        self._greeted.cancel()
        self.machine.fail(ErrorCode.NO_ERROR)
        self.flush()
        await self._closed.wait()

    # keep-alive

    def _wait(self) -> None:
        """Ping after a while."""
        self._set(self._keep_alive.every, self._ping)

    def _ping(self) -> None:
        self._pinged = self._clock.now()
        self.machine.ping()
        self.flush()
        self._set(self._keep_alive.patience, self._judge)

    def _judge(self) -> None:
        """Give up, unless something came since the ping: then its answer may be queued behind a large response."""
        if self._received > self._pinged:
            self._pinged = self._received
            self._set(self._keep_alive.patience, self._judge)
        else:
            self.machine.lost(f"the server has not answered a ping for {self._keep_alive.patience:g} s")
            self.transport.abort()

    def _set(self, seconds: float, callback: Callable[[], object] | None) -> None:
        """Have at most one time at which to do something."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if callback is not None and self._keep_alive.every > 0:
            self._timer = self._clock.call_at(self._clock.now() + seconds, callback)


@asynccontextmanager
async def connected(endpoint: Endpoint, keep_alive: KeepAlive, clock: Clock) -> AsyncIterator[Http2Connection]:
    """Connect, and close in the end; `ConnectionError` says what happened at each address."""
    connection = await _first(endpoint, keep_alive, clock)
    try:
        yield connection
    finally:
        await connection.close()


async def _first(endpoint: Endpoint, keep_alive: KeepAlive, clock: Clock) -> Http2Connection:
    context = _context(endpoint) if endpoint.tls else None
    problems, left = [], MOST_TRIED
    for place in endpoint.places:
        try:
            async with asyncio.timeout(endpoint.patience):
                addresses = await _resolve(place)
        except OSError as error:
            problems.append(f"{place[0]} cannot be resolved: {_explain(error, endpoint.patience)}")
            continue
        for address in addresses[:left]:
            left -= 1
            try:
                async with asyncio.timeout(endpoint.patience):
                    return await _open(address, endpoint, context, Http2Connection(keep_alive, clock))
            except OSError as error:
                problems.append(f"{_text(address)}: {_explain(error, endpoint.patience)}")
    raise ConnectionError("; ".join(problems) or "there is no address to connect to")


async def _resolve(place: Place) -> Sequence[Address]:
    if isinstance(place, str):
        return [Address(socket.AF_UNIX, place)]
    try:
        return await resolve(*place)
    except UnicodeError as error:
        raise OSError("it is no host name") from error


def _text(address: Address) -> str:
    if isinstance(address.socket, str):
        path = address.socket
        return f"unix:{path}" if path[:1] != "\0" else f"unix-abstract:{path[1:]}"
    host, port = address.socket[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


async def _open(
    address: Address, endpoint: Endpoint, context: ssl.SSLContext | None, connection: Http2Connection
) -> Http2Connection:
    sock = await connect(address)
    try:
        await asyncio.get_running_loop().create_connection(
            lambda: connection,
            sock=sock,
            ssl=context,
            server_hostname=_host(endpoint.authority) if context else None,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS if context else None,
        )
    except BaseException:
        sock.close()
        raise
    try:
        await connection.greeted()
    except BaseException:
        await connection.close()
        raise
    return connection


def _host(authority: str) -> str:
    """Return an authority without its port.

    >>> _host("flags:8015"), _host("[::1]:8015"), _host("flags"), _host("::1")
    ('flags', '::1', 'flags', '::1')
    """
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0] if authority.count(":") == 1 else authority


def _context(endpoint: Endpoint) -> ssl.SSLContext:
    try:
        return endpoint.trust.context("h2")
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(endpoint.trust.files())
        raise ConnectionError(f"{files}: no certificates can be read: {error.strerror or error}") from error


def _explain(error: OSError, patience: float) -> str:
    """Say in a few words why an address is of no use."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error}); does it speak TLS?"
    if isinstance(error, TimeoutError) and error.errno is None:
        return f"no answer within {patience:g} s"
    if isinstance(error, socket.gaierror) or not error.errno:
        return str(error.strerror or error) or type(error).__name__
    return os.strerror(error.errno)
