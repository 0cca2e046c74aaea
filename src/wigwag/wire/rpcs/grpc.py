"""gRPC over HTTP/2: an enveloped message each way, and the status in the trailers.

    request   content-type: application/grpc[+proto|+json], grpc-timeout, grpc-encoding ─ envelope
    response  200, headers ─ envelope … ─ grpc-status, grpc-message
    error     200, headers ─ grpc-status, grpc-message
    refused   200, headers that are trailers at the same time ("trailers only")

Clients with a retry policy retry a call only until its response headers arrive. So an error of a known method, also
of a call that cannot be read, sends headers first, as flagd does, and the client takes it for final. Trailers only is
for calls that were not served: one that names no method, and UNAVAILABLE, which a client should retry.

What goes out for a success is the same tuple each time, so that HTTP/2 may remember its encoding by identity. So are
the headers and trailers of an error without details, for the last few errors.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache, partial

from wigwag.wire.http import Headers, Reply, Request, RequestBody, Stream
from wigwag.wire.rpc import Call, Code, RpcError
from wigwag.wire.rpcs import envelope
from wigwag.wire.rpcs.outcome import chunks, remaining
from wigwag.wire.rpcs.protobuf import blob, integer, text
from wigwag.wire.server.broadcast import BroadcastStream, Frame

OK: Headers = ((b"grpc-status", b"0"),)
_UNIT = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_DIGITS = 8


class BroadcastResponse(Stream):
    """A stream of a broadcast. A connection that cannot send it so pulls the chunks, as of any stream."""

    __slots__ = ("ending", "frame", "messages", "seconds")

    def __init__(
        self,
        stream: Stream,
        messages: BroadcastStream,
        frame: Frame,
        ending: Callable[[RpcError], Headers],
        seconds: float | None = None,
    ) -> None:
        """`ending` gives the trailers of an error, and `seconds` is how long the client waits for the end."""
        super().__init__(stream.status, stream.headers, stream.chunks, stream.trailers)
        self.messages, self.frame, self.ending, self.seconds = messages, frame, ending, seconds


class Grpc:
    """One content type of gRPC."""

    def __init__(self, content_type: bytes, json: bool, limit: int) -> None:
        self._json, self._limit = json, limit
        self._headers: Headers = ((b"content-type", content_type), (b"grpc-accept-encoding", envelope.ACCEPTED))
        self._gzip_headers: Headers = (*self._headers, (b"grpc-encoding", b"gzip"))

    def open(self, request: Request, fields: Mapping[bytes, bytes]) -> Call:
        """Return the call in a request."""
        encoding, timeout = fields.get(b"grpc-encoding"), fields.get(b"grpc-timeout")
        if encoding is not None:
            envelope.is_gzip(encoding)
        message = envelope.unwrap(request.body, encoding, self._limit)
        return Call(message, self._json, request, fields, seconds(timeout) if timeout else None)

    def open_stream(self, request: Request, fields: Mapping[bytes, bytes]) -> tuple[Call, AsyncIterator[bytes]]:
        """Return the call in a request whose messages are still arriving, and the messages."""
        encoding, timeout = fields.get(b"grpc-encoding"), fields.get(b"grpc-timeout")
        envelope.is_gzip(encoding)
        call = Call(b"", self._json, request, fields, seconds(timeout) if timeout else None)
        pieces = request.incoming or RequestBody.whole(request.body)
        return call, envelope.unwrap_stream(pieces, encoding, self._limit)

    def reply(self, call: Call, message: bytes) -> Reply:
        """Return the response with a message."""
        if len(message) >= envelope.WORTH_COMPRESSING or call.response_headers or call.response_trailers:
            return Reply(200, self._leading(call), envelope.pack(message, _takes_gzip(call)), _ending(call))
        return Reply(200, self._headers, len(message).to_bytes(5, "big") + message, OK)

    def failure(self, error: RpcError, call: Call | None) -> Reply:
        """Return the response to a call that failed, or could not be opened. It gets headers first: see above."""
        added = call.response_headers if call is not None else ()
        if error.code is Code.UNAVAILABLE and not added:
            return self.refusal(error, call)
        headers = (*self._headers, *added) if added else self._headers
        plain = not (error.details or error.metadata or (call is not None and call.response_trailers))
        return Reply(200, headers, b"", _status(error.code, error.message) if plain else trailers(error, call))

    def refusal(self, error: RpcError, call: Call | None = None) -> Reply:
        """Return the response to a call that was not served: trailers only, so that it may be retried."""
        if error.details or error.metadata or (call is not None and call.response_trailers):
            return Reply(200, self._headers + trailers(error, call))
        return Reply(200, _trailers_only(self._headers, error.code, error.message))

    def stream(self, call: Call, messages: AsyncIterator[bytes]) -> Stream:
        """Return the response with many messages."""
        frame = _compressed if _takes_gzip(call) else _plain
        stream = Stream(200, self._leading(call), chunks(messages, call, frame), partial(_ending, call))
        if isinstance(messages, BroadcastStream) and not call.response_trailers:
            return BroadcastResponse(stream, messages, frame, _trailers_of, call.deadline)
        return stream

    def _leading(self, call: Call) -> Headers:
        headers = self._gzip_headers if _takes_gzip(call) else self._headers
        return (*headers, *call.response_headers) if call.response_headers else headers


_compressed = partial(envelope.pack, gzip=True)
_plain = partial(envelope.pack, gzip=False)


def _trailers_of(error: RpcError) -> Headers:
    return trailers(error, None)


def _takes_gzip(call: Call) -> bool:
    return envelope.accepts_gzip(call.fields.get(b"grpc-accept-encoding"))


def _ending(call: Call) -> Headers:
    if call.error is None:
        return (*OK, *call.response_trailers) if call.response_trailers else OK
    return trailers(call.error, call)


def trailers(error: RpcError, call: Call | None) -> Headers:
    """Return the status and whatever goes with it."""
    own = tuple(call.response_trailers) if call is not None else ()
    return (*_status(error.code, error.message), *_details(error), *error.metadata, *own)


@lru_cache(maxsize=64)
def _trailers_only(headers: Headers, code: Code, message: str) -> Headers:
    return headers + _status(code, message)


@lru_cache(maxsize=64)
def _status(code: Code, message: str) -> Headers:
    status = (b"grpc-status", b"%d" % code)
    return (status, (b"grpc-message", percent_encode(message))) if message else (status,)


def _details(error: RpcError) -> Headers:
    """Return google.rpc.Status, which repeats code and message beside the details."""
    if not error.details:
        return ()
    status = [integer(1, error.code), blob(2, _utf8(error.message))]
    for name, value in error.details:
        status.append(blob(3, text(1, "type.googleapis.com/" + name) + blob(2, value)))
    return ((b"grpc-status-details-bin", b64encode(b"".join(status)).rstrip(b"=")),)


def percent_encode(message: str) -> bytes:
    """Return the text of grpc-message: printable ASCII as it is, the rest as %XX of its UTF-8.

    >>> percent_encode("100% sûr")
    b'100%25 s%C3%BBr'
    """
    return re.sub(rb"[^ -$&-~]", lambda match: b"%%%02X" % match[0][0], _utf8(message))


def _utf8(message: str) -> bytes:
    return message.encode("utf-8", "replace")


@lru_cache(maxsize=256)
def seconds(timeout: bytes) -> float:
    """Return a grpc-timeout in seconds.

    >>> seconds(b"250m")
    0.25
    """
    number, unit = timeout[:-1], _UNIT.get(timeout[-1:])
    if unit is None or not number.isdigit() or len(number) > _DIGITS:
        raise RpcError(Code.INVALID_ARGUMENT, "grpc-timeout must be up to eight digits and one of H, M, S, m, u, n")
    return remaining(int(number) * unit)
