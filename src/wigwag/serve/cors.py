"""Which browsers' pages may call us: none, unless their origin is listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.wire.http import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wigwag.wire.http import Answer, Handler, Headers, Request

_METHODS = b"GET, POST, OPTIONS"
_EXPOSED = b"etag, grpc-status, grpc-message, grpc-status-details-bin, content-encoding, connect-content-encoding"


def with_cors(handler: Handler, origins: Sequence[str]) -> Handler:
    """Answer preflight requests and mark answers for the listed origins; `*` lists all."""
    if not origins:
        return handler
    allowed = frozenset(origin.encode() for origin in origins)

    def handle(request: Request) -> object:
        origin = request.header(b"origin")
        if origin is None or not (b"*" in allowed or origin in allowed):
            return handler(request)
        marks: Headers = ((b"access-control-allow-origin", b"*" if b"*" in allowed else origin), (b"vary", b"origin"))
        if request.method == b"OPTIONS" and request.header(b"access-control-request-method"):
            return _preflight(request, marks)
        answer = handler(request)
        if hasattr(answer, "__await__"):
            return _later(answer, marks)
        return _marked(answer, marks)

    return handle  # type: ignore[return-value]


def _preflight(request: Request, marks: Headers) -> Reply:
    wanted = request.header(b"access-control-request-headers") or b""
    allowed: Headers = (
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", wanted),
        (b"access-control-max-age", b"7200"),
    )
    return Reply(204, marks + allowed)


def _marked(answer: Answer, marks: Headers) -> Answer:
    answer.headers = (*answer.headers, *marks, (b"access-control-expose-headers", _EXPOSED))
    return answer


async def _later(answer: object, marks: Headers) -> Answer:
    return _marked(await answer, marks)  # type: ignore[misc]
