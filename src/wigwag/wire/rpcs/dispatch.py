"""The one handler of a port that speaks gRPC, gRPC-Web and Connect: which protocol, which method, and then the call.

    Request ─ path ─▶ Method ─ kind, content type ─▶ speaker ─ open ─▶ Call ─ handler ─▶ reply | stream | failure

Each protocol is a speaker: an object for one content type that opens a call and says its result. The common case
touches the headers once; everything odd is told apart afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from typing import Protocol

from wigwag.wire import http
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpc import BidiStream, Call, Code, Method, Methods, RpcError, ServerStream, Unary
from wigwag.wire.rpcs.connect import ConnectGet, ConnectStream, ConnectUnary
from wigwag.wire.rpcs.grpc import Grpc
from wigwag.wire.rpcs.grpcweb import GrpcWeb, GrpcWebText
from wigwag.wire.rpcs.outcome import explain, in_time


class RpcProtocol(Protocol):
    """What any protocol can say."""

    def open(self, request: http.Request, fields: Mapping[bytes, bytes]) -> Call: ...
    def failure(self, error: RpcError, call: Call | None) -> http.Reply: ...


class UnaryProtocol(RpcProtocol, Protocol):
    """A protocol with one message in an answer."""

    def reply(self, call: Call, message: bytes) -> http.Reply: ...


class StreamProtocol(RpcProtocol, Protocol):
    """A protocol with many messages in an answer."""

    def stream(self, call: Call, messages: AsyncIterator[bytes]) -> http.Stream: ...


def rpc_handler(methods: Methods, limits: WireLimits, otherwise: http.Handler | None = None) -> http.Handler:
    """Return the handler of these methods; what no RPC client would ask for goes to `otherwise`."""
    unary, streams = _unary_speakers(limits.body_bytes), _stream_speakers(limits.body_bytes)
    odd = _Odd(unary, streams, _get_speakers(limits.body_bytes), otherwise)

    def handle(request: http.Request) -> http.Response | Awaitable[http.Response]:
        fields = request.fields
        method = methods.get(request.path)
        if method is not None and request.method == b"POST":
            content_type = fields.get(b"content-type", b"")
            if method.unary is not None:
                speaker = unary.get(content_type)
                if speaker is not None:
                    return call_unary(speaker, method.unary, request, fields)
            elif method.stream is not None and content_type in streams:
                return call_stream(streams[content_type], method.stream, request, fields)
        return odd.answer(method, request, fields)

    return handle


def call_unary(
    speaker: UnaryProtocol, handler: Unary, request: http.Request, fields: Mapping[bytes, bytes]
) -> http.Response | Awaitable[http.Response]:
    """Answer at once if the handler does; otherwise return what is to be awaited."""
    call = None
    try:
        call = speaker.open(request, fields)
        result = handler(call)
        if isinstance(result, bytes):
            return speaker.reply(call, result)
    except Exception as error:  # noqa: BLE001  the border of a request
        return speaker.failure(explain(error, request.path), call)
    return _awaited(speaker, result, call)


async def _awaited(speaker: UnaryProtocol, result: Awaitable[bytes], call: Call) -> http.Response:
    try:
        return speaker.reply(call, await in_time(result, call))
    except Exception as error:  # noqa: BLE001  the border of a request
        return speaker.failure(explain(error, call.request.path), call)


def call_stream(
    speaker: StreamProtocol, handler: ServerStream, request: http.Request, fields: Mapping[bytes, bytes]
) -> http.Response | Awaitable[http.Response]:
    """Answer with the stream that the handler returns."""
    call = None
    try:
        call = speaker.open(request, fields)
        messages = handler(call)
        if not isinstance(messages, Awaitable):
            return speaker.stream(call, messages)
    except Exception as error:  # noqa: BLE001  the border of a request
        return speaker.failure(explain(error, request.path), call)
    return _awaited_stream(speaker, messages, call)


async def _awaited_stream(
    speaker: StreamProtocol, messages: Awaitable[AsyncIterator[bytes]], call: Call
) -> http.Response:
    try:
        return speaker.stream(call, await in_time(messages, call))
    except Exception as error:  # noqa: BLE001  the border of a request
        return speaker.failure(explain(error, call.request.path), call)


def early(methods: Methods) -> http.Early:
    """Return which calls are handed over before their messages are there: streams both ways, and unknown methods.

    A client of an unknown streaming method may wait for an answer before it says anything; it gets UNIMPLEMENTED.
    """

    def decide(path: bytes, fields: Mapping[bytes, bytes]) -> bool:
        method = methods.get(path)
        if method is not None:
            return method.bidi is not None
        return fields.get(b"content-type", b"").startswith(b"application/grpc")

    return decide


def call_bidi(
    speaker: Grpc, handler: BidiStream, request: http.Request, fields: Mapping[bytes, bytes]
) -> http.Response | Awaitable[http.Response]:
    """Answer with what the handler makes of the messages."""
    call = None
    try:
        call, messages = speaker.open_stream(request, fields)
        return speaker.stream(call, handler(call, messages))
    except Exception as error:  # noqa: BLE001  the border of a request
        return speaker.failure(explain(error, request.path), call)


class _Odd:
    """Requests that are not an ordinary call of a known method in a content type as we spell it."""

    def __init__(
        self,
        unary: Mapping[bytes, UnaryProtocol],
        streams: Mapping[bytes, StreamProtocol],
        gets: Mapping[bytes, UnaryProtocol],
        otherwise: http.Handler | None,
    ) -> None:
        self._unary, self._streams, self._gets, self._otherwise = unary, streams, gets, otherwise
        self._both_ways = {name: speaker for name, speaker in streams.items() if type(speaker) is Grpc}

    def answer(
        self, method: Method | None, request: http.Request, fields: Mapping[bytes, bytes]
    ) -> http.Response | Awaitable[http.Response]:
        content_type = canonical(fields.get(b"content-type", b""))
        if method is None:
            return self._unknown_path(request, content_type)
        if method.safe and method.unary is not None and request.method == b"GET":
            speaker = self._gets.get(http.parsed(request.query).get(b"encoding", b""))
            if speaker is not None:
                return call_unary(speaker, method.unary, request, fields)
        if request.method != b"POST":
            return http.Reply(405, ((b"allow", b"GET, POST" if method.safe else b"POST"),))
        if method.unary is not None and content_type in self._unary:
            return call_unary(self._unary[content_type], method.unary, request, fields)
        if method.stream is not None and content_type in self._streams:
            return call_stream(self._streams[content_type], method.stream, request, fields)
        if method.bidi is not None and content_type in self._both_ways and request.version == 2:
            return call_bidi(self._both_ways[content_type], method.bidi, request, fields)
        return self._unspoken(method)

    def _unspoken(self, method: Method) -> http.Reply:
        spoken: Iterable[bytes] = self._both_ways
        if method.bidi is None:
            spoken = self._unary if method.unary is not None else self._streams
        return http.Reply(415, ((b"accept-post", b", ".join(spoken)),))

    def _unknown_path(self, request: http.Request, content_type: bytes) -> http.Response | Awaitable[http.Response]:
        if self._otherwise is not None and not content_type.startswith((b"application/grpc", b"application/connect+")):
            return self._otherwise(request)
        speaker: RpcProtocol | None = self._streams.get(content_type) or self._unary.get(content_type)
        if speaker is None or request.method != b"POST":
            return http.Reply(404)
        reply = _refused(speaker, RpcError(Code.UNIMPLEMENTED, "there is no such method"))
        if reply.status == Code.UNIMPLEMENTED.http_status:
            reply.status = 404
        return reply


def refusal(content_type: bytes, error: RpcError) -> http.Reply | None:
    """Return how a client that sends this content type is told of an error before its call was read, if it is RPC."""
    kind = canonical(content_type)
    speaker: RpcProtocol | None = _stream_speakers(0).get(kind) or _unary_speakers(0).get(kind)
    return _refused(speaker, error) if speaker is not None else None


def _refused(speaker: RpcProtocol, error: RpcError) -> http.Reply:
    """Return the answer to a call that no method was asked about; only gRPC tells it from a failure."""
    return speaker.refusal(error) if type(speaker) is Grpc else speaker.failure(error, None)


def canonical(content_type: bytes) -> bytes:
    """Return a content type as we spell it: in lower case, and without saying that the text is UTF-8.

    >>> canonical(b'Application/JSON;charset="UTF-8"')
    b'application/json'
    """
    kind, _, parameters = content_type.lower().partition(b";")
    named = parameters.replace(b'"', b"").strip()
    return kind.strip() if named in {b"", b"charset=utf-8", b"charset=utf8"} else content_type.lower()


def _envelopes(limit: int) -> dict[bytes, Grpc]:
    """Return the speakers that can do both, by content type."""
    found: dict[bytes, Grpc] = {}
    for name, kind in (
        (b"application/grpc", Grpc),
        (b"application/grpc-web", GrpcWeb),
        (b"application/grpc-web-text", GrpcWebText),
    ):
        for suffix in (b"", b"+proto", b"+json"):
            found[name + suffix] = kind(name + suffix, suffix == b"+json", limit)
    return found


def _unary_speakers(limit: int) -> dict[bytes, UnaryProtocol]:
    json = ConnectUnary(b"application/json", True, limit)
    return {
        **_envelopes(limit),
        b"application/proto": ConnectUnary(b"application/proto", False, limit),
        b"application/json": json,
        b"application/json; charset=utf-8": json,
    }


def _get_speakers(limit: int) -> dict[bytes, UnaryProtocol]:
    return {
        b"proto": ConnectGet(b"application/proto", False, limit),
        b"json": ConnectGet(b"application/json", True, limit),
    }


def _stream_speakers(limit: int) -> dict[bytes, StreamProtocol]:
    return {
        **_envelopes(limit),
        b"application/connect+proto": ConnectStream(b"application/connect+proto", False, limit),
        b"application/connect+json": ConnectStream(b"application/connect+json", True, limit),
    }
