"""The one handler of a port that speaks gRPC, gRPC-Web and Connect: which protocol, which method, and then the call.

    Request ─ path ─▶ Method ─ kind, content type ─▶ protocol ─ open ─▶ Call ─ handler ─▶ reply | stream | failure

Each protocol is an object for one content type, which opens a call and renders its result. The common case touches the
headers once; everything else is left to `_Fallback`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from wigwag.wire import http
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpc import BidiStream, Call, Code, Method, Methods, RpcError, ServerStream, Unary
from wigwag.wire.rpcs.connect import ConnectGet, ConnectStream, ConnectUnary
from wigwag.wire.rpcs.grpc import Grpc
from wigwag.wire.rpcs.grpcweb import GrpcWeb, GrpcWebText
from wigwag.wire.rpcs.outcome import explain, in_time

T = TypeVar("T")
UnaryProtocol: TypeAlias = Grpc | ConnectUnary
StreamProtocol: TypeAlias = Grpc | ConnectStream
RpcProtocol: TypeAlias = UnaryProtocol | StreamProtocol
Outcome: TypeAlias = http.Response | Awaitable[http.Response]


def rpc_handler(methods: Methods, limits: WireLimits, otherwise: http.Handler | None = None) -> http.Handler:
    """Return the handler of these methods; what no RPC client would ask for goes to `otherwise`."""
    fallback = _Fallback(limits.body_bytes, otherwise)
    unary, streams = fallback.unary, fallback.streams

    def handle(request: http.Request) -> Outcome:
        fields = request.known or request.fields
        method = methods.get(request.path)
        if method is not None and request.method == b"POST":
            content_type = fields.get(b"content-type", b"")
            if method.unary is not None:
                protocol = unary.get(content_type)
                if protocol is not None:
                    return call_unary(protocol, method.unary, request, fields)
            elif method.stream is not None and content_type in streams:
                return call_stream(streams[content_type], method.stream, request, fields)
        return fallback.respond(method, request, fields)

    return handle


def call_unary(
    protocol: UnaryProtocol, handler: Unary, request: http.Request, fields: Mapping[bytes, bytes]
) -> Outcome:
    """Respond at once if the handler does; otherwise return what is to be awaited."""
    call = None
    try:
        call = protocol.open(request, fields)
        result = handler(call)
        if isinstance(result, bytes):
            return protocol.reply(call, result)
    except Exception as error:  # noqa: BLE001  the border of a request
        return protocol.failure(explain(error, request.path), call)
    return _awaited(protocol, protocol.reply, result, call)


def call_stream(
    protocol: StreamProtocol, handler: ServerStream, request: http.Request, fields: Mapping[bytes, bytes]
) -> Outcome:
    """Respond with the stream that the handler returns."""
    call = None
    try:
        call = protocol.open(request, fields)
        messages = handler(call)
        if not isinstance(messages, Awaitable):
            return protocol.stream(call, messages)
    except Exception as error:  # noqa: BLE001  the border of a request
        return protocol.failure(explain(error, request.path), call)
    return _awaited(protocol, protocol.stream, messages, call)


async def _awaited(
    protocol: RpcProtocol, respond: Callable[[Call, T], http.Response], result: Awaitable[T], call: Call
) -> http.Response:
    try:
        return respond(call, await in_time(result, call.deadline))
    except Exception as error:  # noqa: BLE001  the border of a request
        return protocol.failure(explain(error, call.request.path), call)


def early(methods: Methods) -> http.Early:
    """Return which calls are handed over before their messages are there: streams both ways, and unknown methods.

    A client of an unknown streaming method may wait for a response before it says anything; it gets UNIMPLEMENTED.
    """

    def decide(path: bytes, fields: Mapping[bytes, bytes]) -> bool:
        method = methods.get(path)
        if method is not None:
            return method.bidi is not None
        return fields.get(b"content-type", b"").startswith(b"application/grpc")

    return decide


def call_bidi(protocol: Grpc, handler: BidiStream, request: http.Request, fields: Mapping[bytes, bytes]) -> Outcome:
    """Respond with what the handler makes of the messages."""
    call = None
    try:
        call, messages = protocol.open_stream(request, fields)
        return protocol.stream(call, handler(call, messages))
    except Exception as error:  # noqa: BLE001  the border of a request
        return protocol.failure(explain(error, request.path), call)


class _Fallback:
    """Responds to requests that are not an ordinary call of a known method in a content type as we spell it."""

    def __init__(self, limit: int, otherwise: http.Handler | None) -> None:
        self._otherwise = otherwise
        kinds = {b"application/grpc": Grpc, b"application/grpc-web": GrpcWeb, b"application/grpc-web-text": GrpcWebText}
        envelopes = {
            name + suffix: kind(name + suffix, suffix == b"+json", limit)
            for name, kind in kinds.items()
            for suffix in (b"", b"+proto", b"+json")
        }
        json = ConnectUnary(b"application/json", True, limit)
        self.unary: dict[bytes, UnaryProtocol] = {
            **envelopes,
            b"application/proto": ConnectUnary(b"application/proto", False, limit),
            b"application/json": json,
            b"application/json; charset=utf-8": json,
        }
        self.streams: dict[bytes, StreamProtocol] = {
            **envelopes,
            b"application/connect+proto": ConnectStream(b"application/connect+proto", False, limit),
            b"application/connect+json": ConnectStream(b"application/connect+json", True, limit),
        }
        self._bidi = {name: protocol for name, protocol in envelopes.items() if type(protocol) is Grpc}
        self._gets = {
            b"proto": ConnectGet(b"application/proto", False, limit),
            b"json": ConnectGet(b"application/json", True, limit),
        }

    def respond(self, method: Method | None, request: http.Request, fields: Mapping[bytes, bytes]) -> Outcome:
        content_type = canonical(fields.get(b"content-type", b""))
        if method is None:
            return self._unknown_path(request, content_type)
        if method.safe and method.unary is not None and request.method == b"GET":
            protocol = self._gets.get(http.parsed(request.query).get(b"encoding", b""))
            if protocol is not None:
                return call_unary(protocol, method.unary, request, fields)
        if request.method != b"POST":
            return http.Reply(405, ((b"allow", b"GET, POST" if method.safe else b"POST"),))
        if method.unary is not None and content_type in self.unary:
            return call_unary(self.unary[content_type], method.unary, request, fields)
        if method.stream is not None and content_type in self.streams:
            return call_stream(self.streams[content_type], method.stream, request, fields)
        if method.bidi is not None and content_type in self._bidi and request.version == 2:
            return call_bidi(self._bidi[content_type], method.bidi, request, fields)
        return self._unsupported(method)

    def _unsupported(self, method: Method) -> http.Reply:
        supported: Iterable[bytes] = self._bidi
        if method.bidi is None:
            supported = self.unary if method.unary is not None else self.streams
        return http.Reply(415, ((b"accept-post", b", ".join(supported)),))

    def _unknown_path(self, request: http.Request, content_type: bytes) -> Outcome:
        if self._otherwise is not None and not content_type.startswith((b"application/grpc", b"application/connect+")):
            return self._otherwise(request)
        protocol = self.streams.get(content_type) or self.unary.get(content_type)
        if protocol is None or request.method != b"POST":
            return http.Reply(404)
        error = RpcError(Code.UNIMPLEMENTED, "there is no such method")
        reply = protocol.refusal(error) if type(protocol) is Grpc else protocol.failure(error, None)
        if reply.status == Code.UNIMPLEMENTED.http_status:
            reply.status = 404
        return reply


def canonical(content_type: bytes) -> bytes:
    """Return a content type as we spell it: in lower case, and without saying that the text is UTF-8.

    >>> canonical(b'Application/JSON;charset="UTF-8"')
    b'application/json'
    """
    kind, _, parameters = content_type.lower().partition(b";")
    named = parameters.replace(b'"', b"").strip()
    return kind.strip() if named in {b"", b"charset=utf-8", b"charset=utf8"} else content_type.lower()
