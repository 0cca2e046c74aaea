"""What a client may do now and then but not all the time: frames that cost us more than they cost it, and pings.

A frame is counted when it makes us work without asking for a response: a reset of work under way (rapid reset,
CVE-2023-44487), a mistake that makes us reset (CVE-2025-8671), settings, empty frames, priorities. WINDOW_UPDATE, and
RST_STREAM of a stream that is closed already, follow from what we sent: each request and each DATA frame earns the
client a few of them, and only those beyond that are counted.

Pings are judged the way grpc-go's server does it: a ping that follows something we sent is a bandwidth probe and free;
others must keep their distance, if the port asks for one (`ping_seconds`). Ports without keep-alive enforcement, as
flagd's evaluation port, limit pings by their rate alone: grpcio takes a keep-alive time of 0 for one ping per
millisecond, and answering that many costs next to nothing. Everything is a function of the time it is given.
"""

from __future__ import annotations

from wigwag.wire.h2.frames import ErrorCode, Http2ConnectionError
from wigwag.wire.limits import WireLimits

PERIOD = 10.0
STRIKES = 2
SLACK = 0.9
"""A client that pings every 30 seconds does so every 29.99 seconds now and then."""
WITHOUT_STREAM = 7200.0
"""What gRPC asks of clients that ping without a stream and were not allowed to."""
EARNED = 4
"""WINDOW_UPDATE or RST_STREAM frames that follow from one request or one DATA frame: net/http2 in Go sends two."""
MOST_EARNED = 10_000


class Floods:
    """The counters of one connection."""

    __slots__ = (
        "_count",
        "_credit",
        "_credited",
        "_last_ping",
        "_limits",
        "_pings",
        "_since",
        "_strikes",
        "data_frames",
        "sent",
    )

    def __init__(self, limits: WireLimits, now: float) -> None:
        self._limits, self._since, self._count = limits, now, 0
        self._last_ping, self._strikes, self._pings = float("-inf"), 0, 0
        self.sent = False
        """Whether anything was sent since the last ping."""
        self.data_frames = 0
        """DATA frames of responses that needed several."""
        self._credit = self._credited = 0

    def count(self, now: float) -> None:
        """Count one frame of the kind that is only good in small numbers."""
        self._turn(now)
        self._count += 1
        if self._count > self._limits.abuse:
            raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "too_many_control_frames")

    def _turn(self, now: float) -> None:
        """Begin a new period when the last one is over."""
        if now - self._since > PERIOD:
            self._since, self._count, self._pings = now, 0, 0

    def follow_up(self, now: float, last_stream: int) -> None:
        """Count a frame that follows from what we sent, if it is beyond what the client has earned."""
        earned = EARNED * (self.data_frames + (last_stream + 1 >> 1))
        self._credit = min(self._credit + earned - self._credited, MOST_EARNED)
        self._credited = earned
        if self._credit > 0:
            self._credit -= 1
        else:
            self.count(now)

    def ping(self, now: float, *, streams: bool) -> None:
        """Judge one ping."""
        self._turn(now)
        self._pings += 1
        if self._pings > self._limits.pings:
            raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
        last, self._last_ping = self._last_ping, now
        if self.sent:
            self.sent, self._strikes = False, 0
            return
        allowed = streams or self._limits.ping_without_stream
        if now - last < (self._limits.ping_seconds * SLACK if allowed else WITHOUT_STREAM):
            self._strikes += 1
        if self._strikes > STRIKES:
            raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
