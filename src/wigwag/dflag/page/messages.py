"""What is asked and answered, without a connection: what every server hands to the site, and gets back.

An answer leaves through `finished`, so none can be without the headers that keep a browser from storing it, framing it,
or taking it for something else.
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
_PROBLEM = "application/problem+json"
_LOCKED = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_GUARDS = {
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
    """What a client may ask of the page.

    >>> PageLimits(connections=0)
    Traceback (most recent call last):
    wigwag.errors.UsageError: the limit 'connections' must be more than 0, got 0
    """

    head: int = 16 << 10
    """Bytes of a request before its body."""
    body: int = 2 << 20
    """Bytes of a body."""
    connections: int = 32
    """Connections at a time, for the server that comes with the page."""
    seconds: float = 10.0
    """Seconds for a whole request to come, and again for the answer to go, for the same server."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise UsageError(f"the limit {name!r} must be more than 0, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What is asked."""

    method: str
    path: str
    """Decoded, and without what comes before the site."""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name in lower case; see `folded`."""
    body: bytes = b""
    peer: str = ""
    """The address of who asks."""
    root: str = ""
    """What comes before the site in the paths of its links, if it is a part of something larger."""
    multiprocess: bool = False
    """Whether the server says that other processes answer such requests, too."""

    def header(self, name: str) -> str:
        """Return a header; empty, if it is not there."""
        return self.headers.get(name, "")


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered."""

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
    """An answer that is not what was asked for: a status, why, and what to do about it."""

    def __init__(self, status: int, detail: str, *headers: tuple[str, str]) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


def phrase(status: int) -> str:
    """Return the name of a status, which Python has changed for some."""
    return {413: "Content Too Large", 422: "Unprocessable Content"}.get(status) or HTTPStatus(status).phrase


def folded(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name in lower case; those that come twice are joined, as HTTP has it.

    >>> folded([("A", "1"), ("a", "2")])
    {'a': '1, 2'}
    """
    headers: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def answer_json(value: Any, status: int = 200, headers: Pairs = ()) -> Response:
    """Answer with JSON for people and programs; half a surrogate pair, which UTF-8 cannot hold, is written escaped."""
    return Response(status, JSON, _encoded(value), headers)


def answer_text(text: str, type: str = TEXT, status: int = 200, headers: Pairs = ()) -> Response:
    """Answer with a text."""
    return Response(status, type, text.encode(errors="backslashreplace"), headers)


def problem(refusal: HttpError, **more: str) -> Response:
    """Answer with what is wrong, in the form of RFC 9457."""
    told = {"title": phrase(refusal.status), "status": refusal.status, "detail": refusal.detail, **more}
    return Response(refusal.status, _PROBLEM, _encoded(told), refusal.headers)


def finished(response: Response, method: str) -> Response:
    """Return an answer as it goes out: with all headers, and to HEAD without its body."""
    own = {"Content-Type": response.type, "Content-Length": str(len(response.body)), **dict(response.headers)}
    body = b"" if method == "HEAD" else response.body
    return Response(response.status, response.type, body, tuple({**_GUARDS, **own}.items()))


def _encoded(value: Any) -> bytes:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")
