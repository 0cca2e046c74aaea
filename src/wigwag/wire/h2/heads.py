"""What a decoded header block says: the head of a request or of a response, or trailers, or why it is none of them.

Whether a block is well formed (RFC 9113 §8) depends on nothing but its fields, so it is decided once and remembered
with the block. Each field was checked when it was a literal; here they only have to fit together. `:authority` becomes
a `host` header, which is where a handler looks for it whatever the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from wigwag.wire.http import Headers, first_values
from wigwag.wire.limits import WireLimits

Field: TypeAlias = tuple[bytes, bytes]

POISON: Field = (b"", b"")
"""Stands for a field that must not be: no field has an empty name."""
PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
NAMED = PSEUDO | {b":status"}
SPECIAL = PSEUDO | HOP_BY_HOP | {b"", b"te", b"content-length", b"host", b":status", b":protocol"}

LARGEST_ENTRY = 4096
"""Of the table, with its overhead. What is not in it is in the block, at most 8/5 of its size once it is decoded."""

OVERHEAD = 32
"""What each field counts beside its name and value (RFC 9113 §6.5.2)."""


class Head(Struct, eq=False):
    """The fields of one block; `status` is 0 if they make a request, 431 if they are too many, 400 if malformed."""

    status: int = 0
    headers: Headers = ()
    fields: Mapping[bytes, bytes] = {}
    """The first value of each header."""
    method: bytes = b""
    path: bytes = b""
    query: bytes = b""
    length: int = -1
    """The content-length, if there is one."""
    trailing: bool = False

    def with_value(self, at: int, field: Field) -> Head:
        """Return the head of this request with another value of the header at `at`, the only one of its name."""
        headers = (*self.headers[:at], field, *self.headers[at + 1 :])
        fields = {**self.fields, field[0]: field[1]}
        return Head(0, headers, fields, self.method, self.path, self.query, self.length)


def request_head(fields: list[Field], limits: WireLimits, size: int) -> Head:
    """Return what the fields of one block say; `size` is that of the block."""
    if len(fields) > limits.header_count or _too_large(fields, limits, size):
        return Head(431)
    pseudo: dict[bytes, bytes] = {}
    special: dict[bytes, bytes] = {}
    plain: list[Field] = []
    for field in fields:
        name = field[0]
        if name in PSEUDO:
            if plain or name in pseudo:
                return Head(400)
            pseudo[name] = field[1]
        elif name in SPECIAL and not _fits(field, special):
            return Head(400)
        else:
            plain.append(field)
    return _request(pseudo, special, plain) if pseudo else Head(400, tuple(plain), trailing=True)


def response_head(fields: list[Field], limits: WireLimits, size: int) -> Head:
    """Return the head of a response, whose first header is its `:status`, or trailers."""
    if len(fields) > limits.header_count or _too_large(fields, limits, size):
        return Head(431)
    status = fields[0][1] if fields and fields[0][0] == b":status" else b""
    rest = fields[1:] if status else fields
    if any(name in NAMED or name in HOP_BY_HOP or not name for name, _ in rest):
        return Head(400)
    if status and not (len(status) == 3 and status.isdigit()):
        return Head(400)
    return Head(0, tuple(fields), trailing=not status)


def _too_large(fields: list[Field], limits: WireLimits, size: int) -> bool:
    """Return whether the fields are too large, which few of them in a small block cannot be."""
    if (len(fields) * LARGEST_ENTRY + 2 * size) <= limits.header_bytes:
        return False
    return sum(len(name) + len(value) + OVERHEAD for name, value in fields) > limits.header_bytes


def _fits(field: Field, special: dict[bytes, bytes]) -> bool:
    name, value = field
    if name == b"content-length":
        return value.isdigit() and len(value) < 20 and special.setdefault(name, value) == value
    if name == b"host":
        return special.setdefault(name, value) == value
    return name == b"te" and value.lower() == b"trailers"


def _request(pseudo: dict[bytes, bytes], special: dict[bytes, bytes], plain: list[Field]) -> Head:
    method, target = pseudo.get(b":method"), pseudo.get(b":path")
    if not method or not target or b":scheme" not in pseudo or (target[:1] != b"/" and target != b"*"):
        return Head(400)
    authority = pseudo.get(b":authority")
    if authority and b"host" not in special:
        plain.insert(0, (b"host", authority))
    headers, (path, _, query) = tuple(plain), target.partition(b"?")
    length = int(special.get(b"content-length", b"-1"))
    return Head(0, headers, first_values(headers), method, path, query, length)
