"""Answers on an HTTP/2 connection of ours: how header blocks and pieces of bodies reach who asked for them.

The server is trusted no more than a client would be. What we grant it to send on the connection is granted again as
soon as it arrives, so that one answer nobody reads cannot hold up the others; on a stream, as soon as its receiver
wants more. Frames of a stream that is over are ignored, as they may have crossed our reset on the way; only the header
compression has to see them.
"""

from __future__ import annotations

from typing import cast

from wigwag.wire.h2.blocks import HeaderEncoder
from wigwag.wire.h2.client_streams import GRANT, Broken, ClientStream
from wigwag.wire.h2.control import need
from wigwag.wire.h2.flow import Outlet
from wigwag.wire.h2.frames import END_STREAM, PADDED, ErrorCode, goaway, unpad, window_update
from wigwag.wire.h2.heads import Head, answer
from wigwag.wire.h2.hpack import HeaderDecoder
from wigwag.wire.h2.streams import Http2Stream
from wigwag.wire.http import Headers
from wigwag.wire.limits import WireLimits

LINK_GRANT = 4 * GRANT
"""What the server may send ahead on all streams together."""


class Answers(Outlet):
    """The receiving half of a client's connection, above frames."""

    __slots__ = ("_decoder", "_room", "ended")

    def __init__(self, limits: WireLimits, now: float) -> None:
        super().__init__(limits, HeaderEncoder(), now)
        self._decoder, self._room = HeaderDecoder(limits, answer), LINK_GRANT
        self.last = -1
        self.ended: Broken | None = None
        """Why the connection is over."""

    def opened(self, id: int) -> ClientStream | None:
        """Return a stream, or None if it is over; raise if it never began."""
        need(bool(id & 1) and id <= self.last, ErrorCode.PROTOCOL_ERROR, "a frame of a stream that was never opened")
        return cast("ClientStream | None", self.streams.get(id))

    def on_block(self, id: int, flags: int, block: bytes) -> None:
        """Take a whole header block."""
        head = self._decoder.decode(block)  # whoever wanted it: the tables must stay in step
        stream = self.opened(id)
        if stream is None:
            self.floods.count(self.now)
        elif head.status == 431:
            self.reject(
                id, ErrorCode.ENHANCE_YOUR_CALM, f"the headers are larger than {self.limits.header_bytes} bytes"
            )
        elif head.status or head.trailing != stream.answered or (head.trailing and not flags & END_STREAM):
            self.reject(id, ErrorCode.PROTOCOL_ERROR, "the headers of the answer are malformed")
        elif head.trailing:
            self._finish(stream, head.headers)
        else:
            self._on_head(stream, flags, head)

    def _on_head(self, stream: ClientStream, flags: int, head: Head) -> None:
        status = int(head.headers[0][1])
        if 100 <= status < 200:  # something to read while waiting
            self.floods.count(self.now)
            return
        stream.answered = True
        wanted = stream.receiver.on_head(status, head.headers[1:])
        if flags & END_STREAM:
            self._finish(stream, ())
        elif not wanted:
            stream.cancel()

    def on_data(self, flags: int, id: int, payload: bytes) -> None:
        """DATA: a piece of an answer's body."""
        self._take(len(payload))
        stream = self.opened(id)
        if stream is None:
            return
        stream.allowed -= len(payload)
        need(stream.allowed >= 0, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than a stream was granted")
        if flags & PADDED:
            payload = unpad(payload)
        if not stream.answered:
            self.reject(id, ErrorCode.PROTOCOL_ERROR, "the answer has a body but no headers")
        elif payload and not stream.receiver.on_data(payload):
            stream.cancel()
        elif flags & END_STREAM:
            self._finish(stream, ())
        elif payload:
            self.grant(stream)
        else:
            self.floods.count(self.now)

    def _take(self, size: int) -> None:
        self._room -= size
        need(self._room >= 0, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection was granted")
        if self._room < LINK_GRANT >> 1:
            self.out.append(window_update(0, LINK_GRANT - self._room))
            self._room = LINK_GRANT

    def grant(self, stream: ClientStream) -> None:
        """Let the server send more on a stream, if that is worth a frame and anybody wants it."""
        if stream.allowed < GRANT >> 1 and not stream.gone and stream.receiver.hungry():
            self.out.append(window_update(stream.id, GRANT - stream.allowed))
            stream.allowed = GRANT

    # how it ends

    def _finish(self, stream: ClientStream, trailers: Headers) -> None:
        if not stream.said:
            self.forgive(stream.id, ErrorCode.NO_ERROR)
        self.cancel(stream)
        stream.receiver.on_end(trailers)

    def reject(self, id: int, code: ErrorCode, reason: str) -> None:
        """Reset a stream for what the server did on it."""
        if stream := self.streams.get(id):
            self.forgive(id, code)
            self.break_stream(stream, Broken(reason, code))
        self.floods.count(self.now)

    def break_stream(self, stream: Http2Stream, broken: Broken) -> None:
        """Drop a stream, and tell who waits for it."""
        self.cancel(stream)
        cast("ClientStream", stream).receiver.on_broken(broken)

    def cancel(self, stream: Http2Stream) -> None:
        """Drop a stream."""
        stream.gone = True
        self.forget(stream)

    def fail(self, code: ErrorCode, reason: str = "") -> None:
        """End the connection and everything on it."""
        if not self.closing:
            self.out.append(goaway(0, code, reason))
            self.end(Broken(reason or "the connection is closed", code, link=True))

    def end(self, broken: Broken) -> None:
        """Note that the connection is over, and tell everybody."""
        self.closing, self.ended = True, self.ended or broken
        for stream in list(self.streams.values()):
            self.break_stream(stream, self.ended)
