r"""The protobuf wire format, by hand: just enough to read and write messages whose fields we know.

Reading gives the fields in the order they came, with their wire type; unknown ones are ignored, groups are skipped.
Writing is one function per kind of field, and a message is the concatenation of its fields.

    >>> text(1, "flag") + boolean(2, True)
    b'\n\x04flag\x10\x01'
    >>> fields(b"\n\x04flag\x10\x01")
    [(1, 2, b'flag'), (2, 0, 1)]

Accepts what the official parsers accept, and refuses what they refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TypeAlias

from wigwag.wire.rpc import Code, RpcError

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)
DEEPEST = 100
"""Levels of messages in messages."""
MOST_FIELDS = 1000
"""Of one message. No message of ours has that many, and each costs time that others wait for."""

Field: TypeAlias = tuple[int, int, int | bytes]
"""Number, wire type and value: an unsigned integer for VARINT, bytes for the others."""

_DOUBLE = Struct("<d")
_ONE = tuple(bytes((byte,)) for byte in range(256))
_UINT32, _UINT64 = (1 << 32) - 1, (1 << 64) - 1


class MalformedError(RpcError, ValueError):
    """Bytes that are not a message. Raised in a handler, it becomes the error of the call."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INVALID_ARGUMENT, message)


def fields(data: bytes) -> list[Field]:
    """Return the fields of a message."""
    read: list[Field] = []
    position, end, left = 0, len(data), iter(range(MOST_FIELDS))
    try:
        while position < end:
            if len(read) == MOST_FIELDS:
                raise MalformedError(f"a message has at most {MOST_FIELDS} fields")
            key = data[position]
            position += 1
            if key > 0x7F:
                key, position = read_tag(data, position - 1)
            kind = key & 7
            if kind == BYTES:
                size = data[position]
                position += 1
                if size > 0x7F:
                    size, position = read_varint(data, position - 1)
                read.append((_number(key), BYTES, data[position : position + size]))
                position += size
            elif kind == VARINT:
                value, position = read_varint(data, position)
                read.append((_number(key), VARINT, value))
            else:
                position = _rare(data, position, key, read, left)
    except IndexError:
        position = end + 1
    except StopIteration:
        raise MalformedError(f"a message has at most {MOST_FIELDS} fields") from None
    if position > end:
        raise MalformedError("the message is cut short")
    return read


def _rare(data: bytes, position: int, key: int, read: list[Field], left: Iterator[int]) -> int:
    kind, number = key & 7, _number(key)
    if kind == GROUP:
        return skip(data, position, key, left=left)
    if kind not in {FIXED64, FIXED32}:
        raise MalformedError(f"wire type {kind} of field {number} means nothing here")
    after = position + (8 if kind == FIXED64 else 4)
    read.append((number, kind, data[position:after]))
    return after


def skip(data: bytes, position: int, key: int, depth: int = 0, left: Iterator[int] | None = None) -> int:
    """Return the position after a field whose tag was read. May be past the end, which the caller notices.

    Each field inside of a group takes one from `left`, if that is given; none left is `StopIteration`.
    """
    kind, number = key & 7, _number(key)
    if kind == VARINT:
        return read_varint(data, position)[1]
    if kind == BYTES:
        size, position = read_varint(data, position)
        return position + size
    if kind in {FIXED64, FIXED32}:
        return position + (8 if kind == FIXED64 else 4)
    if kind != GROUP or depth == DEEPEST:
        raise MalformedError(f"wire type {kind} of field {number} means nothing here, or is nested too deeply")
    while True:
        if left is not None:
            next(left)
        key, position = read_tag(data, position)
        if key & 7 == END_GROUP and key >> 3 == number:
            return position
        position = skip(data, position, key, depth + 1, left)


def _number(key: int) -> int:
    if key < 8:
        raise MalformedError("there is no field 0")
    return key >> 3


def read_tag(data: bytes, position: int) -> tuple[int, int]:
    """Return a tag, field number and wire type in one, and the position after it."""
    key, after = read_varint(data, position)
    if key > _UINT32 or after - position > 5:
        raise MalformedError("a tag does not fit 32 bits")
    return key, after


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    r"""Return an unsigned integer of up to 64 bits, and the position after it. Past the end is an `IndexError`.

    >>> read_varint(b"\xac\x02", 0)
    (300, 2)
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        if byte < 0x80:
            return (value | byte << shift) & _UINT64, position
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift == 70:
            raise MalformedError("a varint is longer than ten bytes")


def read_text(data: bytes) -> str:
    """Return a string from the bytes of a field, which must be UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedError("a string is not UTF-8") from error


def varint(value: int) -> bytes:
    r"""Return the variable-length form of an integer; negative ones take ten bytes.

    >>> varint(300)
    b'\xac\x02'
    """
    if 0 <= value < 0x80:
        return _ONE[value]
    value &= _UINT64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, kind: int) -> bytes:
    """Return what stands before a field."""
    return varint(number << 3 | kind)


def integer(number: int, value: int) -> bytes:
    """Return a field that is an integer or an enum value."""
    return tag(number, VARINT) + varint(value)


def boolean(number: int, value: bool) -> bytes:
    """Return a field that is true or false."""
    return tag(number, VARINT) + (b"\x01" if value else b"\x00")


def double(number: int, value: float) -> bytes:
    """Return a field that is a double."""
    return tag(number, FIXED64) + _DOUBLE.pack(value)


def blob(number: int, value: bytes) -> bytes:
    """Return a field that is bytes or a message."""
    size = len(value)
    if size < 0x80 and number < 16:
        return _ONE[number << 3 | BYTES] + _ONE[size] + value
    return tag(number, BYTES) + varint(size) + value


def text(number: int, value: str) -> bytes:
    """Return a field that is a string."""
    return blob(number, value.encode())
