"""An HTTP/2 server connection without I/O: bytes in, requests and bytes out (RFC 9113).

    receive ─▶ frame ─▶ table[kind] ─▶ Http2Stream ─▶ ready ─▶ (handler) ─▶ reply ─▶ out

What may come next is the table that frames are looked up in: first only SETTINGS, inside a header block only
CONTINUATION, otherwise everything. So the usual case pays for no checks, and no state can be forgotten in one.
"""

from __future__ import annotations

from collections.abc import Callable

from wigwag.wire.h2.blocks import HeaderEncoder
from wigwag.wire.h2.control import CONTROLS, unknown
from wigwag.wire.h2.expiry import Expiry
from wigwag.wire.h2.frames import (
    DEFAULT_WINDOW,
    END_HEADERS,
    HEAD,
    MAX_FRAME,
    MAX_WINDOW,
    PADDED,
    PREFACE,
    PRIORITISED,
    ErrorCode,
    LinkError,
    SettingId,
    StreamError,
    depends_on,
    settings,
    unpad,
    unprioritise,
    window_update,
)
from wigwag.wire.h2.requests import GRANT, Intake
from wigwag.wire.http import Early, Peer
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.retained import Retained

OnFrame = Callable[["Http2", int, int, bytes], None]


class Http2(Intake):
    """One connection."""

    __slots__ = (
        "_block",
        "_buffer",
        "_expiry",
        "block_since",
        "progress",
        "table",
    )

    def __init__(
        self,
        limits: WireLimits,
        encoder: HeaderEncoder,
        peer: Peer,
        now: float,
        retained: Retained | None = None,
        early: Early | None = None,
    ) -> None:
        super().__init__(limits, encoder, peer, now, retained, early)
        self._expiry, self._buffer = Expiry(now), b""
        self._block: tuple[int, int, bytearray] = (0, 0, bytearray())
        self.progress = self.block_since = now
        self.table = PREFACED
        values = {
            SettingId.MAX_CONCURRENT_STREAMS: limits.streams,
            SettingId.INITIAL_WINDOW_SIZE: GRANT,
            SettingId.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        }
        self.out += (settings(values), window_update(0, GRANT - DEFAULT_WINDOW))

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes; afterwards see `ready`, `cancelled`, `widened`, `closing` and `out`."""
        if self.closing:
            return
        self.now = now
        if self._buffer:
            data = self._buffer + data
        at, end = 0, len(data)
        if self.table is PREFACED and (at := self._preface(data)) == 0:
            return
        while end - at >= 9 and not self.closing:
            high, low, kind, flags, stream = HEAD.unpack_from(data, at)
            stop = at + 9 + (high << 8 | low)
            if stop > end or stop - at > MAX_FRAME + 9:
                if stop - at > MAX_FRAME + 9:
                    self.fail(ErrorCode.FRAME_SIZE_ERROR, "a frame is too large")
                break
            try:
                self.table[kind](self, flags, stream & MAX_WINDOW, data[at + 9 : stop])
            except StreamError as fault:
                self._stream_fault(fault)
            except LinkError as fault:
                self.fail(fault.code, fault.reason)
            at = stop
        if at:
            self.progress = now
        self._buffer = data[at:]

    def _preface(self, data: bytes) -> int:
        """Return where the frames begin, 0 if that is not known yet."""
        if data.startswith(PREFACE):
            self.table = GREETED
            return len(PREFACE)
        if PREFACE.startswith(data):
            self._buffer = data
        else:
            self.fail(ErrorCode.PROTOCOL_ERROR, "no HTTP/2 preface")
        return 0

    def _stream_fault(self, fault: StreamError) -> None:
        self.break_off(fault.stream, fault.code)
        self.abuse()

    def abuse(self) -> None:
        """Count a frame that is only good in small numbers."""
        try:
            self.floods.count(self.now)
        except LinkError as fault:
            self.fail(fault.code, fault.reason)

    def crowded(self) -> bool:
        """Return whether nothing more should be read: streams never wait for each other."""
        return False

    def half_closed(self) -> None:
        """Note that the client will send nothing more: nobody speaks HTTP/2 with half a connection."""
        self.closing = True

    def expire(self, now: float) -> None:
        """Give up what has taken too long."""
        self.now = now
        self._expiry.check(self, now, starting=self.table is PREFACED or self.table is GREETED, partial=self.partial())

    def partial(self) -> bool:
        """Return whether a frame is there in part."""
        return bool(self._buffer)

    def in_block(self) -> bool:
        """Return whether a header block is there in part."""
        return self.table is CONTINUED

    def on_headers(self, flags: int, id: int, payload: bytes) -> None:
        """HEADERS: a request, or the trailers of one."""
        if flags & PADDED:
            payload = unpad(payload)
        dependent = False
        if flags & PRIORITISED:
            dependent = depends_on(payload) == id
            payload = unprioritise(id, payload)
        if flags & END_HEADERS:
            self.on_block(id, flags, payload)
        else:
            self._block, self.table, self.block_since = (id, flags, bytearray(payload)), CONTINUED, self.now
        if dependent:
            raise StreamError(id, ErrorCode.PROTOCOL_ERROR)

    def on_continuation(self, flags: int, id: int, payload: bytes) -> None:
        """CONTINUATION: more of a header block."""
        begun, first_flags, block = self._block
        if id != begun:
            raise LinkError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of another stream")
        block += payload
        if len(block) > self.limits.header_bytes:
            raise LinkError(ErrorCode.ENHANCE_YOUR_CALM, "a header block is too large")
        if flags & END_HEADERS:
            self.table = OPEN
            self.on_block(id, first_flags, bytes(block))
        self.floods.count(self.now)


def only(kind: int, handler: OnFrame, reason: str) -> tuple[OnFrame, ...]:
    """Return the table in which one kind of frame may come."""

    def fail(_machine: Http2, _flags: int, _stream: int, _payload: bytes) -> None:
        raise LinkError(ErrorCode.PROTOCOL_ERROR, reason)

    return tuple(handler if at == kind else fail for at in range(256))


def on_greeting(machine: Http2, flags: int, stream: int, payload: bytes) -> None:
    """Take the first SETTINGS."""
    machine.table = OPEN
    CONTROLS[4](machine, flags, stream, payload)


OPEN: tuple[OnFrame, ...] = (
    Http2.on_data,
    Http2.on_headers,
    *(CONTROLS[kind] for kind in range(2, 10)),
    *(unknown for _ in range(246)),
)
GREETED = only(4, on_greeting, "the first frame is not SETTINGS")
PREFACED = only(-1, unknown, "no HTTP/2 preface")
CONTINUED = only(9, Http2.on_continuation, "a header block is interrupted")
