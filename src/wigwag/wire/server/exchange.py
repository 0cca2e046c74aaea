"""What a server's connection drives and what `h1` and `h2` provide: the protocol of a connection without I/O.

    Machine   bytes in; exchanges that are ready, exchanges that the client gave up
    Output    bytes out, and what waits for room
    Exchange  a request, and either one reply or begin, send …, end

Neither knows a socket, a task or a clock.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from wigwag.wire.http import Headers, Reply, Request
from wigwag.wire.server.retained import Retained


class Exchange(Protocol):
    """One request under way."""

    request: Request
    gone: bool
    """Whether the response is complete, or not wanted any more."""
    task: Any
    """Whoever works on the response, if it takes time; the machine only keeps it."""

    def reply(self, reply: Reply) -> None:
        """Respond at once."""

    def begin(self, status: int, headers: Headers) -> bool:
        """Begin a response that goes on; false if the client wants its head only."""

    def send(self, chunk: bytes) -> None:
        """Send more of it."""

    def end(self, trailers: Headers) -> None:
        """End it."""

    def abort(self, *, cancelled: bool = False) -> None:
        """Break it off, so that the client cannot take it for whole."""

    def writable(self) -> bool:
        """Whether what is sent now could leave now."""


class Output(Protocol):
    """The sending half of a connection."""

    out: list[bytes]
    """Bytes to be sent."""
    widened: bool
    """Whether exchanges that were not writable may be so now."""
    room: int
    """Bytes of large responses that may be added to `out` before the transport has taken what is there."""
    retained: Retained
    """What waits for a window or for room."""

    def choked(self) -> bool:
        """Whether something waits for nothing but room."""

    def pump(self) -> None:
        """Send what waits, as far as there is room."""


class Machine(Protocol):
    """One connection."""

    ready: deque[Any]
    """Exchanges to be responded to."""
    cancelled: list[Any]
    """Exchanges that need no response any more."""
    out: list[bytes]
    """Bytes to be sent."""
    closing: bool
    """Whether the connection is over once `out` is sent."""

    @property
    def output(self) -> Output:
        """What goes out."""

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes."""

    def crowded(self) -> bool:
        """Whether nothing more should be read until something is responded to."""

    def half_closed(self) -> None:
        """Note that the client will send nothing more."""

    def expire(self, now: float) -> None:
        """Give up what has taken too long."""

    def cut(self, reason: str) -> None:
        """End the connection and everything on it, because it takes too much of ours."""

    def drain(self) -> None:
        """Take nothing new; close when everything under way is done."""
