"""Responses of an HTTP/1.1 server: the head, and the body whole, in chunks, or up to the end of the connection.

How the end of a response is marked is decided here once, by what the client understands: a length if the whole response
is there, chunks in HTTP/1.1, otherwise closing. Heads are remembered, since responses repeat them. What is large waits
in `pending`, by reference, and leaves in pieces as the transport has room; a response is done when nothing waits.

The hard case is a handler that puts a line break into a header: that could begin another response, so it is refused.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from wigwag.wire.http import Headers, Reply, Request
from wigwag.wire.server.retained import Retained

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BODYLESS = frozenset({204, 304})
REMEMBERED = 512
NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
BAD_VALUE = re.compile(rb"[\0\r\n]")
OURS = frozenset({b"connection", b"transfer-encoding", b"keep-alive"})
PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
PIECE = 64 * 1024
"""Bytes; what is larger leaves in pieces of this size."""
UNLIMITED = 1 << 62

CHUNKED, CLOSE, KEEP_ALIVE = b"transfer-encoding: chunked\r\n", b"connection: close\r\n", b"connection: keep-alive\r\n"


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return headers or trailers as lines."""
    lines = []
    for name, value in headers:
        if not NAME.fullmatch(name) or BAD_VALUE.search(value):
            raise ValueError(f"a header cannot be sent: {name!r}")
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


@lru_cache(maxsize=REMEMBERED)
def render_head(status: int, headers: Headers, sized: bool) -> bytes:
    """Return the head of a response without the empty line that ends it; the handler's length only if `sized`."""
    dropped = OURS if sized else OURS | {b"content-length"}
    lines = header_lines((name, value) for name, value in headers if name not in dropped)
    return b"HTTP/1.1 %d %b\r\n%b" % (status, PHRASES.get(status, b""), lines)


def has_length(headers: Headers) -> bool:
    """Return whether a handler gives the length itself."""
    return any(name == b"content-length" for name, _ in headers)


class OutputBuffer:
    """The sending half of a connection: bytes to be sent now, and large pieces that wait for room."""

    __slots__ = (
        "_at", "_done", "_finished", "draining", "last", "out", "pending", "retained", "room", "widened"
    )  # fmt: skip

    def __init__(self, done: Callable[[], None], retained: Retained | None = None) -> None:
        """`done` is called when all of a response is in `out`."""
        self._done = done
        self.retained, self.room = retained or Retained(), UNLIMITED
        self.out: list[bytes] = []
        self.pending: deque[bytes] = deque()
        self._at, self._finished = 0, False
        self.draining = self.last = self.widened = False
        """Whether the next response is the last one; whether this one is; whether there may be room again."""

    def put(self, *pieces: bytes) -> None:
        """Send more of a response, after what waits."""
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
                self._done()

    def _drop(self) -> None:
        """Forget the first of what waits."""
        piece, self._at = self.pending.popleft(), 0
        if len(piece) > PIECE:
            self.retained.remove(piece)

    def choked(self) -> bool:
        """Return whether something waits for room."""
        return bool(self.pending)

    def finish(self) -> None:
        """Note that a response is complete; it is done as soon as nothing of it waits."""
        if self.pending:
            self._finished = True
        else:
            self._done()

    def discard(self) -> None:
        """Drop what waits."""
        while self.pending:
            self._drop()


class Http1Exchange:
    """One exchange on an HTTP/1.1 connection."""

    __slots__ = ("_chunked", "_keep", "_modern", "_output", "began", "gone", "refusal", "request", "task")

    def __init__(
        self, output: OutputBuffer, request: Request, modern: bool, keep: bool, refusal: Reply | None = None
    ) -> None:
        self._output, self.request, self._modern, self._keep, self.refusal = output, request, modern, keep, refusal
        self.gone = self.began = self._chunked = False
        self.task: Any = None

    def reply(self, reply: Reply) -> None:
        if reply.trailers and self._trailing():
            self._reply_with_trailers(reply)
            return
        output, body, is_head = self._output, reply.body, self.request.method == b"HEAD"
        sized = is_head and has_length(reply.headers)
        head = render_head(reply.status, reply.headers, sized)
        if not sized and reply.status not in BODYLESS:
            head = b"%bcontent-length: %d\r\n" % (head, len(body))
        if output.draining or not self._keep or not self._modern:
            head += self._connection()
        if is_head or reply.status in BODYLESS:
            body = b""
        if len(body) > PIECE:
            output.put(head, b"\r\n", body)
        else:
            output.out += (head, b"\r\n", body)
        self._finish()

    def _reply_with_trailers(self, reply: Reply) -> None:
        lines = header_lines(reply.trailers or ())
        if self.begin(reply.status, reply.headers):
            self.send(reply.body)
            self._output.put(b"0\r\n", lines, b"\r\n")
            self._finish()

    def _trailing(self) -> bool:
        """Whether the client can take trailers."""
        wanted = b"trailers" in (self.request.header(b"te") or b"").lower()
        return wanted and self._modern and self.request.method != b"HEAD"

    def _connection(self) -> bytes:
        """Return the header that says whether the connection goes on, and remember it."""
        keep = self._keep and not self._output.draining
        self._output.last = not keep
        return KEEP_ALIVE if keep else CLOSE

    def begin(self, status: int, headers: Headers) -> bool:
        output = self._output
        bodyless, sized = status in BODYLESS or self.request.method == b"HEAD", has_length(headers)
        head = render_head(status, headers, sized)
        self._chunked = self._modern and not bodyless and not sized
        if not self._chunked and not sized and not bodyless:
            self._keep = False
        if self._chunked:
            head += CHUNKED
        if output.draining or not self._keep or not self._modern:
            head += self._connection()
        output.out += (head, b"\r\n")
        self.began = True
        if bodyless:
            self._finish()
        return not bodyless

    def send(self, chunk: bytes) -> None:
        if chunk and not self.gone:
            if self._chunked:
                self._output.put(b"%x\r\n" % len(chunk), chunk, b"\r\n")
            else:
                self._output.put(chunk)

    def end(self, trailers: Headers) -> None:
        if not self.gone:
            if self._chunked:
                lines = header_lines(trailers) if trailers and self._trailing() else b""
                self._output.put(b"0\r\n", lines, b"\r\n")
            self._finish()

    def abort(self, *, cancelled: bool = False) -> None:
        if not self.gone:
            self._output.last = True
            self._output.discard()
            self._finish()

    def plain(self) -> bool:
        """Return whether nothing but the request's head and body decides how it is responded to."""
        return self._modern and self._keep

    def writable(self) -> bool:
        return not self._output.pending and self._output.room > 0

    def _finish(self) -> None:
        self.gone = True
        self._output.finish()
