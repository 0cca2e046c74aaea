"""The sending half of an HTTP/2 connection: what the client lets us send, and who waits for it to let us send more.

Every DATA byte is taken from two windows, the stream's and the connection's, and from `room`: what the transport takes
before it is full. A stream that waits for its own window is in `starved`; one that waits for the connection's, or for
room, is in `blocked`. When that opens, blocked streams take turns, one frame each, so that a large answer cannot keep a
small one waiting. Nothing else is ever queued: frames without flow control go straight to `out`.

What waits is a reference to the answer's bytes, counted in `retained`; nothing is copied before it can leave.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from wigwag.wire.h2.blocks import HeaderEncoder
from wigwag.wire.h2.floods import Floods
from wigwag.wire.h2.frames import DEFAULT_WINDOW, MAX_FRAME, MAX_WINDOW, ErrorCode, goaway, header_frames, reset
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.retained import Retained

if TYPE_CHECKING:
    from wigwag.wire.h2.streams import Http2Stream

FORGIVEN = 256
"""Streams that we broke off and that the client may not know about yet."""
UNLIMITED = 1 << 62
SHRINK = b"\x20"
"""The HPACK instruction that empties the table which we never use."""


class Outlet:
    """What streams need of their connection."""

    __slots__ = (
        "blocked",
        "cancelled",
        "closing",
        "draining",
        "encoder",
        "floods",
        "forgiven",
        "initial",
        "last",
        "limits",
        "max_frame",
        "now",
        "out",
        "ready",
        "retained",
        "room",
        "sent",
        "shrink",
        "starved",
        "streams",
        "widened",
        "window",
    )

    def __init__(
        self, limits: WireLimits, encoder: HeaderEncoder, now: float, retained: Retained | None = None
    ) -> None:
        self.retained, self.room = retained or Retained(), UNLIMITED
        self.limits, self.encoder, self.floods, self.now = limits, encoder, Floods(limits, now), now
        self.out: list[bytes] = []
        self.streams: dict[int, Http2Stream] = {}
        self.blocked: dict[int, Http2Stream] = {}
        self.starved: dict[int, Http2Stream] = {}
        self.forgiven: dict[int, None] = {}
        self.ready: deque[Http2Stream] = deque()
        self.cancelled: list[Http2Stream] = []
        self.window = self.initial = DEFAULT_WINDOW
        self.max_frame, self.last, self.sent = MAX_FRAME, 0, 0
        self.widened = self.closing = self.draining = self.shrink = False

    def send_block(self, stream: int, block: bytes, flags: int) -> None:
        """Send a header block that does not fit in one frame, or that comes after a change of the table's size."""
        if self.shrink:
            self.shrink, block = False, SHRINK + block
        self.out.append(header_frames(stream, block, flags, MAX_FRAME))

    def widen(self, size: int) -> None:
        """Let the connection send more."""
        self.window += size
        if self.window > MAX_WINDOW:
            self.fail(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is too large")
        if size >= self.window:  # there was none before; otherwise nobody waits for it
            self.pump()

    def pump(self) -> None:
        """Send what waits, one frame of each stream in turn, as long as there is room."""
        self.widened = True
        blocked = self.blocked
        while blocked and self.window > 0 and self.room > 0:
            stream = blocked.pop(next(iter(blocked)))
            if stream.step():
                blocked[stream.id] = stream  # after the others

    def choked(self) -> bool:
        """Return whether a stream waits for nothing but room."""
        return bool(self.blocked) and self.window > 0

    def wait(self, stream: Http2Stream) -> None:
        """Note what a stream with bytes to send waits for."""
        if stream.window <= 0:
            self.starved[stream.id] = stream
        else:
            self.blocked[stream.id] = stream

    def served(self, stream: Http2Stream) -> None:
        """Note that a stream waits for nothing."""
        self.blocked.pop(stream.id, None)
        self.starved.pop(stream.id, None)

    def forget(self, stream: Http2Stream) -> None:
        """Note that a stream is over."""
        self.streams.pop(stream.id, None)
        if self.blocked or self.starved:
            self.served(stream)
        if self.draining and not self.streams:
            self.closing = True

    def break_off(self, stream: int, code: ErrorCode) -> None:
        """Reset a stream; what the client still sends on it is forgiven."""
        self.forgive(stream, code)
        if found := self.streams.get(stream):
            self.cancel(found)

    def forgive(self, stream: int, code: ErrorCode) -> None:
        """Tell the client to stop sending on a stream, and forgive what it sends until it knows."""
        self.out.append(reset(stream, code))
        self.forgiven[stream] = None
        if len(self.forgiven) > FORGIVEN:
            del self.forgiven[next(iter(self.forgiven))]

    def cancel(self, stream: Http2Stream) -> None:
        """Drop a stream whose answer nobody waits for."""
        stream.gone = True
        stream.release()
        self.cancelled.append(stream)
        self.forget(stream)

    def fail(self, code: ErrorCode, reason: str = "") -> None:
        """End the connection and everything on it."""
        if not self.closing:
            self.out.append(goaway(self.last, code, reason))
        self.closing = True
        for stream in list(self.streams.values()):
            self.cancel(stream)

    def cut(self, reason: str) -> None:
        """End the connection and everything on it, because it takes too much of ours."""
        self.fail(ErrorCode.ENHANCE_YOUR_CALM, reason)

    def drain(self) -> None:
        """Take nothing new; close when everything under way is done."""
        if not self.draining:
            self.draining = True
            self.out.append(goaway(self.last, ErrorCode.NO_ERROR))
        if not self.streams:
            self.closing = True
