"""One HTTP/1.1 request and its answer: whole, in chunks, or up to the end of the connection.

How an answer's end is told is decided here once, by what the client understands: a length if the whole answer is there,
chunks in HTTP/1.1, otherwise closing. `last` marks the exchange after which the connection closes.

What is large waits in `pending`, by reference, and leaves in pieces as the transport has room; the exchange is done
when nothing waits any more.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from wigwag.wire.h1.render import BODYLESS, Renderer, trailer_lines
from wigwag.wire.http import Headers, Reply, Request
from wigwag.wire.server.retained import Retained

PIECE = 64 * 1024
"""Bytes; what is larger leaves in pieces of this size."""
UNLIMITED = 1 << 62

CHUNKED, CLOSE, KEEP_ALIVE = b"transfer-encoding: chunked\r\n", b"connection: close\r\n", b"connection: keep-alive\r\n"


def has_length(headers: Headers) -> bool:
    """Return whether a handler tells the length itself."""
    return any(name == b"content-length" for name, _ in headers)


class Outlet:
    """What an exchange needs of its connection."""

    __slots__ = (
        "_at",
        "_finished",
        "closing",
        "current",
        "draining",
        "last",
        "out",
        "pending",
        "renderer",
        "retained",
        "room",
        "widened",
    )

    def __init__(self, renderer: Renderer, retained: Retained | None = None) -> None:
        self.renderer = renderer
        self.retained, self.room = retained or Retained(), UNLIMITED
        self.pending: deque[bytes] = deque()
        self._at, self._finished = 0, False
        self.out: list[bytes] = []
        self.closing = self.draining = self.last = self.widened = False
        self.current: Http1Exchange | None = None

    def done(self) -> None:
        """Go on with the next request."""
        raise NotImplementedError

    def put(self, *pieces: bytes) -> None:
        """Send more of the answer, after what waits."""
        for piece in pieces:
            self.pending.append(piece)
            if len(piece) > PIECE:
                self.retained.add(piece)
        self.pump()

    def pump(self) -> None:
        """Send what waits, as far as there is room."""
        pending = self.pending
        while pending and self.room > 0:
            piece = pending[0]
            part = piece[self._at : self._at + PIECE]
            self.out.append(part)
            self.room -= len(part)
            self._at += len(part)
            if self._at >= len(piece):
                self._drop()
        if not pending:
            self.widened = True
            if self._finished:
                self._finished = False
                self.done()

    def _drop(self) -> None:
        """Forget the first of what waits."""
        piece, self._at = self.pending.popleft(), 0
        if len(piece) > PIECE:
            self.retained.remove(piece)

    def choked(self) -> bool:
        """Return whether something waits for room."""
        return bool(self.pending)

    def finish(self) -> None:
        """Go on with the next request as soon as nothing of this answer waits."""
        if self.pending:
            self._finished = True
        else:
            self.done()

    def discard(self) -> None:
        """Drop what waits."""
        while self.pending:
            self._drop()

    def cut(self, _reason: str) -> None:
        """End the connection and everything on it."""
        self.discard()
        self.last = self.closing = True


class Http1Exchange:
    """One exchange on an HTTP/1.1 connection."""

    __slots__ = ("_chunked", "_keep", "_modern", "_outlet", "began", "gone", "refusal", "request", "task")

    def __init__(
        self, outlet: Outlet, request: Request, modern: bool, keep: bool, refusal: Reply | None = None
    ) -> None:
        self._outlet, self.request, self._modern, self._keep, self.refusal = outlet, request, modern, keep, refusal
        self.gone = self.began = self._chunked = False
        self.task: Any = None

    def reply(self, reply: Reply) -> None:
        if reply.trailers and self._trailing():
            self._reply_with_trailers(reply)
            return
        outlet, body, is_head = self._outlet, reply.body, self.request.method == b"HEAD"
        sized = is_head and has_length(reply.headers)
        head = outlet.renderer.render(reply.status, reply.headers, sized)
        if not sized and reply.status not in BODYLESS:
            head = b"%bcontent-length: %d\r\n" % (head, len(body))
        if outlet.draining or not self._keep or not self._modern:
            head += self._connection()
        if is_head or reply.status in BODYLESS:
            body = b""
        if len(body) > PIECE:
            outlet.put(head, b"\r\n", body)
        else:
            outlet.out += (head, b"\r\n", body)
        self._finish()

    def _reply_with_trailers(self, reply: Reply) -> None:
        lines = trailer_lines(reply.trailers or ())
        if self.begin(reply.status, reply.headers):
            self.send(reply.body)
            self._outlet.put(b"0\r\n", lines, b"\r\n")
            self._finish()

    def _trailing(self) -> bool:
        """Whether the client can take trailers."""
        wanted = b"trailers" in (self.request.header(b"te") or b"").lower()
        return wanted and self._modern and self.request.method != b"HEAD"

    def _connection(self) -> bytes:
        """Return the header that says whether the connection goes on, and remember it."""
        keep = self._keep and not self._outlet.draining
        self._outlet.last = not keep
        return KEEP_ALIVE if keep else CLOSE

    def begin(self, status: int, headers: Headers) -> bool:
        outlet = self._outlet
        bodyless, sized = status in BODYLESS or self.request.method == b"HEAD", has_length(headers)
        head = outlet.renderer.render(status, headers, sized)
        self._chunked = self._modern and not bodyless and not sized
        if not self._chunked and not sized and not bodyless:
            self._keep = False
        if self._chunked:
            head += CHUNKED
        if outlet.draining or not self._keep or not self._modern:
            head += self._connection()
        outlet.out += (head, b"\r\n")
        self.began = True
        if bodyless:
            self._finish()
        return not bodyless

    def send(self, chunk: bytes) -> None:
        if chunk and not self.gone:
            if self._chunked:
                self._outlet.put(b"%x\r\n" % len(chunk), chunk, b"\r\n")
            else:
                self._outlet.put(chunk)

    def end(self, trailers: Headers) -> None:
        if not self.gone:
            if self._chunked:
                lines = trailer_lines(trailers) if trailers and self._trailing() else b""
                self._outlet.put(b"0\r\n", lines, b"\r\n")
            self._finish()

    def abort(self, *, cancelled: bool = False) -> None:
        if not self.gone:
            self._outlet.last = True
            self._outlet.discard()
            self._finish()

    def plain(self) -> bool:
        """Return whether nothing but the request's head and body decides how it is answered."""
        return self._modern and self._keep

    def writable(self) -> bool:
        return not self._outlet.pending and self._outlet.room > 0

    def _finish(self) -> None:
        self.gone = True
        self._outlet.finish()
