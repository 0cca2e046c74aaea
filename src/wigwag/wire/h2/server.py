"""An HTTP/2 server connection without I/O: bytes in, requests and bytes out (RFC 9113).

    receive ─▶ FrameReader ─▶ on_… ─▶ Http2Stream ─▶ ready ─▶ (handler) ─▶ reply ─▶ FlowControl ─▶ out

Memory is bounded: a body by `body_bytes`, all bodies of a connection by a few times that, streams by `streams`. What we
grant the client to send is granted again as soon as it arrives, so two uploads can never wait for each other's window,
nor can a client send more than it was granted; whoever exceeds the bound is refused.

What takes too long is found by a periodic check (`expire`) instead of by a timer for each request. It costs nothing
while requests come and go: a connection is idle if its last stream is the same as at the check before. What waits for a
window must leave at a least rate, `write_bytes` in `write_seconds`: a byte now and then is no progress. Streams divide
that rate. One that waits for the connection takes its turn after the others, so it is given up only if the connection
as a whole is too slow.
"""

from __future__ import annotations

from collections import deque

from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.floods import Floods
from wigwag.wire.h2.frames import ErrorCode, Http2ConnectionError, SettingId, StreamError, need
from wigwag.wire.h2.heads import Head
from wigwag.wire.h2.hpack import HeaderDecoder, HeaderEncoder
from wigwag.wire.h2.receive import FrameReader, frame_table
from wigwag.wire.h2.streams import GRANT, FlowControl, Http2Stream
from wigwag.wire.http import Early, Request, RequestBody, error_reply
from wigwag.wire.limits import WireLimits
from wigwag.wire.peer import Peer
from wigwag.wire.server.retained import Progress, Retained

HELD = 4
"""Bodies of the largest size that a connection may have under way."""
SKIPPED = 32
FORGIVEN = 256
"""Streams that we broke off and that the client may not know about yet."""


