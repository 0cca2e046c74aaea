"""An HTTP/2 client connection without I/O: requests and bytes in, answers and bytes out (RFC 9113).

    request ─▶ ClientStream ─▶ out        receive ─▶ frame ─▶ table[kind] ─▶ ClientStream ─▶ Receiver

As in the server, the table that frames are looked up in says what may come next, and everything that comes is bounded.

The hard case is a port at which something else listens: whatever does not begin with SETTINGS is not HTTP/2, and the
first bytes usually tell what it is instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from wigwag.wire.h2.client_answers import LINK_GRANT, Answers
from wigwag.wire.h2.client_control import name_of, on_goaway, on_ping, on_push, on_reset, on_settings, readable
from wigwag.wire.h2.client_streams import GRANT, Broken, ClientStream, Receiver
from wigwag.wire.h2.control import CONTROLS, need, unknown
from wigwag.wire.h2.frames import (
    ACK,
    DEFAULT_WINDOW,
    END_HEADERS,
    GOAWAY,
    HEAD,
    MAX_FRAME,
    MAX_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PRIORITISED,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    ErrorCode,
    LinkError,
    SettingId,
    StreamError,
    frame,
    settings,
    unpad,
    unprioritise,
    window_update,
)
from wigwag.wire.http import Headers
from wigwag.wire.limits import WireLimits

OnFrame = Callable[["Http2Client", int, int, bytes], None]

ASSUMED = 100
"""Requests at a time before the server has said how many."""
CLIENT_LIMITS = WireLimits(abuse=5000)
TOO_MANY_PINGS = "too_many_pings"
CLOSED = "the connection is closed"


class Http2Client(Answers):
    """One connection."""

    __slots__ = ("_asked", "_block", "_buffer", "_parting", "most", "pongs", "table")

    def __init__(self, limits: WireLimits, now: float) -> None:
        super().__init__(limits, now)
        self._buffer = b""
        self._block: tuple[int, int, bytearray] = (0, 0, bytearray())
        self._parting: tuple[int, str] | None = None
        self._asked = self.pongs = 0
        self.most, self.table = ASSUMED, GREETING
        values = {
            SettingId.ENABLE_PUSH: 0,
            SettingId.INITIAL_WINDOW_SIZE: GRANT,
            SettingId.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        }
        self.out += (PREFACE, settings(values), window_update(0, LINK_GRANT - DEFAULT_WINDOW))

    @property
    def greeted(self) -> bool:
        """Whether the other end has shown that it speaks HTTP/2."""
        return self.table is not GREETING

    @property
    def scolded(self) -> bool:
        """Whether the server said that we ping too often."""
        return self._parting is not None and TOO_MANY_PINGS in self._parting[1]

    # our calls

    def unable(self) -> str | None:
        """Return why no request can be made at present; None: one can."""
        if self.closing or self.draining:
            return self._why(CLOSED)
        if len(self.streams) >= self.most:
            return f"the server takes {self.most} requests at a time on a connection"
        return "the connection has no stream numbers left" if self.last > MAX_WINDOW - 2 else None

    def request(self, headers: Headers, body: bytes, receiver: Receiver) -> ClientStream:
        """Ask; first see `unable`. A header that cannot be sent is a `ValueError`, and nothing is sent."""
        self.encoder.encode(0, headers, not body)
        stream = ClientStream.begun(self, self.last + 2, receiver)
        self.last = stream.id
        self.streams[stream.id] = stream
        stream.ask(headers, body)
        return stream

    def ping(self) -> None:
        """Ask the server for a sign of life; `pongs` counts them."""
        self._asked += 1
        self.out.append(frame(PING, 0, 0, self._asked.to_bytes(8, "big")))

    def leave(self) -> None:
        """End the connection, and every request on it."""
        self.fail(ErrorCode.NO_ERROR)

    def lost(self, reason: str) -> None:
        """Note that the connection is gone."""
        if not self.greeted and self._buffer:
            reason = f"{reason}; {stranger(self._buffer)}"
        self.end(Broken(self._why(reason), ErrorCode.NO_ERROR, link=True))

    # what comes in

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes; afterwards see `closing` and `out`."""
        if self.closing:
            return
        self.now = now
        if self._buffer:
            data = self._buffer + data
        if self.table is GREETING and (data[:1] != b"\0" or data[3:4] not in (b"", b"\4")):
            self.fail(ErrorCode.PROTOCOL_ERROR, stranger(data))
            return
        at, end = 0, len(data)
        while end - at >= 9 and not self.closing:
            high, low, kind, flags, stream = HEAD.unpack_from(data, at)
            stop = at + 9 + (high << 8 | low)
            if stop > end or stop - at > MAX_FRAME + 9:
                if stop - at > MAX_FRAME + 9:
                    self.fail(ErrorCode.FRAME_SIZE_ERROR, "a frame is too large")
                break
            self._frame(kind, flags, stream & MAX_WINDOW, data[at + 9 : stop])
            at = stop
        self._buffer = data[at:]

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        try:
            try:
                self.table[kind](self, flags, stream, payload)
            except StreamError as fault:
                self.reject(fault.stream, fault.code, "the server broke the rules of HTTP/2 on this stream")
        except LinkError as fault:
            self.fail(fault.code, fault.reason)

    def on_headers(self, flags: int, id: int, payload: bytes) -> None:
        """HEADERS: the head of an answer, or its trailers."""
        if flags & PADDED:
            payload = unpad(payload)
        if flags & PRIORITISED:
            payload = unprioritise(id, payload)
        if flags & END_HEADERS:
            self.on_block(id, flags, payload)
        else:
            self._block, self.table = (id, flags, bytearray(payload)), CONTINUED

    def on_continuation(self, flags: int, id: int, payload: bytes) -> None:
        """CONTINUATION: more of a header block."""
        begun, first_flags, block = self._block
        need(id == begun, ErrorCode.PROTOCOL_ERROR, "CONTINUATION of another stream")
        block += payload
        need(len(block) <= self.limits.header_bytes, ErrorCode.ENHANCE_YOUR_CALM, "a header block is too large")
        self.floods.count(self.now)
        if flags & END_HEADERS:
            self.table, self._block = OPEN, (0, 0, bytearray())
            self.on_block(id, first_flags, bytes(block))

    def pong(self, payload: bytes) -> None:
        """Take the answer to our last ping."""
        if self.pongs < self._asked and payload == self._asked.to_bytes(8, "big"):
            self.pongs = self._asked
            for stream in list(self.streams.values()):
                cast("ClientStream", stream).receiver.on_alive()

    def farewell(self, last: int, code: int, said: str) -> None:
        """Take leave of the server: it answers what we asked up to the stream `last`, and nothing more."""
        self.draining, self._parting = True, (code, said)
        for stream in [stream for stream in self.streams.values() if stream.id > last]:
            self.break_stream(stream, Broken(self._why(CLOSED), code, link=True))
        self.closing |= not self.streams

    def _why(self, reason: str) -> str:
        if self._parting is None:
            return reason
        code, said = self._parting
        return f"{reason}: the server said {name_of(code)}{f' ({said})' if said else ''}"


