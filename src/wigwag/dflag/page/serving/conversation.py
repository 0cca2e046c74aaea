"""One connection: one request, one answer, and the end.

Connections are not kept, because a page for people needs none of that, and because a client can then hold a thread for
no longer than a request may take. The time is that of the whole request, so one who sends a byte now and then gains
nothing.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from wigwag.dflag.page.messages import HttpError, PageRequest, Response, finished, problem
from wigwag.dflag.page.serving.head import END, Head, parse_head

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.dflag.page.messages import PageLimits
    from wigwag.dflag.page.site import Site

_PIECE = 64 << 10
_LINGER, _LINGER_BYTES = 2.0, 64 << 20
"""What is still read of a request that was refused, in seconds and bytes."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
FULL = HttpError(503, "too many connections at a time; try again", ("Retry-After", "1"))


class GoneError(Exception):
    """The client went away before it asked for anything."""


class Inbox:
    """What comes from a client, within limits of bytes and time."""

    def __init__(self, connection: socket.socket, limits: PageLimits, clock: Callable[[], float]) -> None:
        self._connection, self._limits, self._clock = connection, limits, clock
        self._until = clock() + limits.seconds
        self._data = bytearray()
        self.whole = False
        """Whether nothing of the request is still to come."""

    def head(self) -> Head:
        """Read what comes before the body."""
        searched = 0
        while (end := self._data.find(END, max(0, searched - len(END)))) < 0:
            searched = len(self._data)
            if searched > self._limits.head:
                raise HttpError(431, f"the head of a request has at most {self._limits.head} bytes")
            self._more()
        if end > self._limits.head:
            raise HttpError(431, f"the head of a request has at most {self._limits.head} bytes")
        head = parse_head(bytes(self._data[:end]))
        del self._data[: end + len(END)]
        return head

    def body(self, head: Head) -> bytes:
        """Read the body; a client that waits for a word before it sends one gets it."""
        if head.length > self._limits.body:
            raise HttpError(413, f"a body has at most {self._limits.body} bytes")
        if head.hesitant and len(self._data) < head.length:
            self._connection.sendall(_CONTINUE)
        while len(self._data) < head.length:
            self._more()
        self.whole = True
        return bytes(self._data[: head.length])

    def _more(self) -> None:
        left = self._until - self._clock()
        if left <= 0:
            raise self._late()
        self._connection.settimeout(left)
        try:
            piece = self._connection.recv(_PIECE)
        except TimeoutError:
            raise self._late() from None
        if not piece:
            raise GoneError
        self._data += piece

    def _late(self) -> Exception:
        """A browser may connect and ask for nothing; it needs no answer."""
        if not self._data:
            return GoneError()
        return HttpError(408, f"a request must come within {self._limits.seconds:g} seconds")


def converse(site: Site, connection: socket.socket, peer: str, clock: Callable[[], float] = time.monotonic) -> None:
    """Answer the request that comes over a connection. It is for the caller to close it."""
    inbox = Inbox(connection, site.limits, clock)
    with suppress(OSError, GoneError):
        try:
            response = site(_asked(inbox, peer))
        except HttpError as refusal:
            response = finished(problem(refusal), "GET")
        connection.settimeout(site.limits.seconds)
        connection.sendall(encoded(response))
        if not inbox.whole:
            _linger(connection, clock)


def _asked(inbox: Inbox, peer: str) -> PageRequest:
    head = inbox.head()
    return PageRequest(head.method, head.path, head.query, head.headers, inbox.body(head), peer)


def encoded(response: Response) -> bytes:
    """Return an answer as it goes over the wire."""
    headers = (*response.headers, ("Connection", "close"))
    lines = [f"HTTP/1.1 {response.line}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode("latin-1") + END + response.body


def turn_away(connection: socket.socket) -> None:
    """Say that there is no room, without waiting for anything."""
    with suppress(OSError):
        connection.setblocking(False)
        connection.send(encoded(finished(problem(FULL), "GET")))


def _linger(connection: socket.socket, clock: Callable[[], float]) -> None:
    """Take what a refused client still sends, for if we hung up on it, it might never see the answer."""
    until, taken = clock() + _LINGER, 0
    connection.shutdown(socket.SHUT_WR)
    while (left := until - clock()) > 0 and taken < _LINGER_BYTES:
        connection.settimeout(left)
        piece = connection.recv(_PIECE)
        if not piece:
            return
        taken += len(piece)
