"""Numbers, bools and durations in the syntax of Go, because a ConfigMap may serve programs in both languages.

Go accepts `0x1F`, `0o17`, `017`, `0b1` and `1_000` as integers of 64 bits, and hexadecimal floats. A decimal float that
is too large for 64 bits is an error in Go; Python would return infinity.

A `timedelta` ends at microseconds, and the text of a duration (`1w2d3h4m5.5s`) at nanoseconds: a value is rounded, and
one that would be rounded to zero is refused.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal

from wigwag.golang import format_nanoseconds, nanoseconds, rounded_quotient

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_INTEGER = re.compile(r"[-+]?(?:0[xX](?:_?[0-9a-fA-F])+|0[oO]?(?:_?[0-7])+|0[bB](?:_?[01])+|0|[1-9](?:_?[0-9])*)")
_OCTAL = re.compile(r"^([-+]?0)(?=_?[0-7])")
"""The beginning of an octal number without an `o`, which Python requires."""
_DECIMAL = re.compile(r"[-+]?(?:[0-9](?:_?[0-9])*+\.?(?:[0-9](?:_?[0-9])*)?|\.[0-9](?:_?[0-9])*)(?:[eE][-+]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[-+]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][-+]?[0-9]+")
_NAMED = re.compile(r"[-+]?inf(?:inity)?|nan", re.IGNORECASE)
_LONGEST = 400
_EXPONENT_FROM = 1e21
"""Go writes an exponent from here on; Python from 1e16. For small numbers both do so below 1e-4."""


def parse_bool(text: str) -> bool:
    """Parse a bool; only the spellings that Go knows.

    >>> parse_bool("T"), parse_bool("0")
    (True, False)
    """
    if text not in _TRUE and text not in _FALSE:
        raise ValueError(f"{shown(text)} is neither true nor false; write one of 1 t true 0 f false")
    return text in _TRUE


def parse_int(text: str) -> int:
    """Parse an integer of 64 bits.

    >>> parse_int("0x1F"), parse_int("-017"), parse_int("1_000")
    (31, -15, 1000)
    """
    if len(text) > _LONGEST or not _INTEGER.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a whole number")
    value = int(_OCTAL.sub(r"\1o", text), 0)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{shown(text)} does not fit in 64 bits")
    return value


def parse_float(text: str) -> float:
    """Parse a number.

    >>> parse_float("1e3"), parse_float("0x1p-2"), parse_float("-Inf")
    (1000.0, 0.25, -inf)
    """
    syntaxes = (_NAMED, _DECIMAL, _HEXADECIMAL) if len(text) <= _LONGEST else ()
    syntax = next((each for each in syntaxes if each.fullmatch(text)), None)
    if syntax is None:
        raise ValueError(f"{shown(text)} is not a number")
    try:
        value = float.fromhex(text) if syntax is _HEXADECIMAL else float(text)
    except OverflowError:
        value = math.inf
    if math.isinf(value) and syntax is not _NAMED:
        raise ValueError(f"{shown(text)} does not fit in 64 bits")
    return value


def format_bool(value: bool) -> str:
    """Format a bool."""
    return "true" if value else "false"


def format_float(value: float) -> str:
    """Format a number with as few digits as identify it.

    >>> [format_float(n) for n in (1.0, 1e20, 1e21, 0.0001, 0.00001, float("inf"), -2.5e-7)]
    ['1', '100000000000000000000', '1e+21', '0.0001', '1e-05', '+Inf', '-2.5e-07']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = float.__repr__(value)
    return f"{Decimal(text):f}".removesuffix(".0") if abs(value) < _EXPONENT_FROM and "e-" not in text else text


def parse_duration(text: str) -> timedelta:
    """Parse a duration.

    >>> parse_duration("1d3h"), parse_duration("-1.5m"), parse_duration("0"), parse_duration("")
    (datetime.timedelta(days=1, seconds=10800), datetime.timedelta(days=-1, seconds=86310), datetime.timedelta(0), datetime.timedelta(0))
    """  # noqa: E501 - how `timedelta` shows itself
    exact = nanoseconds(text)
    rounded = timedelta(microseconds=rounded_quotient(exact, 1000))
    if exact and not rounded:
        raise ValueError(f"{text.strip()!r} is less than a microsecond, which is the least that a timedelta can hold")
    return rounded


def format_duration(value: timedelta) -> str:
    """Format a duration; the inverse of `parse_duration`.

    >>> format_duration(timedelta(days=1, hours=2, minutes=3, milliseconds=500)), format_duration(timedelta(hours=-99))
    ('1d2h3m0.5s', '-4d3h')
    """
    return format_nanoseconds((value.days * 86400 + value.seconds) * 10**9 + value.microseconds * 1000)


def shown(text: str, most: int = 60) -> str:
    """Quote a text for a message; a long one is cut."""
    return repr(text) if len(text) <= most else f"{text[:most]!r}… ({len(text)} characters)"
