"""A socket that is listened at, and the threads that answer: one that accepts, and one for each connection.

Threads and not a loop, because of forks: an event loop shares what it waits on with a child, and would have to be
stopped for each fork. A child of this one only closes its copies of the sockets, and the parent notices nothing.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from wigwag.dflag.page.serving.conversation import converse, turn_away
from wigwag.errors import StartError

if TYPE_CHECKING:
    from wigwag.dflag.page.site import Site

log = logging.getLogger("wigwag.dflag.page")
_BACKLOG = 64
_PAUSE = 0.5
"""Seconds to wait when the system has no more connections to give."""


class Listener:
    """Serves a site until it is stopped."""

    def __init__(self, site: Site, host: str, port: int) -> None:
        self._site = site
        self._socket = _bound(host, port)
        self._wake, self._woken = socket.socketpair()
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._stopper: threading.Thread | None = None
        self._open: dict[threading.Thread, socket.socket] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, name="dflag page", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self._socket.getsockname()[1])

    def stop(self, grace: float) -> None:
        """Accept no more, let what is being answered be answered for a while, and end.

        Whoever comes second waits for the first; but not a request, which the first waits for, and not the first
        itself, which a signal may bring here once more.
        """
        here = threading.current_thread()
        with self._lock:
            second, asked = self._stopper is not None, here in self._open
            self._stopper = self._stopper or here
            self._stopping.set()
        if not second:
            try:
                self._close(grace)
            finally:
                self._ended.set()
        elif not asked and here is not self._stopper:
            self._ended.wait()

    def _close(self, grace: float) -> None:
        with suppress(OSError):
            self._wake.send(b"!")
        self._thread.join()
        self._socket.close()
        self._hang_up(socket.SHUT_RD)  # who has not asked yet will not be answered
        self._wait(grace)
        self._hang_up(socket.SHUT_RDWR)
        self._wait(grace)
        self._wake.close()
        self._woken.close()
        if left := self._others():
            log.warning("%d requests to the flags page have not ended within %g s", len(left), 2 * grace)

    def abandon(self) -> None:
        """Let go of everything in a child, which has none of the threads. The parent's connections stay as they are."""
        for one in (self._socket, self._wake, self._woken, *self._open.values()):
            one.close()
        self._open, self._lock = {}, threading.Lock()  # the old one may be held by a thread that is not here

    def _accept(self) -> None:
        with selectors.PollSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._stopping.is_set():
                selector.select()
                if not self._stopping.is_set():
                    self._take()

    def _take(self) -> None:
        try:
            connection, address = self._socket.accept()
        except (BlockingIOError, ConnectionError):
            return  # it has gone again
        except OSError as error:
            log.warning("the flags page cannot take a connection: %s", error.strerror)
            self._stopping.wait(_PAUSE)
            return
        self._begin(connection, str(address[0]))

    def _begin(self, connection: socket.socket, peer: str) -> None:
        thread = threading.Thread(target=self._serve, args=(connection, peer), name="dflag page request", daemon=True)
        with self._lock:
            room = len(self._open) < self._site.limits.connections
            if room:
                self._open[thread] = connection
        if not room:
            turn_away(connection)
            connection.close()
            return
        try:
            thread.start()
        except RuntimeError:
            log.warning("the flags page cannot start a thread for a request")
            self._end(thread, connection)

    def _serve(self, connection: socket.socket, peer: str) -> None:
        try:
            converse(self._site, connection, peer)
        except Exception:
            log.exception("the flags page has failed to answer %s", peer)
        finally:
            self._end(threading.current_thread(), connection)

    def _end(self, thread: threading.Thread, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(thread, None)
            connection.close()

    def _others(self) -> list[threading.Thread]:
        with self._lock:
            return [thread for thread in self._open if thread is not threading.current_thread()]

    def _hang_up(self, how: int) -> None:
        with self._lock:
            for thread, connection in self._open.items():
                with suppress(OSError):
                    if thread is not threading.current_thread():
                        connection.shutdown(how)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for thread in self._others():
            thread.join(max(0.0, until - time.monotonic()))


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        listening = socket.create_server((str(address[0]), port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise StartError(f"the flags page cannot listen at {host} port {port}: {error.strerror}") from error
    listening.setblocking(False)
    return listening
