"""The head of an HTTP/1.1 answer as bytes: status line and headers, remembered, since answers repeat them.

The hard case is a handler that puts a line break into a header: that could begin another answer, so it is refused.
"""

from __future__ import annotations

import re
from http import HTTPStatus

from wigwag.wire.http import Headers

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BODYLESS = frozenset({204, 304})
REMEMBERED = 512
NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
BAD_VALUE = re.compile(rb"[\0\r\n]")
OURS = frozenset({b"connection", b"transfer-encoding", b"keep-alive"})
PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


def line(name: bytes, value: bytes) -> bytes:
    """Return one header line."""
    if not NAME.fullmatch(name) or BAD_VALUE.search(value):
        raise ValueError(f"a header cannot be sent: {name!r}")
    return b"%b: %b\r\n" % (name, value)


def trailer_lines(trailers: Headers) -> bytes:
    """Return trailers as lines."""
    return b"".join(line(name, value) for name, value in trailers)


class Renderer:
    """Remembers heads; shared by all connections of a server."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int, Headers, bool], bytes] = {}

    def render(self, status: int, headers: Headers, sized: bool) -> bytes:
        """Return the head of an answer without the empty line that ends it; the handler's length only if `sized`."""
        key = (status, headers, sized)
        return self._known.get(key) or self._learn(key)

    def _learn(self, key: tuple[int, Headers, bool]) -> bytes:
        status, headers, sized = key
        dropped = OURS if sized else OURS | {b"content-length"}
        lines = b"".join(line(name, value) for name, value in headers if name not in dropped)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[key] = known = b"HTTP/1.1 %d %b\r\n%b" % (status, PHRASES.get(status, b""), lines)
        return known
