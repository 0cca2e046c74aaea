"""From an endpoint to a connection that speaks HTTP/2.

Every address is tried in turn, each with a time of its own, until one answers as HTTP/2 servers do: a socket that
connects proves little. What each of them did instead is in the error.

Sockets are made here and handed to the loop, so that TCP, unix and abstract sockets go the same way. The authority of
certificates is read anew for every connection, since files are replaced while we run.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from wigwag.wire.client.addresses import keep_alive
from wigwag.wire.client.http2_link import Http2Link, KeepAlive
from wigwag.wire.client.tls import Trust

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wigwag.pipeline.clock import Clock

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
    roots: str = ""
    """The file with the authorities of its certificate; empty: those of the system."""
    patience: float = 10.0
    """Seconds to connect and greet, for each address."""


class DialedConnection(NamedTuple):
    """An address that a place resolved to."""

    text: str
    family: int
    address: tuple[object, ...] | str


@asynccontextmanager
async def dialled(endpoint: Endpoint, keep_alive: KeepAlive, clock: Clock) -> AsyncIterator[Http2Link]:
    """Connect, and close in the end; `ConnectionError` says what happened at each address."""
    link = await _first(endpoint, keep_alive, clock)
    try:
        yield link
    finally:
        await link.close()


async def _first(endpoint: Endpoint, keep_alive: KeepAlive, clock: Clock) -> Http2Link:
    context = _context(endpoint) if endpoint.tls else None
    problems, left = [], MOST_TRIED
    for place in endpoint.places:
        try:
            async with asyncio.timeout(endpoint.patience):
                found = await _resolve(place)
        except OSError as error:
            problems.append(f"{place[0]} cannot be resolved: {_explain(error, endpoint.patience)}")
            continue
        for each in found[:left]:
            left -= 1
            try:
                async with asyncio.timeout(endpoint.patience):
                    return await _open(each, endpoint, context, Http2Link(keep_alive, clock))
            except OSError as error:
                problems.append(f"{each.text}: {_explain(error, endpoint.patience)}")
    raise ConnectionError("; ".join(problems) or "there is no address to connect to")


async def _resolve(place: Place) -> list[DialedConnection]:
    if isinstance(place, str):
        text = f"unix:{place}" if place[:1] != "\0" else f"unix-abstract:{place[1:]}"
        return [DialedConnection(text, socket.AF_UNIX, place)]
    host, port = place
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError("it is no host name") from error
    return [DialedConnection(_text(address), family, tuple(address)) for family, _, _, _, address in found]


def _text(address: tuple[object, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


async def _open(
    found: DialedConnection, endpoint: Endpoint, context: ssl.SSLContext | None, link: Http2Link
) -> Http2Link:
    loop = asyncio.get_running_loop()
    made = socket.socket(found.family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        if found.family != socket.AF_UNIX:
            keep_alive(made)
        await loop.sock_connect(made, found.address)
        name = _host(endpoint.authority) if context else None
        quick = SHUTDOWN_SECONDS if context else None
        await loop.create_connection(
            lambda: link, sock=made, ssl=context, server_hostname=name, ssl_shutdown_timeout=quick
        )
    except BaseException:
        made.close()
        raise
    try:
        _speaks_http2(link)
        await link.greeted()
    except BaseException:
        await link.close()
        raise
    return link


def _speaks_http2(link: Http2Link) -> None:
    """Look at what TLS has agreed on. A server that agreed on nothing may still be one."""
    secure: ssl.SSLObject | None = link.transport.get_extra_info("ssl_object")
    if secure is not None and secure.selected_alpn_protocol() not in ("h2", None):
        raise ConnectionError("it does not speak HTTP/2: TLS agreed on something else")


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
        return Trust(endpoint.roots).context("h2")
    except (OSError, ssl.SSLError) as error:
        raise ConnectionError(f"{endpoint.roots}: no certificates can be read: {error.strerror or error}") from error


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