class Http2:
    """One connection."""

    __slots__ = (
        "_began", "_decoder", "_early", "_forgiven", "_held", "_idle_since", "_last_seen", "_peer", "_progress",
        "_received", "_skipped", "cancelled", "closing", "draining", "floods", "frames", "last", "limits", "now", "out",
        "output", "ready", "streams",
    )  # fmt: skip

    def __init__(
        self,
        limits: WireLimits,
        encoder: HeaderEncoder,
        peer: Peer,
        now: float,
        retained: Retained | None = None,
        early: Early | None = None,
    ) -> None:
        self.limits, self._peer, self.now, self._early = limits, peer, now, early
        self.floods = Floods(limits, now)
        self.output = FlowControl(encoder, self.floods, retained)
        self.out, self.streams = self.output.out, self.output.streams
        self.frames, self._decoder = FrameReader(FRAMES, now, f.PREFACE), HeaderDecoder(limits)
        self.ready: deque[Http2Stream] = deque()
        self.cancelled: list[Http2Stream] = []
        self._forgiven: dict[int, None] = {}
        self._skipped: list[range] = []
        self.closing = self.draining = False
        self.last = self._received = self._held = 0
        self._began = self._idle_since = now
        self._last_seen, self._progress = 0, Progress()
        values = {
            SettingId.MAX_CONCURRENT_STREAMS: limits.streams,
            SettingId.INITIAL_WINDOW_SIZE: GRANT,
            SettingId.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        }
        self.out += (f.settings(values), f.window_update(0, GRANT - f.DEFAULT_WINDOW))

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes; afterwards see `ready`, `cancelled`, `closing` and `output`."""
        if not self.closing:
            self.now = now
            self.frames.receive(self, data, now)

    # headers

    def on_block(self, id: int, flags: int, block: bytes) -> None:
        """Take a whole header block: a request, or the trailers of one."""
        head = self._decoder.decode(block)
        if id <= self.last or not id & 1:
            self._on_trailers(id, flags, head)
            return
        if id > self.last + 2 and len(self._skipped) < SKIPPED:  # to use a skipped stream is not to use a closed one
            self._skipped.append(range(self.last + 2, id, 2))
        if self.draining:
            return
        self.last = id
        if head.status or len(self.streams) >= self.limits.streams:
            self._refuse_head(id, flags, head)
            return
        self.streams[id] = stream = Http2Stream(self, id, head, GRANT, self.now, self.output.initial)
        if flags & f.END_STREAM:
            self._complete(stream)
        elif self._early is not None and self._early(head.path, head.fields):
            incoming = stream.incoming = RequestBody()  # which is still to come
            stream.request = Request(
                head.method, head.path, head.query, head.headers, b"", 2, self._peer, head.fields, incoming
            )
            self.ready.append(stream)
        elif head.length > self.limits.body_bytes:
            self._refuse(stream, 413)

    def _refuse_head(self, id: int, flags: int, head: Head) -> None:
        if head.status != 431:
            raise StreamError(id, ErrorCode.PROTOCOL_ERROR if head.status else ErrorCode.REFUSED_STREAM)
        stream = Http2Stream(self, id, head, GRANT, self.now, self.output.initial)
        stream.ended = bool(flags & f.END_STREAM)
        self._refuse(stream, 431)
        self.floods.count(self.now)

    def _refuse(self, stream: Http2Stream, status: int) -> None:
        """Respond without a handler."""
        self._release(stream)
        head = stream.head
        stream.request = Request(head.method, head.path, b"", (), b"", 2, self._peer)
        stream.reply(error_reply(status, head.headers))

    def _on_trailers(self, id: int, flags: int, head: Head) -> None:
        stream = self.streams.get(id)
        if stream is None:
            if id in self._forgiven:
                return
            never = not id & 1 or any(id in skipped for skipped in self._skipped)
            code = ErrorCode.PROTOCOL_ERROR if never else ErrorCode.STREAM_CLOSED
            raise Http2ConnectionError(code, "HEADERS of a stream that cannot be opened")
        if stream.ended:
            raise StreamError(id, ErrorCode.STREAM_CLOSED)
        if not flags & f.END_STREAM or not head.trailing:
            raise StreamError(id, ErrorCode.PROTOCOL_ERROR)
        self._complete(stream)

    # bodies

    def on_data(self, flags: int, id: int, payload: bytes) -> None:
        """DATA: a piece of a request's body."""
        size = len(payload)
        self._received += size
        if self._received > GRANT >> 1:
            self.out.append(f.window_update(0, self._received))
            self._received = 0
        stream = self.streams.get(id)
        if stream is None or stream.ended:
            self._stray(id)
            return
        stream.allowed -= size
        if flags & f.PADDED:
            payload = f.unpad(payload)
        if stream.incoming is not None:
            stream.incoming.feed(payload)
            if stream.incoming.held > self.limits.body_bytes:  # its handler reads too slowly
                raise StreamError(id, ErrorCode.ENHANCE_YOUR_CALM)
        else:
            if not stream.body:
                stream.body = payload
            elif isinstance(stream.body, bytes):
                stream.body = bytearray(stream.body + payload)
            else:
                stream.body += payload
            stream.size += len(payload)
            self._held += len(payload)
        if flags & f.END_STREAM:
            self._complete(stream)
        else:
            self._more(stream, payload)

    def _stray(self, id: int) -> None:
        """DATA of a stream that takes none."""
        if not id & 1 or id > self.last:
            if self.draining and id & 1:
                return
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "DATA of a stream that is not open")
        if id not in self._forgiven:
            raise StreamError(id, ErrorCode.STREAM_CLOSED)

    def _more(self, stream: Http2Stream, payload: bytes) -> None:
        """Check a body that goes on, and let it."""
        if not payload:
            self.floods.count(self.now)
        if stream.size > self.limits.body_bytes or self._held > HELD * self.limits.body_bytes:
            self._refuse(stream, 413)
        elif stream.allowed < GRANT >> 1:
            self.out.append(f.window_update(stream.id, GRANT - stream.allowed))
            stream.allowed = GRANT

    def _release(self, stream: Http2Stream) -> None:
        self._held -= len(stream.body)
        stream.body = b""

    def _complete(self, stream: Http2Stream) -> None:
        """The whole request is there."""
        head, body = stream.head, stream.body
        if stream.incoming is not None:
            stream.ended = True
            stream.incoming.end()
            return
        if head.length >= 0 and head.length != stream.size:
            raise StreamError(stream.id, ErrorCode.PROTOCOL_ERROR)
        stream.ended = True
        if stream.size > self.limits.body_bytes:
            self._refuse(stream, 413)
            return
        self._held -= stream.size
        if type(body) is not bytes:
            body = bytes(body)
        stream.request = Request(head.method, head.path, head.query, head.headers, body, 2, self._peer, head.fields)
        self.ready.append(stream)

    # frames about the connection, or that end a stream

    def on_reset(self, _flags: int, id: int, payload: bytes) -> None:
        """RST_STREAM: the client gives a request up. Counted if that wastes work (CVE-2023-44487), or is frequent."""
        need(len(payload) == 4, ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM is not four bytes long")
        need(0 < id <= self.last or self.draining, ErrorCode.PROTOCOL_ERROR, "RST_STREAM of an idle stream")
        if stream := self.streams.get(id):
            self._cancel(stream)
            self.floods.count(self.now)
        else:
            self.floods.follow_up(self.now, self.last)

    def on_ping(self, flags: int, stream: int, payload: bytes) -> None:
        """PING: answered, unless there are too many."""
        need(stream == 0, ErrorCode.PROTOCOL_ERROR, "PING of a stream")
        need(len(payload) == 8, ErrorCode.FRAME_SIZE_ERROR, "PING is not eight bytes long")
        if flags & f.ACK:
            self.floods.count(self.now)
        else:
            self.floods.ping(self.now, streams=bool(self.streams))
            self.out.append(f.frame(f.PING, f.ACK, 0, payload))

    def on_goaway(self, _flags: int, stream: int, payload: bytes) -> None:
        """GOAWAY: the client leaves once it has its responses."""
        need(stream == 0, ErrorCode.PROTOCOL_ERROR, "GOAWAY of a stream")
        need(len(payload) >= 8, ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is cut off")
        self.drain()

    # how streams end

    def on_sent(self, stream: Http2Stream) -> None:
        """Forget a stream whose response is sent; a client that is still sending is told to stop."""
        stream.gone = True
        if stream.retained:
            stream.release()
        if not stream.ended:
            self._forgive(stream.id, ErrorCode.NO_ERROR)
        self.streams.pop(stream.id, None)
        output = self.output
        if output.blocked or output.starved:
            output.served(stream)
        if self.draining and not self.streams:
            self.closing = True

    def on_stream_error(self, fault: StreamError) -> None:
        """End a stream on which the client broke the rules."""
        self.reset_stream(fault.stream, fault.code)

    def reset_stream(self, id: int, code: ErrorCode) -> None:
        """Break a stream off; what the client still sends on it is forgiven."""
        self._forgive(id, code)
        if stream := self.streams.get(id):
            self._cancel(stream)

    def _forgive(self, id: int, code: ErrorCode) -> None:
        """Tell the client to stop sending on a stream, and forgive what it sends until it knows."""
        self.out.append(f.reset(id, code))
        self._forgiven[id] = None
        if len(self._forgiven) > FORGIVEN:
            del self._forgiven[next(iter(self._forgiven))]

    def _cancel(self, stream: Http2Stream) -> None:
        """Forget a stream whose response nobody waits for."""
        if not stream.ended:
            self._release(stream)
            stream.ended = True
        self.cancelled.append(stream)
        self.on_sent(stream)

    # how the connection ends

    def crowded(self) -> bool:
        """Return whether nothing more should be read: streams never wait for each other."""
        return False

    def half_closed(self) -> None:
        """Note that the client will send nothing more: nobody speaks HTTP/2 with half a connection."""
        self.closing = True

    def fail(self, code: ErrorCode, reason: str = "") -> None:
        """End the connection and everything on it."""
        if not self.closing:
            self.out.append(f.goaway(self.last, code, reason))
        self.closing = True
        for stream in list(self.streams.values()):
            self._cancel(stream)

    def cut(self, reason: str) -> None:
        """End the connection and everything on it, because it takes too much of ours."""
        self.fail(ErrorCode.ENHANCE_YOUR_CALM, reason)

    def announce(self) -> None:
        """Ask the client to open no more streams; those that it opens before it knows are served (RFC 9113, 6.8)."""
        if not (self.draining or self.closing):
            self.out.append(f.goaway(f.MAX_WINDOW, ErrorCode.NO_ERROR))

    def drain(self) -> None:
        """Take nothing new; close when everything under way is done."""
        if not self.draining:
            self.draining = True
            self.out.append(f.goaway(self.last, ErrorCode.NO_ERROR))
        if not self.streams:
            self.closing = True

    def expire(self, now: float) -> None:
        """End the connection, or the streams on it, that have taken too long."""
        limits, frames, self.now = self.limits, self.frames, now
        if frames.starting and now - self._began > limits.header_seconds:
            self.fail(ErrorCode.SETTINGS_TIMEOUT, "no preface in time")
        elif frames.in_block and now - frames.block_since > limits.header_seconds:
            self.fail(ErrorCode.ENHANCE_YOUR_CALM, "no headers in time")
        elif frames.buffer and now - frames.progress > limits.body_seconds:
            self.fail(ErrorCode.ENHANCE_YOUR_CALM, "no frame in time")
        elif self.streams:
            self._idle_since, self._last_seen = now, self.last
            self._expire_streams(now)
        elif self.last != self._last_seen:
            self._idle_since, self._last_seen = now, self.last
        elif now - self._idle_since > limits.idle_seconds:
            self.drain()

    def _expire_streams(self, now: float) -> None:
        limits, starved, blocked = self.limits, self.output.starved, self.output.blocked
        waiting = len(starved) + len(blocked)
        if not waiting:
            self._progress = Progress()
        late = self._progress.stalled(self.output.sent, now, limits.write_bytes) > limits.write_seconds
        for stream in list(self.streams.values()):
            slow = not stream.ended and stream.incoming is None and now - stream.opened > limits.body_seconds
            if stream.id in starved or stream.id in blocked:
                stream.progress = stream.progress or Progress()
                stalled = stream.progress.stalled(stream.sent, now, limits.write_bytes // waiting)
                slow |= stalled > limits.write_seconds and (late or stream.id in starved)
            else:
                stream.progress = None
            if slow:
                self.reset_stream(stream.id, ErrorCode.CANCEL)


FRAMES = frame_table(
    {
        f.DATA: Http2.on_data,
        f.RST_STREAM: Http2.on_reset,
        f.PING: Http2.on_ping,
        f.GOAWAY: Http2.on_goaway,
    }
)
