"""An HTTP/2 client connection without I/O: requests and bytes in, responses and bytes out (RFC 9113).

    request ─▶ ClientStream ─▶ FlowControl ─▶ out        receive ─▶ FrameReader ─▶ on_… ─▶ Receiver

The server is trusted no more than a client would be: everything that comes is bounded. What we grant it to send on the
connection is granted again as soon as it arrives, so that one response nobody reads cannot hold up the others. On a
stream it is granted again as long as the receiver wants more: a large message is never stuck half-way, and a reader
that does not read costs no more than what was granted. Frames of a stream that is over are ignored, as they may have
crossed our reset on the way; only the header compression has to see them.

The hard case is a port at which something else listens: whatever does not begin with SETTINGS is not HTTP/2, and the
first bytes usually tell what it is instead.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, cast

from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.floods import Floods
from wigwag.wire.h2.frames import ErrorCode, SettingId, StreamError, need
from wigwag.wire.h2.heads import Head, response_head
from wigwag.wire.h2.hpack import HeaderDecoder, HeaderEncoder
from wigwag.wire.h2.receive import FrameReader, frame_table, on_settings
from wigwag.wire.h2.streams import GRANT, FlowControl, Http2Stream
from wigwag.wire.http import Headers
from wigwag.wire.limits import WireLimits

CONNECTION_GRANT = 4 * GRANT
"""What the server may send ahead on all streams together."""
ASSUMED = 100
"""Requests at a time before the server has said how many."""
CLIENT_LIMITS = WireLimits(abuse=5000)
TOO_MANY_PINGS = "too_many_pings"
CLOSED = "the connection is closed"
MOST_QUOTED = 200
"""Characters of what a server says that are repeated in an error."""
NO_HEAD = Head()


class Broken(NamedTuple):
    """Why a response will never be whole."""

    reason: str
    code: int
    """Of HTTP/2."""
    connection: bool = False
    """Whether the whole connection is over, and not this stream only."""


class Receiver(Protocol):
    """Who gets a response. What is called returns at once."""

    def on_head(self, status: int, headers: Headers) -> bool:
        """Take the status and the headers; return whether the rest is wanted."""
        ...

    def on_data(self, data: bytes) -> bool:
        """Take a piece of the body; return whether the rest is wanted."""
        ...

    def on_end(self, trailers: Headers) -> None:
        """Note that the response is whole."""

    def on_broken(self, broken: Broken) -> None:
        """Note that it never will be."""

    def on_alive(self) -> None:
        """Note that the server has answered a ping."""

    def wants_more(self) -> bool:
        """Return whether what came is read fast enough to have more of it."""
        ...


class ClientStream(Http2Stream, eq=False):
    """One request, and who gets its response."""

    receiver: Receiver = None  # type: ignore[assignment]  # `Http2Client.request` sets it
    has_head: bool = False
    """Whether the head of the response is here."""
    complete: bool = False
    """Whether the whole request is sent."""

    def cancel(self) -> None:
        """Give the response up."""
        if not self.gone:
            self._owner.reset_stream(self.id, ErrorCode.CANCEL)


class Http2Client:
    """One connection."""

    def __init__(self, limits: WireLimits, now: float) -> None:
        self.limits, self.now = limits, now
        self.floods = Floods(limits, now)
        self.output = FlowControl(HeaderEncoder(), self.floods)
        self.out, self.streams = self.output.out, self.output.streams
        self.frames, self._decoder = FrameReader(FRAMES, now), HeaderDecoder(limits, response_head)
        self.closing = self.draining = False
        self.ended: Broken | None = None
        """Why the connection is over."""
        self._goaway: tuple[int, str] | None = None
        self._pings = self.pongs = 0
        self.last, self.most, self._room = -1, ASSUMED, CONNECTION_GRANT
        values = {
            SettingId.ENABLE_PUSH: 0,
            SettingId.INITIAL_WINDOW_SIZE: GRANT,
            SettingId.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        }
        self.out += (f.PREFACE, f.settings(values), f.window_update(0, CONNECTION_GRANT - f.DEFAULT_WINDOW))

    @property
    def greeted(self) -> bool:
        """Whether the other end has shown that it speaks HTTP/2."""
        return not self.frames.starting

    @property
    def too_many_pings(self) -> bool:
        """Whether the server said that we ping too often."""
        return self._goaway is not None and TOO_MANY_PINGS in self._goaway[1]

    # requests

    def unable(self) -> str | None:
        """Return why no request can be made at present; None: one can."""
        if self.closing or self.draining:
            return self._explain(CLOSED)
        if len(self.streams) >= self.most:
            return f"the server takes {self.most} requests at a time on a connection"
        return "the connection has no stream numbers left" if self.last > f.MAX_WINDOW - 2 else None

    def request(self, headers: Headers, body: bytes, receiver: Receiver) -> ClientStream:
        """Send a request; first see `unable`. A header that cannot be sent is a `ValueError`, and nothing is sent."""
        self.output.encoder.encode(0, headers, not body)
        self.last += 2
        stream = ClientStream(self, self.last, NO_HEAD, GRANT, self.now, self.output.initial, receiver=receiver)
        self.streams[stream.id] = stream
        stream.send_headers(0, headers, not body)
        if body:
            stream.send_last(body, ())
        else:
            stream.complete = True
        return stream

    def ping(self) -> None:
        """Ask the server for a sign of life; `pongs` counts them."""
        self._pings += 1
        self.out.append(f.frame(f.PING, 0, 0, self._pings.to_bytes(8, "big")))

    def lost(self, reason: str) -> None:
        """Note that the connection is gone."""
        if not self.greeted and self.frames.buffer:
            reason = f"{reason}; {not_http2(self.frames.buffer)}"
        self._end(Broken(self._explain(reason), ErrorCode.NO_ERROR, connection=True))

    # responses

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes; afterwards see `closing` and `out`."""
        if self.closing:
            return
        self.now = now
        if not self.greeted:
            first = self.frames.buffer + data
            if first[:1] != b"\0" or first[3:4] not in (b"", b"\4"):
                self.fail(ErrorCode.PROTOCOL_ERROR, not_http2(first))
                return
        self.frames.receive(self, data, now)

    def _opened(self, id: int) -> ClientStream | None:
        """Return a stream, or None if it is over; raise if it never began."""
        need(bool(id & 1) and id <= self.last, ErrorCode.PROTOCOL_ERROR, "a frame of a stream that was never opened")
        return cast("ClientStream | None", self.streams.get(id))

    def on_block(self, id: int, flags: int, block: bytes) -> None:
        """Take a whole header block: the head of a response, or its trailers."""
        head = self._decoder.decode(block)  # whoever wanted it: the tables must stay in step
        stream = self._opened(id)
        if stream is None:
            self.floods.count(self.now)
        elif head.status == 431:
            reason = f"the headers are larger than {self.limits.header_bytes} bytes"
            raise StreamError(id, ErrorCode.ENHANCE_YOUR_CALM, reason)
        elif head.status or head.trailing != stream.has_head or (head.trailing and not flags & f.END_STREAM):
            raise StreamError(id, ErrorCode.PROTOCOL_ERROR, "the headers of the response are malformed")
        elif head.trailing:
            self._finish(stream, head.headers)
        else:
            self._on_head(stream, flags, head)

    def _on_head(self, stream: ClientStream, flags: int, head: Head) -> None:
        status = int(head.headers[0][1])
        if 100 <= status < 200:  # the response is still to come
            self.floods.count(self.now)
            return
        stream.has_head = True
        wanted = stream.receiver.on_head(status, head.headers[1:])
        if flags & f.END_STREAM:
            self._finish(stream, ())
        elif not wanted:
            stream.cancel()

    def on_data(self, flags: int, id: int, payload: bytes) -> None:
        """DATA: a piece of a response's body."""
        self._room -= len(payload)
        need(self._room >= 0, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection was granted")
        if self._room < CONNECTION_GRANT >> 1:
            self.out.append(f.window_update(0, CONNECTION_GRANT - self._room))
            self._room = CONNECTION_GRANT
        stream = self._opened(id)
        if stream is None:
            return
        stream.allowed -= len(payload)
        need(stream.allowed >= 0, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than a stream was granted")
        if flags & f.PADDED:
            payload = f.unpad(payload)
        if not stream.has_head:
            raise StreamError(id, ErrorCode.PROTOCOL_ERROR, "the response has a body but no headers")
        if payload and not stream.receiver.on_data(payload):
            stream.cancel()
        elif flags & f.END_STREAM:
            self._finish(stream, ())
        elif payload:
            self.grant(stream)
        else:
            self.floods.count(self.now)

    def grant(self, stream: ClientStream) -> None:
        """Let the server send more on a stream, if that is worth a frame and anybody wants it."""
        if stream.allowed < GRANT >> 1 and not stream.gone and stream.receiver.wants_more():
            self.out.append(f.window_update(stream.id, GRANT - stream.allowed))
            stream.allowed = GRANT

    # frames about the connection, or that end a stream

    def on_settings(self, flags: int, stream: int, payload: bytes) -> None:
        """SETTINGS: what the server can take, and how many requests at a time."""
        on_settings(self, flags, stream, payload)
        for key, value in f.SETTING.iter_unpack(payload):
            if key == SettingId.MAX_CONCURRENT_STREAMS:
                self.most = value

    def on_reset(self, _flags: int, id: int, payload: bytes) -> None:
        """RST_STREAM: the server gives a response up."""
        need(len(payload) == 4, ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM is not four bytes long")
        code = int.from_bytes(payload, "big")
        if stream := self._opened(id):
            self._break(stream, Broken(f"the server reset the stream: {name_of(code)}", code))

    def on_ping(self, flags: int, stream: int, payload: bytes) -> None:
        """PING: theirs is answered; the answer to our last one shows that they are there."""
        need(stream == 0, ErrorCode.PROTOCOL_ERROR, "PING of a stream")
        need(len(payload) == 8, ErrorCode.FRAME_SIZE_ERROR, "PING is not eight bytes long")
        self.floods.count(self.now)
        if not flags & f.ACK:
            self.out.append(f.frame(f.PING, f.ACK, 0, payload))
        elif self.pongs < self._pings and payload == self._pings.to_bytes(8, "big"):
            self.pongs = self._pings
            for each in list(self.streams.values()):
                cast("ClientStream", each).receiver.on_alive()

    def on_goaway(self, _flags: int, stream: int, payload: bytes) -> None:
        """GOAWAY: the server responds to what we asked up to a stream, and to nothing more."""
        need(stream == 0, ErrorCode.PROTOCOL_ERROR, "GOAWAY of a stream")
        need(len(payload) >= 8, ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is cut off")
        self.floods.count(self.now)
        last, code = f.PAIR.unpack_from(payload)
        self.draining, self._goaway = True, (code, readable(payload[8:].decode("utf-8", "replace")))
        for each in [each for each in self.streams.values() if each.id > last & f.MAX_WINDOW]:
            self._break(each, Broken(self._explain(CLOSED), code, connection=True))
        self.closing |= not self.streams

    def _explain(self, reason: str) -> str:
        if self._goaway is None:
            return reason
        code, text = self._goaway
        return f"{reason}: the server said {name_of(code)}{f' ({text})' if text else ''}"

    # how it ends

    def on_sent(self, stream: Http2Stream) -> None:
        """Note that a request is sent; its response may still be coming."""
        cast("ClientStream", stream).complete = True
        self.output.served(stream)

    def _finish(self, stream: ClientStream, trailers: Headers) -> None:
        if not stream.complete:
            self.out.append(f.reset(stream.id, ErrorCode.NO_ERROR))
        self._forget(stream)
        stream.receiver.on_end(trailers)

    def on_stream_error(self, fault: StreamError) -> None:
        """End a stream on which the server broke the rules."""
        if stream := self.streams.get(fault.stream):
            self.out.append(f.reset(fault.stream, fault.code))
            reason = fault.reason or "the server broke the rules of HTTP/2 on this stream"
            self._break(stream, Broken(reason, fault.code))

    def reset_stream(self, id: int, code: ErrorCode) -> None:
        """Break a stream off."""
        self.out.append(f.reset(id, code))
        if stream := self.streams.get(id):
            self._forget(stream)

    def _break(self, stream: Http2Stream, broken: Broken) -> None:
        """Drop a stream, and tell who waits for it."""
        self._forget(stream)
        cast("ClientStream", stream).receiver.on_broken(broken)

    def _forget(self, stream: Http2Stream) -> None:
        stream.gone = True
        self.streams.pop(stream.id, None)
        self.output.served(stream)
        self.closing |= self.draining and not self.streams

    def fail(self, code: ErrorCode, reason: str = "") -> None:
        """End the connection and everything on it."""
        if not self.closing:
            self.out.append(f.goaway(0, code, reason))
            self._end(Broken(reason or CLOSED, code, connection=True))

    def _end(self, broken: Broken) -> None:
        """Note that the connection is over, and tell everybody."""
        self.closing, self.ended = True, self.ended or broken
        for stream in list(self.streams.values()):
            self._break(stream, self.ended)


FRAMES = frame_table(
    {
        f.DATA: Http2Client.on_data,
        f.RST_STREAM: Http2Client.on_reset,
        f.SETTINGS: Http2Client.on_settings,
        f.PING: Http2Client.on_ping,
        f.GOAWAY: Http2Client.on_goaway,
    }
)


def not_http2(data: bytes) -> str:
    r"""Say what answers instead of HTTP/2.

    >>> not_http2(b"HTTP/1.1 400 Bad Request\r\n")
    "it does not speak HTTP/2; it says 'HTTP/1.1 400 Bad Request'"
    """
    if data.startswith(b"HTTP/"):
        line = data.split(b"\r\n", 1)[0].decode("latin-1")
        return f"it does not speak HTTP/2; it says {readable(line, 60)!r}"
    if data[:2] in (b"\x15\x03", b"\x16\x03"):
        return "it speaks TLS; connect with TLS, too"
    return f"it does not speak HTTP/2; it says {data[:24]!r}"


def name_of(code: int) -> str:
    """Return the name of an HTTP/2 error code.

    >>> name_of(8), name_of(13)
    ('CANCEL', 'error 13')
    """
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error {code}"


def readable(text: str, most: int = MOST_QUOTED) -> str:
    r"""Return what somebody else said, fit to stand in one line of a log.

    >>> readable("a\nb" + "c" * 1000, 4)
    'a bc…'
    """
    cut = text[: most + 1]
    line = "".join(each if each.isprintable() else " " for each in cut[:most])
    return line + "…" if len(cut) > most else line
