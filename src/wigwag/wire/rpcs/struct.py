r"""google.protobuf.Struct ⇄ dicts, lists, strings, numbers, booleans and None, straight from and to bytes.

    Struct     repeated 1: entry { 1: key, 2: Value }
    Value      one of 1: null  2: number (double)  3: string  4: bool  5: Struct  6: ListValue
    ListValue  repeated 1: Value

    >>> decode(encode({"tier": "gold", "age": 42, "tags": ["a", None]}))
    {'tier': 'gold', 'age': 42, 'tags': ['a', None]}

Every number is a double on the wire. A whole one up to 2**53 becomes an int, as it would have been in JSON text.
A reader never looks at where its message ends until it is there: running over is noticed by being past the end.
`left` is what a message may still have: each value takes one from it, and none left is `StopIteration`.
What the official parser merges (a field that comes twice) is merged here as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as struct_error
from typing import Any, TypeAlias

from wigwag.errors import WigwagError
from wigwag.wire.rpcs.protobuf import DEEPEST, MalformedError, blob, read_tag, read_varint, skip

Json: TypeAlias = Any
"""None, bool, int, float, str, list or dict with string keys."""

_NULL, _NUMBER, _STRING, _BOOL, _STRUCT, _LIST = 0x08, 0x11, 0x1A, 0x20, 0x2A, 0x32
_NESTED = (_STRUCT, _LIST)
_ENTRY = _KEY = _ITEM = 0x0A
_VALUE = 0x12
_DOUBLE = Struct("<d")
_unpack, _pack = _DOUBLE.unpack_from, _DOUBLE.pack
_EXACT = float(1 << 53)
MOST_VALUES = 10_000
"""Of one message, at any depth: each costs time that others wait for, and compressed they come by the million."""
_REMEMBERED, _REMEMBERED_SIZE = 2048, 64
_REMEMBERED_VALUES = 100
"""Of one attribute: a user's name or address is hardly ever the same again, and to remember it takes longer than to
read it."""
_known: dict[bytes, tuple[str, Json]] = {}
"""Attributes by their bytes."""
_counts: dict[str, int] = {}
"""How many values of each attribute are remembered."""
_CONSTANT = frozenset((str, int, float, bool))
"""What may be shared, because it cannot change."""


class UnencodableError(WigwagError, ValueError):
    """A value that no Struct can hold: not finite, too deep, or not JSON."""


def decode(data: bytes) -> dict[str, Json]:
    """Return the object that a Struct holds."""
    try:
        return _struct(data, 0, len(data), DEEPEST, {}, iter(range(MOST_VALUES)))
    except UnicodeDecodeError as error:
        raise MalformedError("a string is not UTF-8") from error
    except (IndexError, struct_error) as error:
        raise MalformedError("the message is cut short") from error
    except StopIteration:
        raise MalformedError(f"a message has at most {MOST_VALUES} values") from None


def _struct(
    data: bytes, position: int, end: int, depth: int, into: dict[str, Json], left: Iterator[int]
) -> dict[str, Json]:
    while position < end:
        if data[position] != _ENTRY:
            position = _unknown(data, position, left)
            continue
        stop = data[position + 1]
        position += 2
        if stop > 0x7F:
            stop, position = read_varint(data, position - 1)
        stop += position
        entry = data[position:stop] if stop - position <= _REMEMBERED_SIZE else b""
        known = _known.get(entry)
        if known is not None:
            into[known[0]] = known[1]
            position = stop
            continue
        next(left)
        key_size = data[position + 1] if position < stop else 0x80
        middle = position + 2 + key_size
        size, flat = stop - middle - 2, False
        if 1 < size < 0x80 and key_size < 0x80:
            flat = data[position] == _KEY and data[middle] == _VALUE and data[middle + 1] == size
        if flat:
            key = data[position + 2 : middle].decode()
            if data[middle + 2] == _STRING and data[middle + 3] == size - 2:
                next(left)
                value = data[middle + 4 : stop].decode()
            else:
                value = _value(data, middle + 2, stop, depth, None, left)
            if entry and _counts.get(key, 0) < _REMEMBERED_VALUES and value.__class__ in _CONSTANT:
                _remember(entry, key, value)
        else:
            key, value = _entry(data, position, stop, depth, left)
        into[key] = value
        position = stop
    if position != end:
        raise MalformedError("the message is cut short")
    return into


def _remember(entry: bytes, key: str, value: Json) -> None:
    """Remember an attribute: most of a context's attributes are those of many other contexts."""
    if len(_known) >= _REMEMBERED:
        _known.clear()
        _counts.clear()
    _known[entry] = key, value
    _counts[key] = _counts.get(key, 0) + 1


