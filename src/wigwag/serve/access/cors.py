"""CORS: which web pages may call the agent: none, unless their origin is listed.

You list an origin as a whole (`https://shop.example`), with one `*` for any part of it (`https://*.shop.example`), or
all of them as `*`. The response depends on the origin, so every response that a cache may keep has `vary`, also for
origins that are not listed and for clients that are no browser. Otherwise a cache would serve one client's to another.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.wire.http import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wigwag.wire.http import Handler, Headers, Request, Response

_METHODS = b"GET, POST, OPTIONS"
_EXPOSED = (
    b"etag, grpc-status, grpc-message, grpc-status-details-bin, content-encoding, connect-content-encoding, "
    b"retry-after, www-authenticate"
)
_VARY: Headers = ((b"vary", b"origin"),)
_VARY_PREFLIGHT: Headers = ((b"vary", b"origin, access-control-request-method, access-control-request-headers"),)
_NAMES = re.compile(rb"[\w!#$%&'*+.^`|~-]+(?:[ \t]*,[ \t]*[\w!#$%&'*+.^`|~-]+)*", re.ASCII)


def with_cors(handler: Handler, origins: Sequence[str]) -> Handler:
    """Response preflight requests and mark answers for the listed origins; `*` lists all."""
    if not origins:
        return handler
    listed = listed_by(origins)
    shown = b"*" if "*" in origins else b""

    def handle(request: Request) -> object:
        origin = request.header(b"origin")
        if origin is None:
            return _with(handler(request), _VARY) if request.method == b"GET" else handler(request)
        allowed: Headers = ((b"access-control-allow-origin", shown or origin),) if listed(origin) else ()
        if request.method == b"OPTIONS" and request.header(b"access-control-request-method"):
            return _preflight(request, allowed)
        marks = (*allowed, (b"access-control-expose-headers", _EXPOSED)) if allowed else ()
        return _with(handler(request), (*marks, *_VARY))

    return handle  # type: ignore[return-value]


def listed_by(origins: Sequence[str]) -> Callable[[bytes], bool]:
    """Return what tells whether an origin is listed. Browsers write them in lower case and without a slash."""
    patterns = [_pattern(origin.lower().rstrip("/")) for origin in origins]
    whole = re.compile(b"|".join(patterns))
    return lambda origin: whole.fullmatch(origin.lower()) is not None


def _pattern(origin: str) -> bytes:
    if origin.count("*") > 1:
        raise UsageError(f"--cors-origin: {origin!r} has more than one *; one stands for any part of an origin")
    return b".*".join(re.escape(part.encode()) for part in origin.split("*"))


def _preflight(request: Request, allowed: Headers) -> Reply:
    """Return the headers that allow what a page asks for, `authorization` included, which `*` would not cover."""
    if not allowed:
        return Reply(204, _VARY_PREFLIGHT)
    wanted = request.header(b"access-control-request-headers") or b""
    granted: Headers = ((b"access-control-allow-headers", wanted),) if _NAMES.fullmatch(wanted) else ()
    rest: Headers = ((b"access-control-allow-methods", _METHODS), (b"access-control-max-age", b"7200"))
    return Reply(204, (*allowed, *granted, *rest, *_VARY_PREFLIGHT))


def _with(answer: object, marks: Headers) -> object:
    return _later(answer, marks) if hasattr(answer, "__await__") else _marked(answer, marks)  # type: ignore[arg-type]


def _marked(answer: Response, marks: Headers) -> Response:
    answer.headers = (*answer.headers, *marks)
    return answer


async def _later(answer: object, marks: Headers) -> Response:
    return _marked(await answer, marks)  # type: ignore[misc]
