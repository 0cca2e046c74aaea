"""The flags page as a WSGI application, for gunicorn, uWSGI and waitress, or mounted in Flask or Django."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from wigwag.dflag.page.messages import Request, folded

if TYPE_CHECKING:
    from wigwag.dflag.page.site import Site

Environ: TypeAlias = dict[str, Any]
App: TypeAlias = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
_ALSO_HEADERS = {"CONTENT_TYPE": "content-type", "CONTENT_LENGTH": "content-length"}


def wsgi(site: Site) -> App:
    """Return the application.

    >>> from wigwag import dflag
    >>> from wigwag.dflag.page.site import Site
    >>> app = wsgi(Site(dflag.FlagSet("example")))
    """

    def app(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        response = site(_request(environ, site.limits.body))
        start_response(response.line, list(response.headers))
        return [response.body]

    return app


def _request(environ: Environ, most: int) -> Request:
    return Request(
        environ["REQUEST_METHOD"],
        _text(environ.get("PATH_INFO", "")) or "/",
        environ.get("QUERY_STRING", ""),
        folded(_headers(environ)),
        _body(environ, most),
        environ.get("REMOTE_ADDR", ""),
        _text(environ.get("SCRIPT_NAME", "")).rstrip("/"),
    )


def _headers(environ: Environ) -> Iterable[tuple[str, str]]:
    for key, value in environ.items():
        if key.startswith("HTTP_"):
            yield key.removeprefix("HTTP_").replace("_", "-"), value
        elif key in _ALSO_HEADERS and value:
            yield _ALSO_HEADERS[key], value


def _body(environ: Environ, most: int) -> bytes:
    """Read a body, and of one that is too long no more than shows that. One of unknown length may never end."""
    length = environ.get("CONTENT_LENGTH") or ""
    if length.isdecimal():
        wanted = min(int(length), most + 1)
    else:
        wanted = most + 1 if environ.get("wsgi.input_terminated") else 0
    return _read(environ["wsgi.input"], wanted) if wanted else b""


def _read(source: Any, wanted: int) -> bytes:
    body = bytearray()
    while len(body) < wanted and (more := source.read(wanted - len(body))):
        body += more
    return bytes(body)


def _text(text: str) -> str:
    """WSGI has bytes as if they were Latin-1."""
    return text.encode("latin-1", "replace").decode(errors="replace")