def stranger(data: bytes) -> str:
    r"""Say what answers instead of HTTP/2.

    >>> stranger(b"HTTP/1.1 400 Bad Request\r\n")
    "it does not speak HTTP/2; it says 'HTTP/1.1 400 Bad Request'"
    """
    if data.startswith(b"HTTP/"):
        line = data.split(b"\r\n", 1)[0].decode("latin-1")
        return f"it does not speak HTTP/2; it says {readable(line, 60)!r}"
    if data[:2] in (b"\x15\x03", b"\x16\x03"):
        return "it speaks TLS; connect with TLS, too"
    return f"it does not speak HTTP/2; it says {data[:24]!r}"


def _only(kind: int, handler: OnFrame, reason: str) -> tuple[OnFrame, ...]:
    def refuse(_machine: Http2Client, _flags: int, _stream: int, _payload: bytes) -> None:
        raise LinkError(ErrorCode.PROTOCOL_ERROR, reason)

    return tuple(handler if at == kind else refuse for at in range(256))


def _on_greeting(machine: Http2Client, flags: int, stream: int, payload: bytes) -> None:
    need(not flags & ACK, ErrorCode.PROTOCOL_ERROR, "the server answers settings before it tells its own")
    machine.table = OPEN
    on_settings(machine, flags, stream, payload)


_OURS: dict[int, OnFrame] = {
    RST_STREAM: on_reset,
    SETTINGS: on_settings,
    PUSH_PROMISE: on_push,
    PING: on_ping,
    GOAWAY: on_goaway,
}
OPEN: tuple[OnFrame, ...] = (
    Http2Client.on_data,
    Http2Client.on_headers,
    *(_OURS.get(kind) or CONTROLS[kind] for kind in range(2, 10)),
    *(unknown for _ in range(246)),
)
GREETING = _only(SETTINGS, _on_greeting, "it does not speak HTTP/2: the first frame is not SETTINGS")
CONTINUED = _only(9, Http2Client.on_continuation, "a header block is interrupted")
