"""HTTP/2 streams, and the flow control that lets them send.

Every DATA byte is taken from two windows, the stream's and the connection's, and from `room`: what the transport takes
before it is full. A stream that waits for its own window is in `starved`; one that waits for the connection's, or for
room, is in `blocked`. When that opens, blocked streams take turns, one frame each, so that a large response cannot
delay a small one. Nothing else is ever queued: frames without flow control go straight to `out`. What waits is a
reference to the response's bytes, counted in `retained`; nothing is copied before it can leave.

Invariant: a stream is in `streams` from its HEADERS until both ends are done with it or one has reset it; after that
(`gone`) whatever its handler still sends goes nowhere. Nearly every response is small and leaves at once, in the one
pass through `reply`; the slow path is for responses larger than a frame or a window.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.floods import Floods
from wigwag.wire.h2.frames import ErrorCode, SettingId, StreamError, need
from wigwag.wire.h2.heads import Head
from wigwag.wire.h2.hpack import HeaderEncoder
from wigwag.wire.http import Headers, Reply, Request, RequestBody
from wigwag.wire.server.retained import Progress, Retained

GRANT = 1 << 20
"""Bytes that the other end may send ahead on a stream."""
UNLIMITED = 1 << 62
SHRINK = b"\x20"
"""The HPACK instruction that empties the table which we never use."""
TABLE_SIZE = 4096
LARGEST_FRAME = 2**24 - 1
BODYLESS = frozenset({204, 205, 304})
EMPTY: Headers = ()


class FlowControl:
    """The sending half of a connection: its frames, the windows, and the streams that wait for them."""

    __slots__ = (
        "blocked", "encoder", "floods", "initial", "max_frame", "out", "retained", "room", "sent", "shrink", "starved",
        "streams", "widened", "window",
    )  # fmt: skip

    def __init__(self, encoder: HeaderEncoder, floods: Floods, retained: Retained | None = None) -> None:
        self.encoder, self.floods, self.retained = encoder, floods, retained or Retained()
        self.out: list[bytes] = []
        self.streams: dict[int, Http2Stream] = {}
        self.blocked: dict[int, Http2Stream] = {}
        self.starved: dict[int, Http2Stream] = {}
        self.window = self.initial = f.DEFAULT_WINDOW
        """Of the connection, and of a stream that begins."""
        self.max_frame, self.room, self.sent = f.MAX_FRAME, UNLIMITED, 0
        self.widened = self.shrink = False
        """Whether streams that could not send may do so now; whether the next header block must begin with `SHRINK`."""

    def send_block(self, stream: int, block: bytes, flags: int) -> None:
        """Send a header block that does not fit in one frame, or that comes after a change of the table's size."""
        if self.shrink:
            self.shrink, block = False, SHRINK + block
        self.out.append(f.header_frames(stream, block, flags, f.MAX_FRAME))

    def apply(self, settings: bytes) -> None:
        """Apply the payload of a SETTINGS frame. The last value of each setting counts."""
        for key, value in dict(f.SETTING.iter_unpack(settings)).items():
            if key == SettingId.HEADER_TABLE_SIZE:
                self.shrink |= value < TABLE_SIZE
            elif key == SettingId.ENABLE_PUSH:
                need(value <= 1, ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
            elif key == SettingId.MAX_FRAME_SIZE:
                need(f.MAX_FRAME <= value <= LARGEST_FRAME, ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of bounds")
                self.max_frame = min(value, 4 * f.MAX_FRAME)
            elif key == SettingId.INITIAL_WINDOW_SIZE:
                need(value <= f.MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
                self._shift(value)

    def _shift(self, initial: int) -> None:
        """Change the window of every stream by what the initial window changes, below zero if need be."""
        difference, self.initial = initial - self.initial, initial
        for stream in self.streams.values():
            stream.window += difference
            need(stream.window <= f.MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is too large")
        for stream in [each for each in self.starved.values() if each.window > 0]:
            self.blocked[stream.id] = self.starved.pop(stream.id)

    def widen(self, size: int) -> None:
        """Let the connection send more."""
        need(size > 0, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
        self.window += size
        need(self.window <= f.MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is too large")
        if size >= self.window:  # there was none before; otherwise nobody waits for it
            self.pump()

    def widen_stream(self, stream: Http2Stream, size: int) -> None:
        """Let one stream send more."""
        stream.window += size
        if not size or stream.window > f.MAX_WINDOW:
            raise StreamError(stream.id, ErrorCode.FLOW_CONTROL_ERROR if size else ErrorCode.PROTOCOL_ERROR)
        self.widened = True
        if stream.window > 0 and stream.id in self.starved:
            del self.starved[stream.id]
            stream.flush()

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


class StreamOwner(Protocol):
    """A stream's connection."""

    output: FlowControl

    def on_sent(self, stream: Http2Stream) -> None:
        """Note that everything is sent: the last frame ended our half of the stream."""

    def reset_stream(self, id: int, code: ErrorCode) -> None:
        """Break a stream off."""


class Http2Stream(Struct, eq=False):
    """One exchange on an HTTP/2 connection. What waits for its window is the chunk itself, which streams share."""

    _owner: StreamOwner
    id: int
    head: Head
    allowed: int
    """Bytes that the other end may still send."""
    opened: float
    window: int
    """Bytes that we may still send."""
    body: bytes | bytearray = b""
    size: int = 0
    ended: bool = False
    """Whether the other end has sent everything."""
    gone: bool = False
    request: Request = None  # type: ignore[assignment]  # not before it is whole
    task: Any = None
    incoming: RequestBody | None = None
    """Where the body goes, if its handler has the request already."""
    progress: Progress | None = None
    sent: int = 0
    """How much of what waits has left."""
    _pending: bytes = b""
    retained: bytes = b""
    """What of it is counted as waiting."""
    _trailers: Headers | None = None

    def reply(self, reply: Reply) -> None:
        if self.gone:
            return
        output, body, trailers, size = self._owner.output, reply.body, reply.trailers, len(reply.body)
        start, block = output.encoder.encode(reply.status, reply.headers, not size and not trailers)
        if (
            size > self.window
            or size > output.window
            or size > output.max_frame
            or output.shrink
            or not start
            or reply.status in BODYLESS
            or self.request.method == b"HEAD"
        ):
            self._reply_slowly(reply)
            return
        me, out = self.id.to_bytes(4, "big"), output.out
        if not trailers:
            out += (start, me, block)
            if size:
                out += (f.HEAD.pack(size >> 8, size & 255, f.DATA, f.END_STREAM, self.id), body)
        else:
            last, tail = output.encoder.encode(0, trailers, True)
            if not last:
                self._reply_slowly(reply)
                return
            if size:
                out += (start, me, block, f.HEAD.pack(size >> 8, size & 255, f.DATA, 0, self.id), body, last, me, tail)
            else:
                out += (start, me, block, last, me, tail)
        output.floods.sent = True
        output.window -= size
        self._owner.on_sent(self)

    def _reply_slowly(self, reply: Reply) -> None:
        trailers = reply.trailers or EMPTY
        self._owner.output.encoder.encode(0, trailers, True)
        if self.begin(reply.status, reply.headers, end=not reply.body and not trailers):
            self.send_last(reply.body, trailers)
            self._retain()

    def begin(self, status: int, headers: Headers, *, end: bool = False) -> bool:
        if self.gone:
            return False
        end = end or status in BODYLESS or self.request.method == b"HEAD"
        self.send_headers(status, headers, end)
        if end:
            self._owner.on_sent(self)
        return not end

    def send_headers(self, status: int, headers: Headers, end: bool) -> None:
        """Send a header block: a head, or trailers if there is no status."""
        output = self._owner.output
        start, block = output.encoder.encode(status, headers, end)
        output.floods.sent = True
        if start and not output.shrink:
            output.out += (start, self.id.to_bytes(4, "big"), block)
        else:
            output.send_block(self.id, block, f.END_STREAM if end else 0)

    def send(self, chunk: bytes) -> None:
        if chunk and not self.gone:
            self._pending, self.sent = self._pending[self.sent :] + chunk, 0
            self.flush()
            self._retain()

    def send_last(self, body: bytes, trailers: Headers) -> None:
        """Send a whole body, and end our half of the stream."""
        self._pending, self._trailers = body, trailers
        self.flush()

    def end(self, trailers: Headers) -> None:
        if not self.gone:
            self._trailers = trailers
            self.flush()

    def abort(self, *, cancelled: bool = False) -> None:
        if not self.gone:
            self._owner.reset_stream(self.id, ErrorCode.CANCEL if cancelled else ErrorCode.INTERNAL_ERROR)

    def writable(self) -> bool:
        output = self._owner.output
        return self.sent >= len(self._pending) and self.window > 0 and output.window > 0 and output.room > 0

    def flush(self) -> None:
        """Send what can leave."""
        while self.step():
            pass

    def _retain(self) -> None:
        """Count what waits, if anything does."""
        self.release()
        if self._pending and not self.gone:
            self.retained = self._pending
            self._owner.output.retained.add(self.retained)

    def release(self) -> None:
        """Count what waited no longer."""
        if self.retained:  # only while the stream waits
            output = self._owner.output
            output.retained.remove(self.retained)
            output.widened, self.retained = True, b""

    def step(self) -> bool:
        """Send one frame if there is room; return whether there may be more."""
        output, left = self._owner.output, len(self._pending) - self.sent
        if left <= 0:
            self._end()
            return False
        room = min(self.window, output.window, output.max_frame, output.room)
        if room <= 0:
            output.wait(self)
            return False
        size = min(left, room)
        last = size == left and self._trailers == EMPTY
        head = f.HEAD.pack(size >> 8, size & 255, f.DATA, f.END_STREAM if last else 0, self.id)
        output.out += (head, self._pending[self.sent : self.sent + size])
        output.floods.sent = True
        output.floods.data_frames += 1
        output.window -= size
        output.room -= size
        output.sent += size
        self.window -= size
        self.sent += size
        if last:
            self._sent()
        return not last

    def _end(self) -> None:
        """Nothing waits any more: end our half of the stream if its trailers are known."""
        self._pending, self.sent = b"", 0
        self.release()
        self._owner.output.served(self)
        if self._trailers is None:
            return
        if self._trailers:
            self.send_headers(0, self._trailers, True)
        else:
            self._owner.output.out.append(f.HEAD.pack(0, 0, f.DATA, f.END_STREAM, self.id))
        self._sent()

    def _sent(self) -> None:
        self._pending, self.sent, self._trailers = b"", 0, None
        self._owner.on_sent(self)
