"""A gRPC response without I/O: messages out of pieces of bytes, and how it ended.

    head ─▶ is it gRPC at all? ─▶ pieces ─▶ prefix, size allowed? ─▶ message … ─▶ trailers ─▶ grpc-status

The size is judged by the prefix, before the message is there, so one that is too large costs what was granted ahead and
no more. A compressed message waits as it came: a thousand times its size is needed when it is read, not before, and for
one at a time. The status is in the trailers, or in the head if there is nothing else. The hard cases are responses that
are not gRPC (a proxy's error page) or never end (a message that trickles in): both become an `RpcError` that says so.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from wigwag.wire.client.decode import PIECE, BodyDecoder
from wigwag.wire.h2.client import readable
from wigwag.wire.h2.frames import ErrorCode as Http2Code
from wigwag.wire.h2.streams import GRANT
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.rpcs import envelope
from wigwag.wire.rpcs.envelope import COMPRESSED, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wigwag.wire.h2.client import Broken
    from wigwag.wire.http import Headers

Fields: TypeAlias = dict[bytes, bytes]

TRICKLE_SECONDS = 60.0
"""How long one message may take to arrive, checked whenever the server answers a ping."""
MOST_SAID = 500
_OF_HTTP = {
    400: Code.INTERNAL,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.UNIMPLEMENTED,
    429: Code.UNAVAILABLE,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.UNAVAILABLE,
}
_OF_RESET = {
    Http2Code.REFUSED_STREAM: Code.UNAVAILABLE,
    Http2Code.CANCEL: Code.CANCELLED,
    Http2Code.ENHANCE_YOUR_CALM: Code.RESOURCE_EXHAUSTED,
}


class GzipMessage(bytes):
    """A message that is still compressed."""

    __slots__ = ()


class ResponseReader:
    """One response as it comes: a `Receiver`."""

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self._limit, self._now = limit, now
        self._buffer, self._began = bytearray(), 0.0
        self._gzip, self._unread = False, 0
        self._head: Fields = {}
        self.messages: deque[bytes] = deque()
        self.error: RpcError | None = None
        self.over = self.alive = False
        """Whether nothing more will come; whether the server has shown that it is there since that was last asked."""
        self.wake: Callable[[], object] = bool
        """Called whenever there is news."""

    def pieces(self) -> Iterator[bytes]:
        """Make the oldest message piece by piece. It is read when the last one is: whoever stops may begin again."""
        message = self.messages[0]
        yield from self._unzipped(message) if isinstance(message, GzipMessage) else (message,)
        self.messages.popleft()
        self._unread -= len(message) + PREFIX

    @property
    def partial(self) -> int:
        """How many bytes are here of a message that is not whole yet."""
        return len(self._buffer)

    def fail(self, error: RpcError) -> None:
        """Note how it ended, unless it has."""
        if not self.over:
            self.over, self.error = True, error
            self._buffer = bytearray()
            self.wake()

    # what the connection calls

    def on_head(self, status: int, headers: Headers) -> bool:
        """See whether the response is gRPC."""
        self._head = dict(reversed(headers))
        kind, encoding = self._head.get(b"content-type", b""), self._head.get(b"grpc-encoding", b"identity")
        self._gzip = encoding == b"gzip"
        if b"grpc-status" in self._head:
            return True
        if status != 200 or not kind.startswith(b"application/grpc"):
            self.fail(_not_grpc(status, kind))
        elif not self._gzip and encoding != b"identity":
            self.fail(
                RpcError(Code.INTERNAL, f"the response is compressed with {_text(encoding)!r}, which we never took")
            )
        return not self.over

    def on_data(self, data: bytes) -> bool:
        """Take a piece."""
        if self.over:
            return False
        if not self._buffer:
            self._began = self._now()
        self._buffer += data
        try:
            self._unpack()
        except RpcError as error:
            self.fail(error)
        return not self.over

    def on_end(self, trailers: Headers) -> None:
        """Find the status."""
        fields = dict(reversed(trailers)) if trailers else self._head
        error = _status(fields)
        if error is None and self._buffer:
            error = RpcError(Code.INTERNAL, "the response ended in the middle of a message")
        if error is not None:
            self.fail(error)
        elif not self.over:
            self.over = True
            self.wake()

    def on_broken(self, broken: Broken) -> None:
        """Find a status for what has none."""
        code = Code.UNAVAILABLE if broken.connection else _OF_RESET.get(broken.code, Code.INTERNAL)  # type: ignore[call-overload]
        self.fail(RpcError(code, broken.reason))

    def on_alive(self) -> None:
        """Note a sign of life, and check whether a message takes too long."""
        self.alive = True
        if self._buffer and self._now() - self._began > TRICKLE_SECONDS:
            came = f"after {TRICKLE_SECONDS:g} s a message is still not whole; {len(self._buffer)} bytes of it came"
            self.fail(RpcError(Code.DEADLINE_EXCEEDED, came))
        self.wake()

    def wants_more(self) -> bool:
        """Return whether somebody reads."""
        return self._unread < GRANT

    # messages

    def _unpack(self) -> None:
        """Turn what is whole into messages."""
        buffer, at, end = self._buffer, 0, len(self._buffer)
        while end - at >= PREFIX:
            size = int.from_bytes(buffer[at + 1 : at + PREFIX], "big")
            if size > self._limit:
                raise envelope.too_large(self._limit)
            start, at = at + PREFIX, at + PREFIX + size
            if at > end:
                at = start - PREFIX
                break
            self._add(buffer[start - PREFIX], bytes(memoryview(buffer)[start:at]))
            self._began = self._now()
        if at:
            self._buffer = buffer[at:]
            self.wake()

    def _add(self, flags: int, message: bytes) -> None:
        if flags > COMPRESSED or (flags and not self._gzip):
            raise RpcError(Code.INTERNAL, f"a message has the flags 0x{flags:02x}, and the headers name no compression")
        self.messages.append(GzipMessage(message) if flags else message)
        self._unread += len(message) + PREFIX

    def _unzipped(self, data: bytes) -> Iterator[bytes]:
        """Decompress a message. If that is not possible the response ends with it, whatever else has come."""
        try:
            yield from inflated(data, self._limit)
        except RpcError as error:
            self.messages.clear()
            self._buffer, self._unread = bytearray(), 0
            self.over, self.error = True, error
            raise


def inflated(data: bytes, limit: int) -> Iterator[bytes]:
    """Decompress a message in pieces of a bounded size, some of them empty: input that becomes nothing takes time, too.

    >>> b"".join(inflated(envelope.compress(b"a" * 100), 100)) == b"a" * 100
    True
    """
    unpack, size = BodyDecoder("gzip"), 0
    try:
        for at in range(0, len(data), PIECE):
            yield b""
            for piece in unpack.pieces(data[at : at + PIECE]):
                size += len(piece)
                if size > limit:
                    raise envelope.too_large(limit)
                yield piece
        unpack.end()
    except ValueError as error:
        raise RpcError(Code.INTERNAL, f"a message cannot be read: {error}") from error


def _not_grpc(status: int, kind: bytes) -> RpcError:
    """Say what the response is instead."""
    what = f"HTTP {status} ({_text(kind) or 'no content-type'})"
    code = _OF_HTTP.get(status, Code.UNKNOWN)
    return RpcError(code, f"the response is not gRPC but {what}; is there a proxy, or another server, at this address?")


def _status(fields: Fields) -> RpcError | None:
    """Return the error in trailers; None: the call succeeded."""
    status = fields.get(b"grpc-status")
    if status is None:
        return RpcError(Code.UNKNOWN, "the response ended without a grpc-status")
    number = int(status) if status.isdigit() and len(status) < 3 else -1
    if number == Code.OK:
        return None
    code = Code(number) if number in Code.__members__.values() else Code.UNKNOWN
    message = readable(unquote(_text(fields.get(b"grpc-message", b"")), errors="replace"), MOST_SAID)
    return RpcError(code, message or f"the server gave no reason (grpc-status {_text(status)})")


def _text(value: bytes) -> str:
    return readable(value.decode("latin-1"), MOST_SAID)