def _entry(data: bytes, position: int, end: int, depth: int, left: Iterator[int]) -> tuple[str, Json]:
    """Read an entry whose fields are long, missing, repeated, unknown or in another order."""
    key, value = "", None
    while position < end:
        field = data[position]
        if field != _KEY and field != _VALUE:
            position = _unknown(data, position, left)
            continue
        next(left)
        size, position = read_varint(data, position + 1)
        stop = position + size
        if field == _KEY:
            key = data[position:stop].decode()
        else:
            value = _value(data, position, stop, depth, value, left)
        position = stop
    if position != end:
        raise MalformedError("the message is cut short")
    return key, value


def _value(data: bytes, position: int, end: int, depth: int, value: Json, left: Iterator[int]) -> Json:
    while position < end:
        next(left)
        field = data[position]
        if field == _STRING:
            size = data[position + 1]
            position += 2
            if size > 0x7F:
                size, position = read_varint(data, position - 1)
            value = data[position : position + size].decode()
            position += size
        elif field == _NUMBER:
            value = _unpack(data, position + 1)[0]
            if -_EXACT <= value <= _EXACT and value == int(value):
                value = int(value)
            position += 9
        elif field == _BOOL:
            number, position = read_varint(data, position + 1)
            value = number != 0
        elif field in _NESTED:
            value, position = _nested(data, position, depth, value, left)
        elif field == _NULL:
            value, position = None, read_varint(data, position + 1)[1]
        else:
            position = _unknown(data, position, left)
    if position != end:
        raise MalformedError("the message is cut short")
    return value


def _nested(data: bytes, position: int, depth: int, value: Json, left: Iterator[int]) -> tuple[Json, int]:
    """Read a Struct or a ListValue; one that follows another of its kind is merged into it."""
    if depth == 1:
        raise MalformedError("the value is nested too deeply")
    field = data[position]
    size, position = read_varint(data, position + 1)
    stop = position + size
    if field == _STRUCT:
        return _struct(data, position, stop, depth - 1, value if value.__class__ is dict else {}, left), stop
    return _list(data, position, stop, depth - 1, value if value.__class__ is list else [], left), stop


def _list(data: bytes, position: int, end: int, depth: int, into: list[Json], left: Iterator[int]) -> list[Json]:
    while position < end:
        if data[position] != _ITEM:
            position = _unknown(data, position, left)
            continue
        size, position = read_varint(data, position + 1)
        if not size:
            next(left)  # any other takes one in `_value`
        into.append(_value(data, position, position + size, depth, None, left))
        position += size
    if position != end:
        raise MalformedError("the message is cut short")
    return into


def _unknown(data: bytes, position: int, left: Iterator[int]) -> int:
    next(left)
    key, position = read_tag(data, position)
    return skip(data, position, key, left=left)


def encode(value: dict[str, Json]) -> bytes:
    """Return the Struct that holds an object."""
    try:
        return _encode_struct(value, DEEPEST)
    except UnicodeEncodeError as error:
        raise UnencodableError("a string is not Unicode text") from error


def _encode_struct(value: dict[str, Json], depth: int) -> bytes:
    entries = []
    for name, item in value.items():
        if not isinstance(name, str):
            raise UnencodableError(f"a key must be a string, not a {name.__class__.__name__}")
        entries.append(blob(1, blob(1, name.encode()) + blob(2, _encode_value(item, depth))))
    return b"".join(entries)


def _encode_value(value: Json, depth: int) -> bytes:
    if isinstance(value, str):
        return blob(3, value.encode())
    if isinstance(value, bool):
        return b"\x20\x01" if value else b"\x20\x00"
    if isinstance(value, int | float):
        return b"\x11" + _encode_number(value)
    if value is None:
        return b"\x08\x00"
    if not isinstance(value, dict | list | tuple):
        raise UnencodableError(f"a {value.__class__.__name__} is not a JSON value")
    if depth == 1:
        raise UnencodableError("the value is nested too deeply")
    if isinstance(value, dict):
        return blob(5, _encode_struct(value, depth - 1))
    return blob(6, b"".join([blob(1, _encode_value(item, depth - 1)) for item in value]))


def _encode_number(value: float) -> bytes:
    try:
        number = float(value)
    except OverflowError as error:
        raise UnencodableError("a number is too large") from error
    if number - number != 0:
        raise UnencodableError("a number is not finite")
    return _pack(number)
