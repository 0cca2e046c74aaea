"""The flags page as a WSGI application, for gunicorn, uWSGI and waitress, or mounted in Flask or Django."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from wigwag.dflag.page.messages import HttpError, PageRequest, finished, folded, problem

if TYPE_CHECKING:
    from wigwag.dflag.page.site import Site

Environ: TypeAlias = dict[str, Any]
App: TypeAlias = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
_ALSO_HEADERS = {"CONTENT_TYPE": "content-type", "CONTENT_LENGTH": "content-length"}
_LONGEST_LENGTH = 15
"""Digits of a length; parsing thousands of them is slow."""


def wsgi(site: Site) -> App:
    """Return the application.

    >>> from wigwag import dflag
    >>> from wigwag.dflag.page.site import Site
    >>> app = wsgi(Site(dflag.FlagSet("example")))
    """

    def app(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            response = site(_request(environ, site.limits.body))
        except HttpError as error:
            response = finished(problem(error), environ["REQUEST_METHOD"])
        start_response(response.line, list(response.headers))
        return [response.body]

    return app


def _request(environ: Environ, most: int) -> PageRequest:
    return PageRequest(
        environ["REQUEST_METHOD"],
        _text(environ.get("PATH_INFO", "")) or "/",
        environ.get("QUERY_STRING", ""),
        folded(_headers(environ)),
        _body(environ, most),
        environ.get("REMOTE_ADDR", ""),
        _text(environ.get("SCRIPT_NAME", "")).rstrip("/"),
        bool(environ.get("wsgi.multiprocess")),
    )


def _headers(environ: Environ) -> Iterable[tuple[str, str]]:
    for key, value in environ.items():
        if key.startswith("HTTP_"):
            yield key.removeprefix("HTTP_").replace("_", "-"), value
        elif key in _ALSO_HEADERS and value:
            yield _ALSO_HEADERS[key], value


def _body(environ: Environ, most: int) -> bytes:
    """Read a body, at most one byte over the limit. A body of unknown length may never end, and is not read.

    A body that was cut off looks complete, so its size is compared with `Content-Length`.
    """
    length = environ.get("CONTENT_LENGTH") or ""
    if not length:
        return _read(environ["wsgi.input"], most + 1) if environ.get("wsgi.input_terminated") else b""
    if not length.isdecimal() or len(length) > _LONGEST_LENGTH:
        raise HttpError(400, "Content-Length must be a number of bytes")
    wanted = min(int(length), most + 1)
    body = _read(environ["wsgi.input"], wanted) if wanted else b""
    if len(body) < wanted:
        raise HttpError(400, f"the body ended after {len(body)} of {int(length)} bytes: send it again")
    return body


def _read(source: Any, wanted: int) -> bytes:
    body = bytearray()
    try:
        while len(body) < wanted and (more := source.read(wanted - len(body))):
            body += more
    except OSError:
        raise HttpError(400, "the body could not be read to its end: send it again") from None
    return bytes(body)


def _text(text: str) -> str:
    """Decode UTF-8 that WSGI passes as Latin-1."""
    return text.encode("latin-1", "replace").decode(errors="replace")
