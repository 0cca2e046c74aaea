"""Where clients come in: TCP ports and unix sockets, plain or with TLS.

A unix socket is a file that outlives its server. One that nobody answers on is a left-over and is removed; one that is
answered on, or that is no socket at all, is not ours to remove.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from wigwag.wire.tls import MemoryCertificate, Tls


class Listener(Struct, frozen=True, kw_only=True):
    """One place to listen at.

    >>> Listener(port=8013)
    Listener(kind='tcp', host=None, port=8013, reuse=False, path='', mode=384, tls=None, bound=None)
    """

    kind: Literal["tcp", "unix"] = "tcp"
    host: str | None = None
    """None is every interface."""
    port: int = 0
    reuse: bool = False
    """Share the port with other processes (SO_REUSEPORT)."""
    path: str = ""
    mode: int = 0o600
    """Of the unix socket."""
    tls: Tls | MemoryCertificate | None = None
    bound: socket.socket | None = None
    """A socket that is bound already, instead of a host and a port."""


async def bind(listener: Listener) -> list[socket.socket]:
    """Return the bound sockets of a listener; a host may have several addresses, and every interface has two."""
    if listener.bound is not None:
        return [listener.bound]
    if listener.kind == "unix":
        return [unix_socket(listener)]
    addresses = await asyncio.get_running_loop().getaddrinfo(
        listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(addresses):
            if (sock := _tcp_socket(listener, family, address, alone=len(addresses) == 1)) is not None:
                bound.append(sock)
    except OSError:
        for each in bound:
            each.close()
        raise
    if not bound:
        raise OSError(errno.EADDRNOTAVAIL, f"no address of {listener.host or 'this machine'} can be listened on")
    return bound


def _tcp_socket(listener: Listener, family: int, address: Any, *, alone: bool) -> socket.socket | None:
    """Return a bound socket; None if this machine has no such address but may have others."""
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        if alone:
            raise
        return None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.reuse:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRNOTAVAIL and not alone:
            return None
        raise OSError(error.errno, f"error while attempting to bind on address {address}: {error.strerror}") from None
    return sock


def unix_socket(listener: Listener) -> socket.socket:
    """Return a bound unix socket; raise if another server has it."""
    remove_stale(Path(listener.path))
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mask = os.umask(0o177)
        try:
            sock.bind(listener.path)
        finally:
            os.umask(mask)
        Path(listener.path).chmod(listener.mode)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def remove_stale(path: Path) -> None:
    """Remove a socket that no server answers on."""
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(str(path)) in (0, errno.EAGAIN):
            return
    path.unlink(missing_ok=True)
