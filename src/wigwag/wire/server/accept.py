"""Accepting connections ourselves, and not by `loop.create_server`, because only then can they be counted.

asyncio tells a protocol of a TLS connection when its handshake is over. Until then the connection holds a descriptor
that nobody has counted, and a thousand clients that never shake hands take all there are. Here each connection is
admitted or closed as soon as it is accepted, and counts until its descriptor is closed.

Clients on this machine are exempt from the limit for one address: behind a sidecar of a service mesh, every client is
one of them.

When there is no descriptor left, the listening socket stays readable: accepting is paused for a second, instead of
being tried at every turn of the loop. Meanwhile clients wait in the backlog.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wigwag.loglimit import LogLimiter
from wigwag.wire.peer import UNIX, is_loopback, network_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wigwag.wire.limits import WireLimits
    from wigwag.wire.server.listen import Listener

PORT, ADDRESS, ACCEPT = "port_limit", "address_limit", "accept_error"
"""Why connections are refused."""
BACKLOG = 1024
AT_ONCE = 64
"""Connections accepted in one turn of the loop."""
PAUSE_SECONDS = 1.0
log = logging.getLogger("wigwag.wire")
_ADVICE = {
    PORT: "clients should share connections; or raise --max-connections",
    ADDRESS: "raise --max-connections-per-address if they are many clients behind one address",
    ACCEPT: "accepting again in 1 s; raise the limit of open files (ulimit -n)",
}


class Admission:
    """The connections of a port, in all and from each client. `refused` counts those that were refused, by reason."""

    def __init__(self, limits: WireLimits) -> None:
        self.most, self._per_address = limits.connections, limits.connections_per_address
        self.open = 0
        self.refused: Counter[str] = Counter({PORT: 0, ADDRESS: 0, ACCEPT: 0})
        self._by_network: Counter[str] = Counter()

    def admit(self, host: str) -> Admitted | str:
        """Count a connection from a host, or return why it is refused."""
        network = "" if not self._per_address or is_loopback(host) else network_of(host)
        if self.open >= self.most:
            return self.refuse(PORT)
        if network and self._by_network[network] >= self._per_address:
            return self.refuse(ADDRESS)
        self.open += 1
        if network:
            self._by_network[network] += 1
        return Admitted(self, network)

    def refuse(self, reason: str) -> str:
        """Count a connection that was turned away."""
        self.refused[reason] += 1
        return reason

    def release(self, network: str) -> None:
        """Forget a connection that was admitted."""
        self.open -= 1
        if network:
            self._by_network[network] -= 1
            if not self._by_network[network]:
                del self._by_network[network]


class Admitted:
    """A connection that counts until it is released, by whichever end comes first."""

    __slots__ = ("_admission", "_network")

    def __init__(self, admission: Admission, network: str) -> None:
        self._admission: Admission | None = admission
        self._network = network

    def release(self) -> None:
        """Count it no longer."""
        if self._admission is not None:
            self._admission.release(self._network)
            self._admission = None


class Acceptor:
    """Accepts the connections of a listener, and makes each one's protocol. Close it."""

    def __init__(
        self,
        listener: Listener,
        sockets: Sequence[socket.socket],
        admission: Admission,
        connect: Callable[[Admitted], asyncio.Protocol],
        tasks: asyncio.TaskGroup,
        tls: tuple[ssl.SSLContext, float] | None = None,
    ) -> None:
        """`tls` is a context and how many seconds a handshake may take; tasks of `tasks` wait for handshakes."""
        self._listener, self._sockets, self._admission = listener, sockets, admission
        self._connect, self._tasks = connect, tasks
        self._tls = {"ssl": tls[0], "ssl_handshake_timeout": tls[1]} if tls else {}
        self._loop = asyncio.get_running_loop()
        self._limited = LogLimiter(log)
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._beginning: set[asyncio.Task[None]] = set()
        try:
            for each in sockets:
                each.setblocking(False)
                each.listen(BACKLOG)
        except OSError:  # somebody else listens at one of them since it was bound
            for each in sockets:
                each.close()
            raise
        self._names = [each.getsockname() for each in sockets]
        self._inode = Path(listener.path).stat().st_ino if listener.kind == "unix" else 0
        for each in sockets:
            self._resume(each)

    def addresses(self) -> list[str]:
        """Return where it can be reached: `host:port`, or the path."""
        if self._listener.kind == "unix":
            return [self._listener.path]
        return [f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}" for name in self._names]

    def close(self) -> None:
        """Accept nothing more, and remove the socket file if it is ours. Handshakes that have begun go on."""
        for each in self._sockets:
            if (timer := self._paused.pop(each, None)) is not None:
                timer.cancel()
            else:
                self._loop.remove_reader(each.fileno())
            each.close()
        self._sockets = ()
        path = Path(self._listener.path)
        if self._inode and path.exists() and path.stat().st_ino == self._inode:
            path.unlink()

    def accept_waiting(self) -> None:
        """Accept what waits in the backlog: these clients are connected, as far as they know."""
        for each in self._sockets:
            if each not in self._paused:
                self._accept(each)

    def give_up(self) -> None:
        """Drop what has not begun to be served: clients that are still shaking hands."""
        for task in self._beginning:
            task.cancel()

    async def closed(self) -> None:
        """Wait until nothing is left of it."""
        if self._beginning:
            await asyncio.wait(self._beginning)

    def _resume(self, listening: socket.socket) -> None:
        self._paused.pop(listening, None)
        self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        self._loop.remove_reader(listening.fileno())
        self._paused[listening] = self._loop.call_later(PAUSE_SECONDS, self._resume, listening)
        self._admission.refuse(ACCEPT)
        self._limited.log(
            logging.WARNING, self._loop.time(), "no connection can be accepted: %s; %s", error.strerror, _ADVICE[ACCEPT]
        )

    def _accept(self, listening: socket.socket) -> None:
        """Take what waits in the backlog, but not for ever: the loop has other things to do."""
        for _ in range(AT_ONCE):
            try:
                accepted, name = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:  # the client did not wait
                continue
            except OSError as error:  # no descriptor, or no memory
                self._pause(listening, error)
                return
            self._begin(accepted, name[0].partition("%")[0] if isinstance(name, tuple) else UNIX)

    def _begin(self, accepted: socket.socket, host: str) -> None:
        admitted = self._admission.admit(host)
        if not isinstance(admitted, Admitted):
            accepted.close()
            self._limited.log(
                logging.WARNING,
                self._loop.time(),
                "connection from %s refused: %s, %d are open; %s",
                host,
                admitted,
                self._admission.open,
                _ADVICE[admitted],
            )
            return
        accepted.setblocking(False)
        task = self._tasks.create_task(self._connected(accepted, admitted))
        self._beginning.add(task)
        task.add_done_callback(partial(self._began, accepted, admitted))

    async def _connected(self, accepted: socket.socket, admitted: Admitted) -> None:
        """Make the protocol; with TLS, after the handshake. One that fails, or is given up, leaves nothing behind."""
        try:
            await self._loop.connect_accepted_socket(partial(self._connect, admitted), accepted, **self._tls)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - a client that cannot shake hands must not end the server
            log.debug("connection failed before its first request: %s", error)
            accepted.close()
            admitted.release()

    def _began(self, accepted: socket.socket, admitted: Admitted, task: asyncio.Task[None]) -> None:
        """A task that was cancelled may not even have begun."""
        self._beginning.discard(task)
        if task.cancelled():
            accepted.close()
            admitted.release()
