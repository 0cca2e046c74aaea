"""One request of ours on an HTTP/2 connection, and who gets its answer.

The sending half is that of the server's streams: what does not fit the windows waits for them. The receiving half is a
`Receiver`, told what comes as it comes. What it may be sent ahead is granted again when it arrives, as long as the
receiver is hungry: a large message is never stuck half-way, and a reader that does not read holds up nobody else and
costs no more than what was granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from wigwag.wire.h2.frames import ErrorCode
from wigwag.wire.h2.heads import Head
from wigwag.wire.h2.streams import Http2Stream

if TYPE_CHECKING:
    from wigwag.wire.h2.flow import Outlet
    from wigwag.wire.http import Headers

GRANT = 1 << 20
"""What the server may send ahead on a stream."""
NO_HEAD = Head()


class Broken(NamedTuple):
    """Why an answer will never be whole."""

    reason: str
    code: int
    """Of HTTP/2."""
    link: bool = False
    """Whether the whole connection is over, and not this stream only."""


class Receiver(Protocol):
    """Who gets an answer. What is called returns at once."""

    def on_head(self, status: int, headers: Headers) -> bool:
        """Take the status and the headers; return whether the rest is wanted."""
        ...

    def on_data(self, data: bytes) -> bool:
        """Take a piece of the body; return whether the rest is wanted."""
        ...

    def on_end(self, trailers: Headers) -> None:
        """Note that the answer is whole."""

    def on_broken(self, broken: Broken) -> None:
        """Note that it never will be."""

    def on_alive(self) -> None:
        """Note that the server has answered a ping."""

    def hungry(self) -> bool:
        """Return whether what came is read fast enough to have more of it."""
        ...


class ClientStream(Http2Stream, eq=False):
    """One request."""

    receiver: Receiver = None  # type: ignore[assignment]  # `begun` sets it
    answered: bool = False
    """Whether the head of the answer is here."""
    said: bool = False
    """Whether we have said everything."""

    @classmethod
    def begun(cls, outlet: Outlet, id: int, receiver: Receiver) -> ClientStream:
        """Make a stream on which nothing has been said."""
        return cls(outlet, id, NO_HEAD, GRANT, outlet.now, outlet.initial, receiver=receiver)

    def ask(self, headers: Headers, body: bytes) -> None:
        """Send the request."""
        self._send_block(0, headers, not body)
        if body:
            self._pending, self._tail = body, ()
            self._flush()
        else:
            self.said = True

    def cancel(self) -> None:
        """Give the answer up."""
        if not self.gone:
            self._outlet.break_off(self.id, ErrorCode.CANCEL)

    def _finish(self) -> None:
        """Everything is said; the answer may still be coming."""
        self.said = True
        self._pending, self._at, self._tail = b"", 0, None
        self._outlet.served(self)
