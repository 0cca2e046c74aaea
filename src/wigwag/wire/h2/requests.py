"""Requests on an HTTP/2 connection: how header blocks and pieces of bodies become one, and which are refused.

Memory is bounded: a body by `body_bytes`, all bodies of a connection by a few times that, streams by `streams`. What we
grant the client to send is granted again as soon as it arrives, so two uploads can never wait for each other's window,
nor can a client send more than it was granted; whoever exceeds the bound is refused.
"""

from __future__ import annotations

from wigwag.wire.h2.blocks import HeaderEncoder
from wigwag.wire.h2.flow import Outlet
from wigwag.wire.h2.frames import END_STREAM, PADDED, ErrorCode, LinkError, StreamError, unpad, window_update
from wigwag.wire.h2.heads import Head
from wigwag.wire.h2.hpack import HeaderDecoder
from wigwag.wire.h2.streams import Http2Stream
from wigwag.wire.http import Early, Peer, Request
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpcs.incoming import RequestBody
from wigwag.wire.rpcs.refuse import refusal
from wigwag.wire.server.retained import Retained

GRANT = 1 << 20
"""What a stream, and the connection, may send ahead."""
HELD = 4
"""Bodies of the largest size that a connection may have under way."""
SKIPPED = 32


class Intake(Outlet):
    """The receiving half of a connection, above frames."""

    __slots__ = ("_decoder", "_early", "_held", "_peer", "_received", "_skipped")

    def __init__(
        self,
        limits: WireLimits,
        encoder: HeaderEncoder,
        peer: Peer,
        now: float,
        retained: Retained | None = None,
        early: Early | None = None,
    ) -> None:
        super().__init__(limits, encoder, now, retained)
        self._peer, self._decoder, self._early = peer, HeaderDecoder(limits), early
        self._received = self._held = 0
        self._skipped: list[range] = []

    def on_block(self, id: int, flags: int, block: bytes) -> None:
        """Take a whole header block."""
        head = self._decoder.decode(block)
        if id <= self.last or not id & 1:
            self._on_trailers(id, flags, head)
            return
        if id != self.last + 2:
            self._skip(id)
        if self.draining:
            return
        self.last = id
        if head.status or len(self.streams) >= self.limits.streams:
            self._refuse_head(id, flags, head)
            return
        self.streams[id] = stream = Http2Stream(self, id, head, GRANT, self.now, self.initial)
        if flags & END_STREAM:
            self._complete(stream)
        elif self._early is not None and self._early(head.path, head.fields):
            self._hand_over(stream)
        elif head.length > self.limits.body_bytes:
            self._refuse(stream, 413)

    def _hand_over(self, stream: Http2Stream) -> None:
        """Hand a request over whose body is still to come."""
        head, stream.incoming = stream.head, RequestBody()
        stream.request = Request(
            head.method, head.path, head.query, head.headers, b"", 2, self._peer, head.fields, stream.incoming
        )
        self.ready.append(stream)

    def _skip(self, id: int) -> None:
        """Remember which streams were never opened, to tell using one of them from using a closed one."""
        if id > self.last + 2 and len(self._skipped) < SKIPPED:
            self._skipped.append(range(self.last + 2, id, 2))

    def _refuse_head(self, id: int, flags: int, head: Head) -> None:
        if head.status == 431:
            stream = Http2Stream(self, id, head, GRANT, self.now, self.initial)
            stream.ended = bool(flags & END_STREAM)
            self._refuse(stream, 431)
            self.floods.count(self.now)
        else:
            raise StreamError(id, ErrorCode.PROTOCOL_ERROR if head.status else ErrorCode.REFUSED_STREAM)

    def _refuse(self, stream: Http2Stream, status: int) -> None:
        """Answer without a handler."""
        self._release(stream)
        head = stream.head
        stream.request = Request(head.method, head.path, b"", (), b"", 2, self._peer)
        stream.reply(refusal(status, head.headers))

    def _on_trailers(self, id: int, flags: int, head: Head) -> None:
        stream = self.streams.get(id)
        if stream is None:
            if id in self.forgiven:
                return
            never = not id & 1 or any(id in skipped for skipped in self._skipped)
            code = ErrorCode.PROTOCOL_ERROR if never else ErrorCode.STREAM_CLOSED
            raise LinkError(code, "HEADERS of a stream that cannot be opened")
        if stream.ended:
            raise StreamError(id, ErrorCode.STREAM_CLOSED)
        if not flags & END_STREAM or not head.trailing:
            raise StreamError(id, ErrorCode.PROTOCOL_ERROR)
        self._complete(stream)

    def on_data(self, flags: int, id: int, payload: bytes) -> None:
        """DATA: a piece of a request's body."""
        size = len(payload)
        self._received += size
        if self._received > GRANT >> 1:
            self._grant()
        stream = self.streams.get(id)
        if stream is None or stream.ended:
            self._stray(id)
            return
        stream.allowed -= size
        if flags & PADDED:
            payload = unpad(payload)
        if stream.incoming is not None:
            self._pass_on(stream, stream.incoming, payload, ended=bool(flags & END_STREAM))
            return
        if stream.body:
            self._append(stream, payload)
        else:
            stream.body = payload
        stream.size += len(payload)
        self._held += len(payload)
        if flags & END_STREAM:
            self._complete(stream)
        else:
            self._more(stream, payload)

    def _pass_on(self, stream: Http2Stream, incoming: RequestBody, payload: bytes, *, ended: bool) -> None:
        """Pass a piece of a body on to the handler that reads it, unless it reads too slowly."""
        incoming.feed(payload)
        if incoming.held > self.limits.body_bytes:
            raise StreamError(stream.id, ErrorCode.ENHANCE_YOUR_CALM)
        if ended:
            stream.ended = True
            incoming.end()
        else:
            self._more(stream, payload)

    def _grant(self) -> None:
        self.out.append(window_update(0, self._received))
        self._received = 0

    def _stray(self, id: int) -> None:
        """DATA of a stream that takes none."""
        if not id & 1 or id > self.last:
            if self.draining and id & 1:
                return
            raise LinkError(ErrorCode.PROTOCOL_ERROR, "DATA of a stream that is not open")
        if id not in self.forgiven:
            raise StreamError(id, ErrorCode.STREAM_CLOSED)

    @staticmethod
    def _append(stream: Http2Stream, payload: bytes) -> None:
        if isinstance(stream.body, bytes):
            stream.body = bytearray(stream.body)
        stream.body += payload

    def _more(self, stream: Http2Stream, payload: bytes) -> None:
        """Check a body that goes on, and let it."""
        if not payload:
            self.floods.count(self.now)
        if stream.size > self.limits.body_bytes or self._held > HELD * self.limits.body_bytes:
            self._refuse(stream, 413)
        elif stream.allowed < GRANT >> 1:
            self.out.append(window_update(stream.id, GRANT - stream.allowed))
            stream.allowed = GRANT

    def _release(self, stream: Http2Stream) -> None:
        self._held -= len(stream.body)
        stream.body = b""

    def cancel(self, stream: Http2Stream) -> None:
        """Drop a stream whose answer nobody waits for."""
        if not stream.ended:
            self._release(stream)
        super().cancel(stream)

    def _complete(self, stream: Http2Stream) -> None:
        """The whole request is there."""
        head, body = stream.head, stream.body
        if stream.incoming is not None:  # trailers end the body of a request that was handed over
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
