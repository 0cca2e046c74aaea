"""The flags page on the wire server, which runs in a thread with an event loop of its own.

Each request is answered in a thread, because a change calls notifiers of the program, and these may block. They are
daemon threads and not those of an executor: Python joins an executor's threads at exit, before any `atexit` function
runs, so a notifier that never returns would keep the program from ending.

The hard case is a fork. The child has copies of the sockets, and shares the selector of the loop with its parent. It
must not close the loop, since that unregisters the parent's sockets; and if it kept its copies, a connection that the
parent closes would stay open. So `abandon` replaces the copies, and touches nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from wigwag.dflag.page.messages import HttpError, PageRequest, finished, folded, problem
from wigwag.errors import StartError
from wigwag.loop_thread import LoopThread
from wigwag.wire.http import Reply, Request
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.server import Listener, Server, serve

if TYPE_CHECKING:
    from wigwag.dflag.page.messages import PageLimits, Response
    from wigwag.dflag.page.site import Site

log = logging.getLogger("wigwag.dflag.page")
_HEADERS = 100
_UNANSWERED = HttpError(500, "the request was not answered; see the log of the program")


class PageListener:
    """Serves a site at a port until it is stopped."""

    def __init__(self, site: Site, host: str, port: int, grace: float = 2.0) -> None:
        """`grace` is how many seconds `stop` waits for requests."""
        self._site, self._process, self._grace = site, os.getpid(), grace
        self._socket = _bound(host, port)
        self.port = int(self._socket.getsockname()[1])
        self._server: Server | None = None
        self._requests: set[threading.Thread] = set()
        """Threads in which the site is working."""
        try:
            self._thread = LoopThread(self._main, "dflag page")
        except RuntimeError as error:
            self._socket.close()
            raise StartError(f"the flags page cannot start a thread: {error}") from error

    def stop(self) -> None:
        """Accept no more, wait for requests for a while, and end. A request may call this, and does not wait."""
        self._thread.stop(0.0 if threading.current_thread() in self._requests else None)

    def abandon(self) -> None:
        """In a forked child, give up the copies of the parent's sockets; the parent's connections stay open.

        The transports own the descriptors and will close them by number, so these stay valid: they become /dev/null.
        """
        self._socket.close()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in self._server.connected() if self._server is not None else ():
            os.dup2(null, descriptor, inheritable=False)
        os.close(null)

    async def _main(self) -> None:
        limits = wire_limits(self._site.limits)
        try:
            with self._socket:
                async with serve(self._answer, [Listener(bound=self._socket)], limits) as self._server:
                    try:
                        await asyncio.Event().wait()
                    finally:
                        await self._server.drain(self._grace)
        finally:
            if self._requests:
                log.warning("the flags page has stopped; requests that are still running: %d", len(self._requests))

    async def _answer(self, request: Request) -> Reply:
        """Answer a request in a thread."""
        try:
            asked = page_request(request)
        except UnicodeDecodeError:
            return _reply(finished(problem(HttpError(400, "the path is not UTF-8")), "GET"))
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        thread = threading.Thread(
            target=self._respond, args=(asked, answered), name=f"dflag page {asked.method}", daemon=True
        )
        self._requests.add(thread)
        try:
            thread.start()
        except RuntimeError:
            self._requests.discard(thread)
            raise
        return _reply(await answered)

    def _respond(self, request: PageRequest, answered: asyncio.Future[Response]) -> None:
        response = finished(problem(_UNANSWERED), request.method)  # if a notifier ends the thread
        try:
            response = self._site(request)
        finally:
            self._requests.discard(threading.current_thread())
            if self._process == os.getpid():  # else a notifier has forked, and this is the child
                with suppress(RuntimeError):  # the loop is closed
                    answered.get_loop().call_soon_threadsafe(_resolve, answered, response)


def _resolve(answered: asyncio.Future[Response], response: Response) -> None:
    if not answered.done():  # cancelled, because the client has gone or the server was stopped
        answered.set_result(response)


def wire_limits(limits: PageLimits) -> WireLimits:
    """Return the limits of the wire server. One stream for each connection, since each request has a thread."""
    return WireLimits(
        header_bytes=limits.head,
        header_count=_HEADERS,
        body_bytes=limits.body,
        connections=limits.connections,
        streams=1,
        header_seconds=limits.seconds,
        body_seconds=limits.seconds,
        idle_seconds=limits.seconds,
        write_seconds=limits.seconds,
    )


def page_request(request: Request) -> PageRequest:
    """Return a request as the site takes it; `UnicodeDecodeError` if its path is not UTF-8.

    >>> page_request(Request(b"GET", b"/flags/a%20b", b"x=1", ((b"host", b"localhost"),)))
    PageRequest(method='GET', path='/flags/a b', query='x=1', headers={'host': 'localhost'}, body=b'', peer='', \
root='', multiprocess=False)
    """
    return PageRequest(
        request.method.decode("latin-1"),
        unquote_to_bytes(request.path).decode(),
        request.query.decode("latin-1"),
        folded((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers),
        request.body,
        request.peer.address.rpartition(":")[0] if request.peer is not None else "",
    )


def _reply(response: Response) -> Reply:
    return Reply(response.status, tuple(response.raw_headers()), response.body)


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server((str(address[0]), port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise StartError(f"the flags page cannot listen at {host} port {port}: {error.strerror}") from error
