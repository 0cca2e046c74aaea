"""gRPC-Web: gRPC for clients that cannot read HTTP trailers. They come as a last envelope of the body, flag 0x80.

    response  200, headers ─ envelope … ─ 0x80 length "grpc-status: 0\\r\\n…"

With `-text` in the content type the body is base64, each chunk for itself.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Callable, Mapping

from msgspec.structs import replace

from wigwag.wire.http import Headers, Reply, Request, Stream
from wigwag.wire.rpc import Call, Code, RpcError
from wigwag.wire.rpcs import envelope
from wigwag.wire.rpcs.grpc import OK, Grpc

TRAILERS = 0x80
_PIECES = 16


class GrpcWeb(Grpc):
    """One content type of gRPC-Web, in bytes."""

    def reply(self, call: Call, message: bytes) -> Reply:
        """Return the response with a message."""
        return self._whole(super().reply(call, message))

    def failure(self, error: RpcError, call: Call | None) -> Reply:
        """Return the response of a call that failed."""
        reply = super().failure(error, call)
        if reply.trailers is None:
            shared = len(self._headers)
            reply.headers, reply.trailers = self._headers, reply.headers[shared:]
        return self._whole(reply)

    def stream(self, call: Call, messages: AsyncIterator[bytes]) -> Stream:
        """Return the response with many messages."""
        stream = super().stream(call, messages)
        assert stream.trailers is not None
        return Stream(stream.status, stream.headers, self._with_trailers(stream.chunks, stream.trailers))

    def _whole(self, reply: Reply) -> Reply:
        trailers, reply.trailers = reply.trailers or (), None
        reply.body = self._out(reply.body + (_OK_FRAME if trailers is OK else trailer_frame(trailers)))
        return reply

    async def _with_trailers(
        self, chunks: AsyncIterator[bytes], trailers: Callable[[], Headers]
    ) -> AsyncIterator[bytes]:
        try:
            async for chunk in chunks:
                yield self._out(chunk)
        finally:
            await chunks.aclose()  # type: ignore[attr-defined]
        yield self._out(trailer_frame(trailers()))

    def _out(self, data: bytes) -> bytes:
        return data


class GrpcWebText(GrpcWeb):
    """One content type of gRPC-Web, in base64."""

    def open(self, request: Request, fields: Mapping[bytes, bytes]) -> Call:
        """Return the call in a request."""
        call = super().open(replace(request, body=unbase64(request.body)), fields)
        call.request = request
        return call

    def _out(self, data: bytes) -> bytes:
        return b64encode(data)


def unbase64(body: bytes) -> bytes:
    """Return the bytes of several pieces of base64, each padded for itself.

    >>> unbase64(b"YQ==Yg==")
    b'ab'
    """
    pieces = re.findall(rb"[^=]+=*|=+", body) if body.count(b"=") <= 2 * _PIECES else [body]
    try:
        return b"".join([b64decode(piece, validate=True) for piece in pieces])
    except NotBase64 as error:
        raise RpcError(Code.INVALID_ARGUMENT, "the body is not base64") from error


def trailer_frame(trailers: Headers) -> bytes:
    r"""Return the last envelope of a response.

    >>> trailer_frame(((b"grpc-status", b"0"),))
    b'\x80\x00\x00\x00\x10grpc-status: 0\r\n'
    """
    lines = [b"%b: %b\r\n" % (name, re.sub(rb"[\r\n]", b" ", value)) for name, value in trailers]
    return envelope.wrap(b"".join(lines), TRAILERS)


_OK_FRAME = trailer_frame(OK)
