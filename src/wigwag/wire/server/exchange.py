"""One request and the way back, whatever the protocol: what a connection drives, and what http1 and http2 provide.

    Machine   bytes in; exchanges that are ready, exchanges that the client gave up, bytes out
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
    """Whether the answer is complete, or not wanted any more."""
    task: Any
    """Whoever works on the answer, if it takes time; the machine only keeps it."""

    def reply(self, reply: Reply) -> None:
        """Answer at once."""

    def begin(self, status: int, headers: Headers) -> bool:
        """Begin an answer that goes on; false if the client wants its head only."""

    def send(self, chunk: bytes) -> None:
        """Send more of it."""

    def end(self, trailers: Headers) -> None:
        """End it."""

    def abort(self, *, cancelled: bool = False) -> None:
        """Break it off, so that the client cannot take it for whole."""

    def writable(self) -> bool:
        """Whether what is sent now could leave now."""


class Machine(Protocol):
    """One connection."""

    ready: deque[Any]
    """Exchanges to be answered."""
    cancelled: list[Any]
    """Exchanges that need no answer any more."""
    out: list[bytes]
    """Bytes to be sent."""
    widened: bool
    """Whether exchanges that were not writable may be so now."""
    closing: bool
    """Whether the connection is over once `out` is sent."""
    room: int
    """Bytes of large answers that may be added to `out` before the transport has taken what is there."""
    retained: Retained
    """What waits for a window or for room."""

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes."""

    def crowded(self) -> bool:
        """Whether nothing more should be read until something is answered."""

    def choked(self) -> bool:
        """Whether something waits for nothing but room."""

    def pump(self) -> None:
        """Send what waits, as far as there is room."""

    def half_closed(self) -> None:
        """Note that the client will send nothing more."""

    def expire(self, now: float) -> None:
        """Give up what has taken too long."""

    def cut(self, reason: str) -> None:
        """End the connection and everything on it, because it takes too much of ours."""

    def drain(self) -> None:
        """Take nothing new; close when everything under way is done."""
