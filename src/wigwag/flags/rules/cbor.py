"""Deterministic CBOR (RFC 8949 §4.2.1) of a JSON value: the hash input of `fractional` v3.

Numbers are normalised first: a float without fraction that fits 64 bits is an integer, other floats take the shortest
form that is exact. Object members are sorted by their encoded key.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from wigwag.errors import RuleError

if TYPE_CHECKING:
    from wigwag.flags.model import Json

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG = (major << 5 for major in range(7))
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
_NAN = b"\xf9\x7e\x00"
_DEEPEST = 200


def encode(value: Json, depth: int = 0) -> bytes:
    """Return the deterministic encoding.

    >>> encode(["a", 1.0, -1, 1.5, None, {"b": True}]).hex()
    '8661610120f93e00f6a16162f5'
    """
    kind = value.__class__
    if kind is str:
        return encode_text(value)
    if value is None or kind is bool:
        return b"\xf6" if value is None else b"\xf5" if value else b"\xf4"
    if kind is int:
        return _integer(value)
    if kind is float:
        return _integer(int(value)) if value.is_integer() and _SMALLEST <= value <= _LARGEST else _float(value)
    if depth == _DEEPEST:
        raise RuleError("the bucketing value is nested too deeply")
    if kind is list:
        return _head(_ARRAY, len(value)) + b"".join(encode(item, depth + 1) for item in value)
    if kind is dict:
        members = sorted((encode_text(key), encode(item, depth + 1)) for key, item in value.items())
        return _head(_MAP, len(members)) + b"".join(key + item for key, item in members)
    raise RuleError(f"a {kind.__name__} is not a JSON value")


def _head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes((major | argument,))
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if argument < 1 << 8 * size:
            return bytes((major | code,)) + argument.to_bytes(size, "big")
    raise RuleError("a length does not fit 64 bits")


_HEADS = tuple(_head(_TEXT, length) for length in range(256))


def encode_text(value: str) -> bytes:
    """Return the encoding of a text."""
    encoded = value.encode("utf-8", "surrogatepass")
    length = len(encoded)
    return (_HEADS[length] if length < 256 else _head(_TEXT, length)) + encoded


def _integer(value: int) -> bytes:
    major, argument = (_UNSIGNED, value) if value >= 0 else (_NEGATIVE, -1 - value)
    if argument <= _LARGEST:
        return _head(major, argument)
    digits = argument.to_bytes((argument.bit_length() + 7) // 8, "big")
    return _head(_TAG, 2 if value >= 0 else 3) + _head(_BYTES, len(digits)) + digits


def _float(value: float) -> bytes:
    if math.isnan(value):
        return _NAN
    for initial, form in ((b"\xf9", ">e"), (b"\xfa", ">f")):
        try:
            packed = struct.pack(form, value)
        except OverflowError:
            continue
        if struct.unpack(form, packed)[0] == value:
            return initial + packed
    return b"\xfb" + struct.pack(">d", value)
