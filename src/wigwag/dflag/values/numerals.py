"""Numbers and truth as Go reads and writes them, because a ConfigMap may serve programs in both languages.

Go takes `0x1F`, `0o17`, `017`, `0b1` and `1_000` for integers and knows 64 bits; it takes hexadecimal floats, and a
decimal one that is too large for 64 bits is an error, where Python would answer infinity.
"""

from __future__ import annotations

import math
import re

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_INTEGER = re.compile(
    r"[-+]?(?:(?P<x>0[xX](?:_?[0-9a-fA-F])+)|(?P<o>0[oO]?(?:_?[0-7])+)|(?P<b>0[bB](?:_?[01])+)|(?P<d>0|[1-9](?:_?[0-9])*))"
)
_DECIMAL = re.compile(r"[-+]?(?:[0-9](?:_?[0-9])*+\.?(?:[0-9](?:_?[0-9])*)?|\.[0-9](?:_?[0-9])*)(?:[eE][-+]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[-+]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][-+]?[0-9]+")
_NAMED = re.compile(r"[-+]?inf(?:inity)?|nan", re.IGNORECASE)
_BASES = {"x": 16, "o": 8, "b": 2, "d": 10}
_LONGEST = 400
_EXPONENT = (-4, 21)
"""Go writes an exponent below and from here on; Python has 16 for the latter."""


def parse_bool(text: str) -> bool:
    """Read a truth; only the spellings that Go knows.

    >>> parse_bool("T"), parse_bool("0")
    (True, False)
    """
    if text not in _TRUE and text not in _FALSE:
        raise ValueError(f"{shown(text)} is neither true nor false; write one of 1 t true 0 f false")
    return text in _TRUE


def parse_int(text: str) -> int:
    """Read a whole number of 64 bits.

    >>> parse_int("0x1F"), parse_int("-017"), parse_int("1_000")
    (31, -15, 1000)
    """
    found = _INTEGER.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None or found.lastgroup is None:
        raise ValueError(f"{shown(text)} is not a whole number")
    digits = found[found.lastgroup].replace("_", "")
    magnitude = int(digits.lstrip("0oO") or "0", 8) if found.lastgroup == "o" else int(digits, _BASES[found.lastgroup])
    value = -magnitude if text.startswith("-") else magnitude
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{shown(text)} does not fit in 64 bits")
    return value


def parse_float(text: str) -> float:
    """Read a number.

    >>> parse_float("1e3"), parse_float("0x1p-2"), parse_float("-Inf")
    (1000.0, 0.25, -inf)
    """
    if len(text) > _LONGEST:
        raise ValueError(f"{shown(text)} is not a number")
    if _NAMED.fullmatch(text):
        return float(text)
    try:
        value = _finite(text)
    except OverflowError:
        value = math.inf
    if math.isinf(value):
        raise ValueError(f"{shown(text)} does not fit in 64 bits")
    return value


def _finite(text: str) -> float:
    if _HEXADECIMAL.fullmatch(text):
        return float.fromhex(text)
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a number")
    return float(text)


def format_bool(value: bool) -> str:
    """Write a truth."""
    return "true" if value else "false"


def format_float(value: float) -> str:
    """Write a number with as few digits as lead back to it.

    >>> [format_float(n) for n in (1.0, 1e20, 1e21, 0.0001, 0.00001, float("inf"), -2.5e-7)]
    ['1', '100000000000000000000', '1e+21', '0.0001', '1e-05', '+Inf', '-2.5e-07']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = _digits(value)
    if _EXPONENT[0] <= exponent < _EXPONENT[1]:
        return sign + _plain(digits, exponent)
    fraction = f".{digits[1:]}" if digits[1:] else ""
    return f"{sign}{digits[0]}{fraction}e{exponent:+03d}"


def _digits(value: float) -> tuple[str, str, int]:
    """Return the sign, the digits without zeros at the end, and the power of ten of the first of them."""
    mantissa, _, exponent = f"{value:e}".partition("e") if value == 0 else _shortest(value)
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    first = len(whole) - 1 if whole.strip("0") else -1 - (len(fraction) - len(fraction.lstrip("0")))
    return sign, digits.rstrip("0") or "0", first + int(exponent or 0) if digits else 0


def _shortest(value: float) -> tuple[str, str, str]:
    return repr(value).partition("e")


def _plain(digits: str, exponent: int) -> str:
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return f"{whole}.{fraction}" if fraction else whole


def shown(text: str, most: int = 60) -> str:
    """Quote a text for a message, not more of it than a person reads."""
    return repr(text) if len(text) <= most else f"{text[:most]!r}… ({len(text)} characters)"
