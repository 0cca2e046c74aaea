"""What takes too long on an HTTP/2 connection, found by looking now and then instead of by a timer for each request.

A look costs nothing while requests come and go: whether a connection is idle shows in its last stream being the same
as at the look before, and whether a stalled answer moves in how much of it has left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.wire.frames import Code

if TYPE_CHECKING:
    from wigwag.wire.http2 import Http2
    from wigwag.wire.http2_streams import Http2Stream


class Expiry:
    """What the last look at a connection found."""

    __slots__ = ("_began", "_idle_since", "_last")

    def __init__(self, now: float) -> None:
        self._began = self._idle_since = now
        self._last = 0

    def check(self, machine: Http2, now: float, *, starting: bool, partial: bool) -> None:
        """End the connection, or the streams on it, that have taken too long."""
        limits = machine.limits
        if starting and now - self._began > limits.header_seconds:
            machine.fail(Code.SETTINGS_TIMEOUT, "no preface in time")
        elif machine.in_block() and now - machine.block_since > limits.header_seconds:
            machine.fail(Code.ENHANCE_YOUR_CALM, "no headers in time")
        elif partial and now - machine.progress > limits.body_seconds:
            machine.fail(Code.ENHANCE_YOUR_CALM, "no frame in time")
        elif machine.streams:
            self._idle_since, self._last = now, machine.last
            self._check_streams(machine, now)
        elif machine.last != self._last:
            self._idle_since, self._last = now, machine.last
        elif now - self._idle_since > limits.idle_seconds:
            machine.drain()

    def _check_streams(self, machine: Http2, now: float) -> None:
        limits = machine.limits
        for stream in list(machine.streams.values()):
            slow = not stream.ended and stream.incoming is None and now - stream.opened > limits.body_seconds
            if slow or (stream.id in machine.blocked and self._stalled(stream, now) > limits.write_seconds):
                machine.break_off(stream.id, Code.CANCEL)

    @staticmethod
    def _stalled(stream: Http2Stream, now: float) -> float:
        """Return for how long nothing of the answer has left."""
        if stream.stall[0] != stream.sent():
            stream.stall = (stream.sent(), now)
        return now - stream.stall[1]
