"""Header blocks going out: HPACK without the dynamic table, so that one encoding is right for every connection.

Answers repeat a handful of header lists, and a block that refers to the static table only can be remembered for good.
The hard case is a handler that puts a line break into a header: it is refused here, before anything of it is sent.
"""

from __future__ import annotations

import re

from wigwag.wire.h2.frames import END_HEADERS, END_STREAM, HEADERS, prefix
from wigwag.wire.h2.tables import STATIC
from wigwag.wire.http import Headers

REMEMBERED = 512
LARGEST = 16_384
NAME = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+")
BAD_VALUE = re.compile(rb"[\0\r\n]")
HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
NAMES = {name: index for index, (name, _) in reversed(list(enumerate(STATIC, 1)))}
FIELDS = {field: index for index, field in enumerate(STATIC, 1)}


def integer(value: int, mask: int, high: int) -> bytes:
    """Return an integer with a prefix as wide as `mask`, below the bits `high` (RFC 7541 §5.1)."""
    if value < mask:
        return bytes((high | value,))
    encoded = [high | mask]
    value -= mask
    while value >= 128:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes((*encoded, value))


def field(name: bytes, value: bytes) -> bytes:
    """Return one field, from the static table or as a literal that is not to be indexed."""
    if not NAME.fullmatch(name) or BAD_VALUE.search(value):
        raise ValueError(f"a header cannot be sent: {name!r}")
    if index := FIELDS.get((name, value)):
        return integer(index, 127, 128)
    index = NAMES.get(name, 0)
    named = integer(index, 15, 0) if index else b"\0" + integer(len(name), 127, 0) + name
    return named + integer(len(value), 127, 0) + value


def block(status: int, headers: Headers) -> bytes:
    """Return the block of an answer, or of trailers if there is no status."""
    fields = ((b":status", b"%d" % status), *headers) if status else headers
    return b"".join(field(name, value) for name, value in fields if name not in HOP_BY_HOP)


class HeaderEncoder:
    """Remembers the blocks of answers, with the part of their HEADERS frame that is before the stream.

    It is shared by all connections of a server: what it holds depends on no connection.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int, Headers, bool], tuple[bytes, bytes]] = {}

    def encode(self, status: int, headers: Headers, end: bool) -> tuple[bytes, bytes]:
        """Return the first five bytes of the HEADERS frame, or nothing if one is not enough, and the block."""
        key = (status, headers, end)
        return self._known.get(key) or self._learn(key)

    def _learn(self, key: tuple[int, Headers, bool]) -> tuple[bytes, bytes]:
        encoded = block(key[0], key[1])
        if len(encoded) > LARGEST:
            return b"", encoded
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        flags = END_HEADERS | END_STREAM if key[2] else END_HEADERS
        self._known[key] = known = prefix(HEADERS, flags, len(encoded)), encoded
        return known
