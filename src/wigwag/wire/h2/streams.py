"""One HTTP/2 stream: a request that arrives in frames, and its answer, which leaves as the windows allow.

Invariant: a stream is in its connection's `streams` from its HEADERS until both ends are done with it or one has reset
it; after that (`gone`) whatever its handler still sends goes nowhere. Nearly every answer is small and leaves at once,
in the one pass through `reply`; the slow way is for answers larger than a frame or a window.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from wigwag.wire.h2.flow import Outlet
from wigwag.wire.h2.frames import DATA, END_STREAM, HEAD, ErrorCode
from wigwag.wire.h2.heads import Head
from wigwag.wire.http import Headers, Reply, Request
from wigwag.wire.rpcs.incoming import RequestBody
from wigwag.wire.server.progress import Progress

BODYLESS = frozenset({204, 205, 304})
EMPTY: Headers = ()


class Http2Stream(Struct, eq=False):
    """One exchange on an HTTP/2 connection. What waits for its window is the chunk itself, which streams share."""

    _outlet: Outlet
    id: int
    head: Head
    allowed: int
    opened: float
    window: int
    body: bytes | bytearray = b""
    size: int = 0
    ended: bool = False
    gone: bool = False
    request: Request = None  # type: ignore[assignment]  # not before it is whole
    task: Any = None
    incoming: RequestBody | None = None
    """Where the body goes, if its handler has the request already."""
    progress: Progress | None = None
    _at: int = 0
    _pending: bytes = b""
    _retained: bytes = b""
    _tail: Headers | None = None

    def reply(self, reply: Reply) -> None:
        if self.gone:
            return
        outlet, body, trailers, size = self._outlet, reply.body, reply.trailers, len(reply.body)
        start, block = outlet.encoder.encode(reply.status, reply.headers, not size and not trailers)
        if (
            size > self.window
            or size > outlet.window
            or size > outlet.max_frame
            or outlet.shrink
            or not start
            or reply.status in BODYLESS
            or self.request.method == b"HEAD"
        ):
            self._reply_slowly(reply)
            return
        me, out = self.id.to_bytes(4, "big"), outlet.out
        if not trailers:
            out += (start, me, block)
            if size:
                out += (HEAD.pack(size >> 8, size & 255, DATA, END_STREAM, self.id), body)
        else:
            last, tail = outlet.encoder.encode(0, trailers, True)
            if not last:
                self._reply_slowly(reply)
                return
            if size:
                out += (start, me, block, HEAD.pack(size >> 8, size & 255, DATA, 0, self.id), body, last, me, tail)
            else:
                out += (start, me, block, last, me, tail)
        outlet.window -= size
        self._finish()

    def _reply_slowly(self, reply: Reply) -> None:
        trailers = reply.trailers or EMPTY
        self._outlet.encoder.encode(0, trailers, True)
        empty = not reply.body and not trailers
        if self._begin(reply.status, reply.headers, end=empty):
            self._pending, self._tail = reply.body, trailers
            self._flush()
            self._retain()

    def begin(self, status: int, headers: Headers) -> bool:
        return not self.gone and self._begin(status, headers, end=False)

    def _begin(self, status: int, headers: Headers, *, end: bool) -> bool:
        end = end or status in BODYLESS or self.request.method == b"HEAD"
        self._send_block(status, headers, end)
        if end:
            self._finish()
        return not end

    def _send_block(self, status: int, headers: Headers, end: bool) -> None:
        outlet = self._outlet
        start, block = outlet.encoder.encode(status, headers, end)
        outlet.floods.answered = True
        if start and not outlet.shrink:
            outlet.out += (start, self.id.to_bytes(4, "big"), block)
        else:
            outlet.send_block(self.id, block, END_STREAM if end else 0)

    def send(self, chunk: bytes) -> None:
        if chunk and not self.gone:
            self._pending, self._at = self._pending[self._at :] + chunk, 0
            self._flush()
            self._retain()

    def end(self, trailers: Headers) -> None:
        if not self.gone:
            self._tail = trailers
            self._flush()

    def abort(self, *, cancelled: bool = False) -> None:
        if not self.gone:
            self._outlet.break_off(self.id, ErrorCode.CANCEL if cancelled else ErrorCode.INTERNAL_ERROR)

    def writable(self) -> bool:
        outlet = self._outlet
        return self._at >= len(self._pending) and self.window > 0 and outlet.window > 0 and outlet.room > 0

    def sent(self) -> int:
        """Return how much of what waits has left, to see whether it moves at all."""
        return self._at

    def _flush(self) -> None:
        while self.step():
            pass

    def _retain(self) -> None:
        """Count what waits, if anything does."""
        self.release()
        if self._pending and not self.gone:
            self._retained = self._pending
            self._outlet.retained.add(self._retained)

    def release(self) -> None:
        """Count what waited no longer."""
        if self._retained:  # only while the stream waits
            self._outlet.retained.remove(self._retained)
            self._outlet.widened, self._retained = True, b""

    def step(self) -> bool:
        """Send one frame if there is room; return whether there may be more."""
        outlet, left = self._outlet, len(self._pending) - self._at
        if left <= 0:
            self._end()
            return False
        room = min(self.window, outlet.window, outlet.max_frame, outlet.room)
        if room <= 0:
            outlet.wait(self)
            return False
        self._send_part(min(left, room), left)
        return not self.gone

    def _send_part(self, size: int, left: int) -> None:
        outlet = self._outlet
        last = size == left and self._tail == EMPTY
        flags = END_STREAM if last else 0
        head = HEAD.pack(size >> 8, size & 255, DATA, flags, self.id)
        outlet.out += (head, self._pending[self._at : self._at + size])
        outlet.floods.answered = True
        outlet.floods.data_frames += 1
        outlet.window -= size
        outlet.room -= size
        outlet.sent += size
        self.window -= size
        self._at += size
        if last:
            self._finish()

    def _end(self) -> None:
        """Nothing waits any more: end the stream if its answer has ended."""
        self._pending, self._at = b"", 0
        self.release()
        outlet = self._outlet
        outlet.served(self)
        if self._tail is None:
            return
        if self._tail:
            self._send_block(0, self._tail, True)
        else:
            outlet.out.append(HEAD.pack(0, 0, DATA, END_STREAM, self.id))
        self._finish()

    def _finish(self) -> None:
        """Both ends are done; a client that is still sending is told that it need not."""
        self.gone = True
        if self._retained:
            self.release()
        outlet = self._outlet
        outlet.floods.answered = True
        if not self.ended:
            outlet.forgive(self.id, ErrorCode.NO_ERROR)
        outlet.forget(self)
