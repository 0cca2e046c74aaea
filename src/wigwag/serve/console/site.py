"""The console as a handler: the page and its modules, the API, and who may see them.

    /console/            the page; everything that it loads is beside it
    /console/api/v1/…    what it shows, as JSON; `openapi.json` describes it

A request from this machine sees everything, as debug pages do. Other machines see nothing, or only with a token, and
then only the flags that the token may ask for. The page itself holds no data, so everybody gets it: it asks for the
token. Nothing is loaded from elsewhere and no script is inline: the content security policy
allows nothing but the files of this package. The first request imports all this: while nobody looks it costs nothing.
"""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from wigwag.errors import WigwagError
from wigwag.flags.model import few
from wigwag.serve.access.local import why_not_local
from wigwag.serve.console.flags import UnknownFlagError
from wigwag.wire.http import Reply, etag_matches

if TYPE_CHECKING:
    from wigwag.wire.http import Handler, Headers, Request, Response

PREFIX = b"/console"
API = PREFIX + b"/api/v1"
SMALL = 1_000
"""Bytes that are not worth compressing."""
_KINDS = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "json": "application/json",
}
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_SECURE: Headers = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_JSON: Headers = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"), *_SECURE)
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)

ApiPage: TypeAlias = "Callable[[Request], Any]"
"""Returns what is sent as JSON, a response, or an awaitable of either."""


def console(api: Mapping[bytes, ApiPage], entrance: Callable[[Handler], Handler]) -> Handler:
    """Return the handler of all paths under `/console`.

    `api` has the pages of the API by their path below `/console/api/v1`; `entrance` decides who may read them, and sets
    the selector of a request that may see some flags only. The page itself holds no data, and is sent to everybody.
    """
    guarded = entrance(lambda request: _api(api, request))

    def handle(request: Request) -> Response | Awaitable[Response]:
        if request.path == API or request.path.startswith(API + b"/"):
            return guarded(request)
        return _asset(request)

    return handle


def local_only(handler: Handler) -> Handler:
    """Let requests from this machine through, and no others."""

    def handle(request: Request) -> Response | Awaitable[Response]:
        refusal = why_not_local(request)
        message = f"the console shows nothing to other machines; {refusal}"
        return as_json(403, {"error": message}) if refusal else handler(request)

    return handle


def everybody(handler: Handler) -> Handler:
    """Let everybody through."""
    return handler


def _api(api: Mapping[bytes, ApiPage], request: Request) -> Response | Awaitable[Response]:
    page = api.get(request.path[len(API) :])
    if page is None:
        return as_json(404, {"error": f"there is no such page; there are {_listed(api)}"})
    try:
        result = page(request)
    except (WigwagError, *_UNREADABLE) as error:
        return _failed(error)
    return _awaited(request, result) if isinstance(result, Awaitable) else _sent(request, result)


def _listed(api: Mapping[bytes, ApiPage]) -> str:
    return few([(API + path).decode() for path in sorted(api)], 20)


async def _awaited(request: Request, result: Awaitable[Any]) -> Response:
    try:
        return _sent(request, await result)
    except (WigwagError, *_UNREADABLE) as error:
        return _failed(error)


def _failed(error: BaseException) -> Reply:
    return as_json(404 if isinstance(error, UnknownFlagError) else 400, {"error": str(error)})


def _sent(request: Request, result: Any) -> Response:
    if result.__class__ is Reply or hasattr(result, "chunks"):
        return result  # type: ignore[no-any-return]
    return compressed(request, as_json(200, result))


def as_json(status: int, value: Any) -> Reply:
    """Return a value as a response."""
    return Reply(status, _JSON, msgspec.json.encode(value) + b"\n")


def compressed(request: Request, reply: Reply) -> Reply:
    """Return a reply compressed, if the client takes that and it is worth it."""
    if len(reply.body) < SMALL or b"gzip" not in (request.header(b"accept-encoding") or b""):
        return reply
    headers = (*reply.headers, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
    return Reply(reply.status, headers, gzip.compress(reply.body, 1))


def _asset(request: Request) -> Reply:
    """Return a file of the page."""
    if request.method not in (b"GET", b"HEAD"):
        return Reply(405, ((b"allow", b"GET, HEAD"), *_SECURE))
    name = request.path[len(PREFIX) :].decode("ascii", "replace").lstrip("/")
    if not request.path.startswith(PREFIX + b"/"):
        return Reply(308, ((b"location", b"console/"), *_SECURE))
    asset = _assets().get(name or "index.html")
    if asset is None:
        return Reply(404, ((b"content-type", b"text/plain; charset=utf-8"), *_SECURE), b"404 page not found\n")
    kind, content, packed, etag = asset
    headers = ((b"content-type", kind), (b"cache-control", b"no-cache"), (b"etag", etag), *_SECURE)
    if etag_matches(request.header(b"if-none-match"), etag):
        return Reply(304, headers)
    if b"gzip" in (request.header(b"accept-encoding") or b""):
        return Reply(200, (*headers, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")), packed)
    return Reply(200, headers, content)


@lru_cache(1)
def _assets() -> dict[str, tuple[bytes, bytes, bytes, bytes]]:
    """Return all files: kind, content, compressed content and tag, by path."""
    assets = {}
    for place in files(__package__).joinpath("assets").iterdir():
        kind = _KINDS.get(place.name.rpartition(".")[2])
        if kind is not None:
            content = place.read_bytes()
            etag = b'"%b"' % blake2b(content, digest_size=9).hexdigest().encode()
            assets[place.name] = f"{kind}; charset=utf-8".encode(), content, gzip.compress(content, 9), etag
    return assets
