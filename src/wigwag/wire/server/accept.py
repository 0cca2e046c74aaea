"""Accepting connections ourselves, and not by `loop.create_server`, because only then can they be counted.

asyncio tells a protocol of a TLS connection when its handshake is over. Until then the connection holds a descriptor
that nobody has counted, and a thousand clients that never shake hands take all there are. Here each connection is
admitted or closed as soon as it is accepted, and counts until its descriptor is closed.

When there is no descriptor left, the listening socket stays readable: accepting is paused for a second, instead of
being tried at every turn of the loop. Meanwhile clients wait in the backlog.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING

from wigwag.loglimit import LogLimiter
from wigwag.wire.peer import UNIX
from wigwag.wire.server.admission import ACCEPT, ADDRESS, PORT, Admitted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wigwag.wire.server.admission import Admission

    Connect = Callable[[Admitted], asyncio.Protocol]

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


class Acceptor:
    """Accepts connections on listening sockets, and makes each one's protocol. Close it."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        admission: Admission,
        connect: Connect,
        tasks: asyncio.TaskGroup,
        tls: tuple[ssl.SSLContext, float] | None = None,
    ) -> None:
        """`tls` is a context and how many seconds a handshake may take; tasks of `tasks` wait for handshakes."""
        self.sockets, self._admission, self._connect, self._group = sockets, admission, connect, tasks
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
        for each in sockets:
            self._resume(each)

    def close(self) -> None:
        """Accept nothing more, and give up what has not begun to be served."""
        for each in self.sockets:
            if (timer := self._paused.pop(each, None)) is not None:
                timer.cancel()
            else:
                self._loop.remove_reader(each.fileno())
            each.close()
        self.sockets = ()
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
        task = self._group.create_task(self._connected(accepted, admitted))
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
