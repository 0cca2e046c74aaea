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
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from wigwag.wire.tls import Certificates, Tls

BACKLOG = 1024


class Listener(Struct, frozen=True, kw_only=True):
    """One place to listen at.

    >>> Listener(port=8013)
    Listener(kind='tcp', host=None, port=8013, reuse=False, path='', mode=384, tls=None)
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
    tls: Tls | None = None


class Listening:
    """A listener at work."""

    def __init__(self, listener: Listener, server: asyncio.Server, inode: int = 0) -> None:
        self.listener, self._server, self._inode = listener, server, inode

    def addresses(self) -> list[str]:
        """Return where it can be reached: `host:port`, or the path."""
        if self.listener.kind == "unix":
            return [self.listener.path]
        names = [each.getsockname() for each in self._server.sockets]
        return [f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}" for name in names]

    def close(self) -> None:
        """Accept nothing more; remove the socket file, if it is still ours."""
        self._server.close()
        path = Path(self.listener.path)
        if self._inode and path.exists() and path.stat().st_ino == self._inode:
            path.unlink()

    async def closed(self) -> None:
        """Wait until nothing is left of it."""
        await self._server.wait_closed()


async def listen(listener: Listener, protocol: Callable[[], asyncio.Protocol], handshake: float) -> Listening:
    """Begin to accept clients; a TLS handshake may take `handshake` seconds."""
    loop = asyncio.get_running_loop()
    secure = Certificates(listener.tls).front if listener.tls else None
    timeout = handshake if secure else None
    if listener.kind == "tcp":
        server = await loop.create_server(
            protocol,
            listener.host or None,
            listener.port,
            backlog=BACKLOG,
            reuse_port=listener.reuse or None,
            ssl=secure,
            ssl_handshake_timeout=timeout,
        )
        return Listening(listener, server)
    made = unix_socket(listener)
    server = await loop.create_unix_server(
        protocol, sock=made, backlog=BACKLOG, ssl=secure, ssl_handshake_timeout=timeout
    )
    return Listening(listener, server, inode(listener.path))


def inode(path: str) -> int:
    """Return which file a path is at the moment."""
    return Path(path).stat().st_ino


def unix_socket(listener: Listener) -> socket.socket:
    """Return a bound unix socket; raise if another server has it."""
    remove_stale(Path(listener.path))
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mask = os.umask(0o177)
        try:
            made.bind(listener.path)
        finally:
            os.umask(mask)
        Path(listener.path).chmod(listener.mode)
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made


def remove_stale(path: Path) -> None:
    """Remove a socket that no server answers on."""
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(str(path)) in (0, errno.EAGAIN):
            return
    path.unlink(missing_ok=True)
