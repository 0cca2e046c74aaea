"""The head of an HTTP/1 request, from bytes. Strict: what two readers could read in two ways is refused.

Anybody may send one, so no pattern here can match a text in two ways: such a pattern tries them all before it gives up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from wigwag.dflag.page.messages import HttpError, folded

END = b"\r\n\r\n"
_LINE = re.compile(r"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.[01]")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_LENGTH = re.compile(r"[0-9]{1,15}")
_MOST_FIELDS = 100
_ONCE = ("host", "content-length", "transfer-encoding")


@dataclass(frozen=True, slots=True)
class Head:
    """What comes before the body."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    length: int
    """Of the body."""

    @property
    def hesitant(self) -> bool:
        """Whether the client waits for a word before it sends the body."""
        return self.headers.get("expect", "").lower() == "100-continue"


def parse_head(data: bytes) -> Head:
    r"""Read a head, without the empty line at its end.

    >>> parse_head(b"GET /flags/a%20b?x=1 HTTP/1.1\r\nHost: localhost")
    Head(method='GET', path='/flags/a b', query='x=1', headers={'host': 'localhost'}, length=0)
    """
    first, *lines = data.decode("latin-1").split("\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise HttpError(400, "the first line must be of the form METHOD /path HTTP/1.1")
    headers = _headers(lines)
    path, _, query = line[2].partition("?")
    return Head(line[1], _decoded(path), query, headers, _length(headers))


def _headers(lines: list[str]) -> dict[str, str]:
    if len(lines) > _MOST_FIELDS:
        raise HttpError(431, f"a request has at most {_MOST_FIELDS} header fields")
    found = [_field(line) for line in lines]
    names = [name.lower() for name, _ in found]
    twice = [name for name in _ONCE if names.count(name) > 1]
    if twice:
        raise HttpError(400, f"the header field {twice[0]} is there more than once")
    return folded(found)


def _field(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not (colon and _NAME.fullmatch(name) and _VALUE.fullmatch(value)):
        raise HttpError(400, "a header field must be of the form Name: value, on one line")
    return name, value.strip(" \t")


def _length(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise HttpError(411, "say how long the body is, in Content-Length; it cannot come in chunks")
    length = headers.get("content-length", "0")
    if not _LENGTH.fullmatch(length):
        raise HttpError(400, "Content-Length must be a number of bytes")
    return int(length)


def _decoded(path: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise HttpError(400, "the path is not UTF-8") from None
