"""The receiving half of an HTTP/2 connection, at either end: bytes to frames, and the frames that both ends read alike.

    bytes ─▶ FrameReader ─▶ table[kind](connection, flags, stream, payload)

What may come next is the table that frames are looked up in: first only SETTINGS, inside a header block only
CONTINUATION, otherwise everything. So the usual case pays for no checks, and no state can be forgotten in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.floods import Floods
from wigwag.wire.h2.frames import ErrorCode, Http2ConnectionError, StreamError, need
from wigwag.wire.h2.streams import FlowControl
from wigwag.wire.limits import WireLimits

TINY = 64
"""Bytes of window that are not worth a frame."""
MOST_SETTINGS = 64
"""Entries of one SETTINGS frame. There are ten that mean something anywhere."""

OnFrame: TypeAlias = Callable[[Any, int, int, bytes], None]
FrameTable: TypeAlias = tuple[OnFrame, ...]


class Receiving(Protocol):
    """A connection of either end, as its frames see it."""

    closing: bool
    draining: bool
    floods: Floods
    frames: FrameReader
    last: int
    """The highest stream."""
    limits: WireLimits
    now: float
    output: FlowControl

    def on_block(self, id: int, flags: int, block: bytes) -> None:
        """Take a whole header block."""

    def on_stream_error(self, fault: StreamError) -> None:
        """End a stream on which the other end broke the rules."""

    def fail(self, code: ErrorCode, reason: str) -> None:
        """End the connection."""


class FrameReader:
    """Bytes in, frames out: what is there in part, and what may come next."""

    __slots__ = ("_open", "_preface", "_table", "block", "block_since", "buffer", "progress")

    def __init__(self, table: FrameTable, now: float, preface: bytes = b"") -> None:
        """`table` has the frames of an open connection, and `preface` is what comes before the first one."""
        self._open, self._preface, self._table = table, preface, FIRST
        self.buffer = b""
        self.block: tuple[int, int, bytearray] = (0, 0, bytearray())
        self.progress = self.block_since = now
        """When the last frame was whole; when the header block began."""

    @property
    def starting(self) -> bool:
        """Whether the other end has not shown yet that it speaks HTTP/2."""
        return self._table is FIRST

    @property
    def in_block(self) -> bool:
        """Whether a header block is there in part."""
        return self._table is CONTINUED

    def receive(self, connection: Receiving, data: bytes, now: float) -> None:
        """Split what has come into frames, and hand them to the connection until it is closing."""
        if self.buffer:
            data = self.buffer + data
        at, end = 0, len(data)
        if self._preface and not (at := self._skip_preface(connection, data)):
            return
        while end - at >= 9 and not connection.closing:
            high, low, kind, flags, stream = f.HEAD.unpack_from(data, at)
            stop = at + 9 + (high << 8 | low)
            if stop > end or stop - at > f.MAX_FRAME + 9:
                if stop - at > f.MAX_FRAME + 9:
                    connection.fail(ErrorCode.FRAME_SIZE_ERROR, "a frame is too large")
                break
            try:
                self._table[kind](connection, flags, stream & f.MAX_WINDOW, data[at + 9 : stop])
            except StreamError as fault:
                self._stream_error(connection, fault)
            except Http2ConnectionError as fault:
                connection.fail(fault.code, fault.reason)
            at = stop
        if at:
            self.progress = now
        self.buffer = data[at:]

    def _skip_preface(self, connection: Receiving, data: bytes) -> int:
        """Return where the frames begin, 0 if that is not known yet."""
        if data.startswith(self._preface):
            size, self._preface = len(self._preface), b""
            return size
        if self._preface.startswith(data):
            self.buffer = data
        else:
            connection.fail(ErrorCode.PROTOCOL_ERROR, "no HTTP/2 preface")
        return 0

    @staticmethod
    def _stream_error(connection: Receiving, fault: StreamError) -> None:
        """End the stream; whoever makes us do that too often loses the connection."""
        connection.on_stream_error(fault)
        try:
            connection.floods.count(connection.now)
        except Http2ConnectionError as flood:
            connection.fail(flood.code, flood.reason)

    def open(self) -> FrameTable:
        """Take every kind of frame from now on."""
        self.block, self._table = (0, 0, bytearray()), self._open
        return self._table

    def begin_block(self, id: int, flags: int, payload: bytes, now: float) -> None:
        """Take the first part of a header block; only CONTINUATION may follow."""
        self.block, self._table, self.block_since = (id, flags, bytearray(payload)), CONTINUED, now


def on_headers(connection: Receiving, flags: int, id: int, payload: bytes) -> None:
    """HEADERS: the head of a message, or its trailers."""
    if flags & f.PADDED:
        payload = f.unpad(payload)
    dependent = False
    if flags & f.PRIORITISED:
        need(len(payload) >= 5, ErrorCode.FRAME_SIZE_ERROR, "priority is cut off")
        dependent, payload = f.depends_on(payload) == id, payload[5:]  # nobody uses priorities any more
    if flags & f.END_HEADERS:
        connection.on_block(id, flags, payload)
    else:
        connection.frames.begin_block(id, flags, payload, connection.now)
    if dependent:
        raise StreamError(id, ErrorCode.PROTOCOL_ERROR)


def on_continuation(connection: Receiving, flags: int, id: int, payload: bytes) -> None:
    """CONTINUATION: more of a header block, which is handed over when it is whole."""
    begun, first_flags, block = connection.frames.block
    need(id == begun, ErrorCode.PROTOCOL_ERROR, "CONTINUATION of another stream")
    block += payload
    need(len(block) <= connection.limits.header_bytes, ErrorCode.ENHANCE_YOUR_CALM, "a header block is too large")
    connection.floods.count(connection.now)
    if flags & f.END_HEADERS:
        connection.frames.open()
        connection.on_block(id, first_flags, bytes(block))


def on_priority(connection: Receiving, _flags: int, stream: int, payload: bytes) -> None:
    """PRIORITY: deprecated, checked and ignored."""
    need(stream != 0, ErrorCode.PROTOCOL_ERROR, "PRIORITY of no stream")
    connection.floods.count(connection.now)
    if len(payload) != 5:
        raise StreamError(stream, ErrorCode.FRAME_SIZE_ERROR)
    if f.depends_on(payload) == stream:
        raise StreamError(stream, ErrorCode.PROTOCOL_ERROR)


def on_first_settings(connection: Receiving, flags: int, stream: int, payload: bytes) -> None:
    """SETTINGS, as the first frame: from now on everything may come."""
    need(not flags & f.ACK, ErrorCode.PROTOCOL_ERROR, "SETTINGS are acknowledged before they are sent")
    connection.frames.open()[f.SETTINGS](connection, flags, stream, payload)


def on_settings(connection: Receiving, flags: int, stream: int, payload: bytes) -> None:
    """SETTINGS: what the other end can take."""
    need(stream == 0, ErrorCode.PROTOCOL_ERROR, "SETTINGS of a stream")
    sized = len(payload) % f.SETTING.size == 0 and not (flags & f.ACK and payload)
    need(sized, ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
    need(len(payload) <= MOST_SETTINGS * f.SETTING.size, ErrorCode.ENHANCE_YOUR_CALM, "SETTINGS with too many entries")
    connection.floods.count(connection.now)
    if not flags & f.ACK:
        output = connection.output
        output.apply(payload)
        output.out.append(f.frame(f.SETTINGS, f.ACK, 0))
        output.pump()


def on_window_update(connection: Receiving, _flags: int, id: int, payload: bytes) -> None:
    """WINDOW_UPDATE: the other end takes more. Windows opened byte by byte are counted (CVE-2019-9511)."""
    need(len(payload) == 4, ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE is not four bytes long")
    size, output = int.from_bytes(payload, "big") & f.MAX_WINDOW, connection.output
    if size < TINY and (output.blocked or output.starved):
        connection.floods.count(connection.now)
    else:
        connection.floods.follow_up(connection.now, connection.last)
    if id == 0:
        output.widen(size)
    elif stream := output.streams.get(id):
        output.widen_stream(stream, size)
    else:
        idle = id > connection.last and not connection.draining
        need(not idle, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of an idle stream")


def forbidden(reason: str) -> OnFrame:
    """Return what takes a frame that must not come now."""

    def refuse(_connection: Receiving, _flags: int, _stream: int, _payload: bytes) -> None:
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, reason)

    return refuse


def on_unknown(connection: Receiving, _flags: int, _stream: int, _payload: bytes) -> None:
    """Ignore a frame of a kind that we do not know, as everybody must."""
    connection.floods.count(connection.now)


SHARED: dict[int, OnFrame] = {
    f.HEADERS: on_headers,
    f.PRIORITY: on_priority,
    f.SETTINGS: on_settings,
    f.WINDOW_UPDATE: on_window_update,
    f.PUSH_PROMISE: forbidden("PUSH_PROMISE: a client has nothing to push, and a server was told not to"),
    f.CONTINUATION: forbidden("CONTINUATION of nothing"),
}


def frame_table(own: Mapping[int, OnFrame]) -> FrameTable:
    """Return the table of an open connection: the frames that one end reads in its own way, and the shared ones."""
    handlers = {**SHARED, **own}
    return tuple(handlers.get(kind, on_unknown) for kind in range(256))


def only(kind: int, handler: OnFrame, reason: str) -> FrameTable:
    """Return the table in which one kind of frame may come."""
    refuse = forbidden(reason)
    return tuple(handler if at == kind else refuse for at in range(256))


FIRST = only(f.SETTINGS, on_first_settings, "the first frame is not SETTINGS")
CONTINUED = only(f.CONTINUATION, on_continuation, "a header block is interrupted")
