"""What all servers of a process share: the scheduler, and a bound on what waits for slow clients.

The bound on what waits is kept by closing the connection that keeps most from being freed, and among equals the one
that has been waited for longest. It is searched for only when the bound is exceeded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from wigwag.loglimit import LogLimiter
from wigwag.observe import Counter, Gauge
from wigwag.wire.server.retained import Retained
from wigwag.wire.server.turns import Turns

RETAINED_BYTES = 128 * 1024 * 1024
"""Bytes that may wait for all slow clients of a process together."""


class SlowConnection(Protocol):
    """A connection for which something may wait."""

    buffered: int
    """Bytes in its transport, when last checked."""

    def keeps(self) -> int:
        """Return the bytes that closing it would free."""

    def waited(self) -> float:
        """Return since when it has taken too little."""

    def cut(self, reason: str) -> None:
        """Close it."""


class SharedResources:
    """One for each process."""

    def __init__(self, most: int = RETAINED_BYTES, clock: Callable[[], float] = monotonic) -> None:
        self._most, self.turns, self.retained = most, Turns(clock), Retained()
        self.buffered = 0
        """Bytes in all transports, when last checked."""
        self.connections: dict[SlowConnection, None] = {}
        """Those for which something waits, or did a moment ago."""
        self.log = LogLimiter(logging.getLogger("wigwag.wire"))
        self.cut = Counter("wigwag_slow_clients_closed", "Connections closed because too many bytes waited for them.")

    def instruments(self) -> list[Counter | Gauge]:
        """Return what is counted."""
        waiting = Gauge("wigwag_retained_bytes", "Bytes that wait for slow clients.", lambda: [((), self.size())])
        return [self.cut, waiting]

    def size(self) -> int:
        """Return the bytes that wait for clients."""
        return self.retained.size + self.buffered

    def note(self, connection: SlowConnection, buffered: int, *, waits: bool) -> None:
        """Note what is in the transport of a connection, and whether anything waits for its client."""
        self.buffered += buffered - connection.buffered
        connection.buffered = buffered
        if waits or buffered:
            self.connections[connection] = None
        else:
            self.connections.pop(connection, None)

    def enforce(self, now: float) -> None:
        """Close connections until the bound is kept."""
        while self.size() > self._most and self.connections:
            worst = max(self.connections, key=lambda each: (each.keeps(), -each.waited()))
            before = self.size()
            self.connections.pop(worst)
            worst.cut("too many bytes wait for slow clients")
            self.cut.add()
            self.log.log(
                logging.WARNING,
                now,
                "a slow client is cut off: %d bytes waited for all slow clients, %d are allowed; it kept %d",
                before,
                self._most,
                before - self.size(),
            )
