"""Kinds of values: how they are parsed from text, formatted as text, and checked.

A kind is three functions. `parse` and `format` are inverse; `take` is for a value that the program itself passes (a
default, `set_value`): it returns the value as the flag keeps it, or raises `TypeError`. All raise `ValueError` for a
value of the right type that is not valid. `raw`, where there is one, parses the bytes of a file that is not text;
`compose` parses a list or map of texts from a document.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

from wigwag.dflag.values.numerals import (
    format_bool,
    format_duration,
    format_float,
    parse_bool,
    parse_duration,
    parse_float,
    parse_int,
    shown,
)

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
_LONGEST_DECIMAL = 1000


@dataclass(frozen=True, slots=True)
class ValueKind(Generic[T]):
    """One kind of value.

    >>> INT.parse("0x10"), DURATION.format(timedelta(minutes=90)), BYTES.parse("AAEC")
    (16, '1h30m', b'\\x00\\x01\\x02')
    """

    name: str
    parse: Callable[[str], T]
    format: Callable[[T], str]
    take: Callable[[Any], T]
    raw: Callable[[bytes], T] | None = None
    is_json: bool = False
    compose: Callable[[Any], T] | None = None

    def composed(self, parts: list[Any] | dict[str, Any]) -> T:
        """Parse a list or map of texts; `TypeError` if this kind is neither."""
        if self.compose is None:
            raise wrong(parts, self.name)
        return self.compose(parts)


def wrong(value: object, wanted: str) -> TypeError:
    """Return the error for a value of another type; without the value, which may be secret."""
    return TypeError(f"expected {wanted}, got {type(value).__name__}")


def holds_nan(value: object) -> bool:
    """Tell whether a value is or contains NaN, which does not equal itself."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | frozenset) else (value,)
    return any(isinstance(item, float | Decimal) and item != item for item in inner)


def exactly(wanted: type[T], *also: type) -> Callable[[Any], T]:
    """Return a `take` for values of a type, or of others that convert to it without loss. A bool is not a number."""

    def take(value: Any) -> T:
        if isinstance(value, wanted) and not (isinstance(value, bool) and wanted is not bool):
            return value
        if isinstance(value, also) and not isinstance(value, bool):
            return wanted(value)  # type: ignore[call-arg]  # each caller passes types that convert
        raise wrong(value, wanted.__name__)

    return take


def _take_int(value: Any) -> int:
    number = exactly(int)(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("the number does not fit in 64 bits")
    return number


def _parse_decimal(text: str) -> Decimal:
    try:
        if len(text) <= _LONGEST_DECIMAL and not (value := Decimal(text)).is_snan():  # it cannot be compared
            return value
    except InvalidOperation:
        pass
    raise ValueError(f"{shown(text)} is not a decimal number")


def _parse_base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64 with its padding, which is how bytes are written as text") from None


def _parse_path(text: str) -> Path:
    if "\0" in text:
        raise ValueError("a path cannot hold a zero byte")
    return Path(text)


BOOL = ValueKind("bool", parse_bool, format_bool, exactly(bool))
INT = ValueKind("int", parse_int, str, _take_int)
FLOAT = ValueKind("float", parse_float, format_float, exactly(float, int))
STR = ValueKind("str", str, str, exactly(str))
DURATION = ValueKind("duration", parse_duration, format_duration, exactly(timedelta))
BYTES = ValueKind(
    "bytes", _parse_base64, lambda value: base64.b64encode(value).decode(), exactly(bytes, bytearray), bytes
)
PATH = ValueKind("path", _parse_path, str, exactly(Path, str))
DECIMAL = ValueKind("decimal", _parse_decimal, str, exactly(Decimal, int))


def enum_kind(members: type[E]) -> ValueKind[E]:
    """Return the kind of an enumeration: its members by name or by value.

    >>> from enum import Enum
    >>> class Colour(Enum):
    ...     RED = "red"
    ...     BLUE = "blue"
    >>> kind = enum_kind(Colour)
    >>> kind.parse("RED"), kind.parse("blue"), kind.format(Colour.RED)
    (<Colour.RED: 'red'>, <Colour.BLUE: 'blue'>, 'RED')
    """
    known = {str(member.value): member for member in members} | dict(members.__members__)

    def parse(text: str) -> E:
        if text not in known:
            raise ValueError(f"{shown(text)} is not one of {', '.join(members.__members__)}")
        return known[text]

    return ValueKind(f"one of {', '.join(members.__members__)}", parse, lambda member: member.name, exactly(members))
