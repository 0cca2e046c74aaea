"""The requests and responses of the page, without a connection: every server converts to and from them.

Every response passes through `finished`, so it always has the headers that keep a browser from storing it, framing it,
or guessing its type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeAlias

from wigwag.errors import UsageError

Pairs: TypeAlias = tuple[tuple[str, str], ...]
JSON, HTML, TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"
FORM = "application/x-www-form-urlencoded"
_PROBLEM = "application/problem+json"
_LOCKED = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _LOCKED,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # not `no-referrer`: with that, a form's own Origin would be null
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class PageLimits:
    """What a client may ask of the page. All but `body` are for the built-in server.

    >>> PageLimits(connections=0)
    Traceback (most recent call last):
    wigwag.errors.UsageError: the limit 'connections' must be more than 0, got 0
    """

    head: int = 16 << 10
    """Bytes of the headers of a request."""
    body: int = 2 << 20
    """Bytes of a body."""
    connections: int = 32
    """Open connections."""
    seconds: float = 10.0
    """For the head of a request to arrive, for its body, for the next request, and for a client to read 64 KiB."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise UsageError(f"the limit {name!r} must be more than 0, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request to the page."""

    method: str
    path: str
    """Decoded, relative to `root`."""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name in lower case; see `folded`."""
    body: bytes = b""
    peer: str = ""
    """The address of the client."""
    root: str = ""
    """The path that the page is mounted at, without a slash at its end."""
    multiprocess: bool = False
    """Whether the server says that other processes answer such requests, too."""

    def header(self, name: str) -> str:
        """Return a header, or an empty text."""
        return self.headers.get(name, "")

    @property
    def media_type(self) -> str:
        """The type of the body, without parameters."""
        return self.header("content-type").partition(";")[0].strip().lower()

    @property
    def accepts_html(self) -> bool:
        """Whether this is a browser, by the same rule as in the original."""
        return "html" in self.header("accept")


@dataclass(frozen=True, slots=True)
class Response:
    """A response of the page."""

    status: int
    type: str
    body: bytes
    headers: Pairs = ()

    @property
    def line(self) -> str:
        """The status with its name."""
        return f"{self.status} {phrase(self.status)}"

    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers as bytes, with names in lower case."""
        return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers]


class HttpError(Exception):
    """An error response: a status, the reason, and what to do about it."""

    def __init__(self, status: int, detail: str, *headers: tuple[str, str]) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


def phrase(status: int) -> str:
    """Return the name of a status; for some, it depends on the version of Python."""
    return {413: "Content Too Large", 422: "Unprocessable Content"}.get(status) or HTTPStatus(status).phrase


def folded(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name in lower case; repeated ones are joined by commas (RFC 9110).

    >>> folded([("A", "1"), ("a", "2")])
    {'a': '1, 2'}
    """
    headers: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def json_response(value: Any, status: int = 200, headers: Pairs = ()) -> Response:
    """Return JSON that people can read; lone surrogates, which UTF-8 cannot encode, are escaped."""
    return Response(status, JSON, _encoded(value), headers)


def text_response(text: str, type: str = TEXT, status: int = 200, headers: Pairs = ()) -> Response:
    """Return a text."""
    return Response(status, type, text.encode(errors="backslashreplace"), headers)


def problem(error: HttpError) -> Response:
    """Return an error as problem details (RFC 9457)."""
    details = {"title": phrase(error.status), "status": error.status, "detail": error.detail}
    return Response(error.status, _PROBLEM, _encoded(details), error.headers)


def finished(response: Response, method: str) -> Response:
    """Return a response with all its headers, and without a body if the method is HEAD."""
    own = {"Content-Type": response.type, "Content-Length": str(len(response.body)), **dict(response.headers)}
    body = b"" if method == "HEAD" else response.body
    return Response(response.status, response.type, body, tuple({**_SECURITY_HEADERS, **own}.items()))


def _encoded(value: Any) -> bytes:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")
