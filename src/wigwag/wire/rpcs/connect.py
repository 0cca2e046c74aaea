"""Connect: unary calls that look like plain HTTP, and streams of envelopes that end with one of JSON.

    unary     POST, content-type: application/proto | application/json ─ the message itself ─ 200, or an error in JSON
    get       GET ?encoding=json&message=… for methods without side effects; `base64=1`, `compression=gzip`
    stream    POST, content-type: application/connect+proto | +json ─ envelope ─ 200 always, envelope …, end (flag 0x02)

Trailers of a unary response are headers named `trailer-…`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from wigwag.wire.http import Headers, Reply, Request, Stream, parsed
from wigwag.wire.rpc import Call, Code, RpcError
from wigwag.wire.rpcs import envelope
from wigwag.wire.rpcs.outcome import chunks, remaining

END = 0x02
_JSON: Headers = ((b"content-type", b"application/json"),)
_DIGITS = 10


class ConnectUnary:
    """One content type of unary calls by POST."""

    def __init__(self, content_type: bytes, json: bool, limit: int, extra: Headers = ()) -> None:
        self._json, self._limit = json, limit
        self._headers: Headers = ((b"content-type", content_type), (b"accept-encoding", envelope.ACCEPTED), *extra)
        self._gzip_headers: Headers = (*self._headers, (b"content-encoding", b"gzip"))

    def open(self, request: Request, fields: Mapping[bytes, bytes]) -> Call:
        """Return the call in a request."""
        return self._call(request, fields, request.body, fields.get(b"content-encoding"))

    def _call(self, request: Request, fields: Mapping[bytes, bytes], message: bytes, encoding: bytes | None) -> Call:
        if encoding is not None and envelope.is_gzip(encoding) and message:
            message = envelope.decompress(message, self._limit)
        if len(message) > self._limit:
            raise envelope.too_large(self._limit)
        return Call(message, self._json, request, fields, deadline(fields))

    def reply(self, call: Call, message: bytes) -> Reply:
        """Return the response with a message."""
        headers = self._headers
        if len(message) >= envelope.WORTH_COMPRESSING and envelope.accepts_gzip(call.fields.get(b"accept-encoding")):
            headers, message = self._gzip_headers, envelope.compress(message)
        if call.response_headers or call.response_trailers:
            headers = (*headers, *_added(call))
        return Reply(200, headers, message)

    def failure(self, error: RpcError, call: Call | None) -> Reply:
        """Return the response of a call that failed."""
        headers = (*_JSON, *error.metadata, *(_added(call) if call is not None else ()))
        return Reply(error.code.http_status, headers, msgspec.json.encode(error_json(error)))


class ConnectGet(ConnectUnary):
    """One encoding of unary calls by GET, which caches may keep apart by what the client accepts."""

    def __init__(self, content_type: bytes, json: bool, limit: int) -> None:
        super().__init__(content_type, json, limit, ((b"vary", b"accept-encoding"),))

    def open(self, request: Request, fields: Mapping[bytes, bytes]) -> Call:
        """Return the call in a request."""
        query = parsed(request.query)
        message = query.get(b"message")
        if message is None:
            raise RpcError(Code.INVALID_ARGUMENT, "the query has no message")
        if query.get(b"connect", b"v1") != b"v1":
            raise RpcError(Code.INVALID_ARGUMENT, "the query must say connect=v1")
        if query.get(b"base64") == b"1":
            message = unbase64(message)
        return self._call(request, fields, message, query.get(b"compression"))


class ConnectStream:
    """One content type of streams."""

    def __init__(self, content_type: bytes, json: bool, limit: int) -> None:
        self._json, self._limit = json, limit
        self._headers: Headers = ((b"content-type", content_type), (b"connect-accept-encoding", envelope.ACCEPTED))
        self._gzip_headers: Headers = (*self._headers, (b"connect-content-encoding", b"gzip"))

    def open(self, request: Request, fields: Mapping[bytes, bytes]) -> Call:
        """Return the call in a request."""
        encoding = fields.get(b"connect-content-encoding")
        envelope.is_gzip(encoding)
        message = envelope.unwrap(request.body, encoding, self._limit)
        return Call(message, self._json, request, fields, deadline(fields))

    def stream(self, call: Call, messages: AsyncIterator[bytes]) -> Stream:
        """Return the response with many messages."""
        gzip = envelope.accepts_gzip(call.fields.get(b"connect-accept-encoding"))
        headers = (*(self._gzip_headers if gzip else self._headers), *call.response_headers)
        pack = partial(envelope.pack, gzip=gzip)
        framed = chunks(messages, call, pack, lambda call: end(call.error, call.response_trailers))
        return Stream(200, headers, framed)

    def failure(self, error: RpcError, call: Call | None) -> Reply:
        """Return the response of a call that failed."""
        headers = (*self._headers, *call.response_headers) if call is not None else self._headers
        return Reply(200, headers, end(error, call.response_trailers if call is not None else ()))


def deadline(fields: Mapping[bytes, bytes]) -> float | None:
    """Return the seconds that the client gives, and refuse a protocol that is not ours."""
    if (fields.get(b"connect-protocol-version") or b"1") != b"1":
        raise RpcError(Code.INVALID_ARGUMENT, 'connect-protocol-version must be "1"')
    timeout = fields.get(b"connect-timeout-ms")
    if not timeout:
        return None
    if not timeout.isdigit() or len(timeout) > _DIGITS:
        raise RpcError(Code.INVALID_ARGUMENT, "connect-timeout-ms must be up to ten digits")
    return remaining(int(timeout) / 1000)


def error_json(error: RpcError) -> dict[str, Any]:
    """Return an error as JSON."""
    described: dict[str, Any] = {"code": error.code.connect_name}
    if error.message:
        described["message"] = error.message.encode("utf-8", "replace").decode()
    if error.details:
        described["details"] = [
            {"type": name, "value": b64encode(value).rstrip(b"=").decode()} for name, value in error.details
        ]
    return described


def end(error: RpcError | None, trailers: Iterable[tuple[bytes, bytes]]) -> bytes:
    r"""Return the last envelope of a stream.

    >>> end(None, ())
    b'\x02\x00\x00\x00\x02{}'
    """
    metadata: dict[str, list[str]] = {}
    for name, value in (*(error.metadata if error is not None else ()), *trailers):
        metadata.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    ending: dict[str, Any] = {} if error is None else {"error": error_json(error)}
    if metadata:
        ending["metadata"] = metadata
    return envelope.wrap(msgspec.json.encode(ending), END)


def _added(call: Call) -> Headers:
    return (*call.response_headers, *((b"trailer-" + name, value) for name, value in call.response_trailers))


def unbase64(value: bytes) -> bytes:
    """Return the bytes of base64, in the alphabet for URLs or the other, padded or not.

    >>> unbase64(b"-_8")
    b'\\xfb\\xff'
    """
    digits = value.translate(bytes.maketrans(b"-_ ", b"+/+")).rstrip(b"=")
    try:
        return b64decode(digits + b"=" * (-len(digits) % 4), validate=True)
    except NotBase64 as error:
        raise RpcError(Code.INVALID_ARGUMENT, "the message is not base64") from error
