"""What takes too long on an HTTP/2 connection, found by looking now and then instead of by a timer for each request.

A look costs nothing while requests come and go: whether a connection is idle shows in its last stream being the same
as at the look before. What waits for a window must leave at a least rate, `write_bytes` in `write_seconds`: a byte now
and then is no progress. Streams divide that rate. One that waits for the connection takes its turn after the others, so
it is given up only if the connection as a whole is too slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.wire.h2.frames import ErrorCode
from wigwag.wire.server.progress import Progress

if TYPE_CHECKING:
    from wigwag.wire.h2.server import Http2


class Expiry:
    """What the last look at a connection found."""

    __slots__ = ("_began", "_idle_since", "_last", "_progress")

    def __init__(self, now: float) -> None:
        self._began = self._idle_since = now
        self._last = 0
        self._progress = Progress()

    def check(self, machine: Http2, now: float, *, starting: bool, partial: bool) -> None:
        """End the connection, or the streams on it, that have taken too long."""
        limits = machine.limits
        if starting and now - self._began > limits.header_seconds:
            machine.fail(ErrorCode.SETTINGS_TIMEOUT, "no preface in time")
        elif machine.in_block() and now - machine.block_since > limits.header_seconds:
            machine.fail(ErrorCode.ENHANCE_YOUR_CALM, "no headers in time")
        elif partial and now - machine.progress > limits.body_seconds:
            machine.fail(ErrorCode.ENHANCE_YOUR_CALM, "no frame in time")
        elif machine.streams:
            self._idle_since, self._last = now, machine.last
            self._check_streams(machine, now)
        elif machine.last != self._last:
            self._idle_since, self._last = now, machine.last
        elif now - self._idle_since > limits.idle_seconds:
            machine.drain()

    def _check_streams(self, machine: Http2, now: float) -> None:
        limits, starved, blocked = machine.limits, machine.starved, machine.blocked
        waiting = len(starved) + len(blocked)
        if not waiting:
            self._progress = Progress()
        late = self._progress.stalled(machine.sent, now, limits.write_bytes) > limits.write_seconds
        for stream in list(machine.streams.values()):
            slow = not stream.ended and stream.incoming is None and now - stream.opened > limits.body_seconds
            if stream.id in starved or stream.id in blocked:
                stream.progress = stream.progress or Progress()
                stalled = stream.progress.stalled(stream.sent(), now, limits.write_bytes // waiting)
                slow |= stalled > limits.write_seconds and (late or stream.id in starved)
            else:
                stream.progress = None
            if slow:
                machine.break_off(stream.id, ErrorCode.CANCEL)
