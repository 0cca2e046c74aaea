"""Durations in the format of the original: `1w2d3h4m5.5s`, from nanoseconds to weeks.

Inside this module a duration is an integer of nanoseconds, within 64 bits, so nothing is rounded on the way. Python's
`timedelta` has microseconds: a value is rounded to them, and one that would be rounded to zero is rejected.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from wigwag.dflag.values.numerals import shown

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # the micro sign
    "μs": 10**3,  # the Greek letter, which some keyboards write
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
    "w": 7 * 86400 * 10**9,
}
_PART = re.compile(r"[ \t]*([0-9]++\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d|w)")
_LARGE = ("w", "d", "h", "m")
_MOST = 1 << 63
_LONGEST = 200


def parse_duration(text: str) -> timedelta:
    """Parse a duration.

    >>> parse_duration("1d3h"), parse_duration("-1.5m"), parse_duration("0"), parse_duration("")
    (datetime.timedelta(days=1, seconds=10800), datetime.timedelta(days=-1, seconds=86310), datetime.timedelta(0), datetime.timedelta(0))
    """  # noqa: E501 - how `timedelta` shows itself
    exact = nanoseconds(text)
    rounded = timedelta(microseconds=round(Fraction(exact, 1000)))
    if exact and not rounded:
        raise ValueError(f"{text.strip()!r} is less than a microsecond, which is the least that a timedelta can hold")
    return rounded


def format_duration(value: timedelta) -> str:
    """Format a duration; the inverse of `parse_duration`.

    >>> format_duration(timedelta(days=1, hours=2, minutes=3, milliseconds=500)), format_duration(timedelta(hours=-99))
    ('1d2h3m0.5s', '-4d3h')
    """
    return format_nanoseconds((value.days * 86400 + value.seconds) * 10**9 + value.microseconds * 1000)


def nanoseconds(text: str) -> int:
    """Parse a duration exactly.

    >>> nanoseconds("10.003µs"), nanoseconds("3w 2d\t4h"), nanoseconds(" -0 ")
    (10003, 2001600000000000, 0)
    """
    plain = text.strip()
    sign, digits = (-1, plain[1:]) if plain.startswith("-") else (1, plain.removeprefix("+"))
    if digits in ("", "0"):
        if plain in ("-", "+"):
            raise _not_a_duration(text)
        return 0
    total = _sum(digits, text)
    if total >= _MOST:
        raise ValueError(f"{plain!r} is more than 292 years, which 64 bits of nanoseconds cannot hold")
    return sign * total


def _sum(digits: str, text: str) -> int:
    if len(digits) > _LONGEST:
        raise _not_a_duration(text)
    total, at = Fraction(0), 0
    while at < len(digits):
        part = _PART.match(digits, at)
        if part is None:
            raise _not_a_duration(text)
        number = part[1].removesuffix(".")
        total += Fraction(number) * _UNITS[part[2]]
        at = part.end()
    return round(total)


def _not_a_duration(text: str) -> ValueError:
    return ValueError(f"{shown(text.strip())} is not a duration such as 250ms, 1h30m or 1w2d")


def format_nanoseconds(value: int) -> str:
    """Format a duration exactly.

    >>> [format_nanoseconds(n) for n in (0, 10, 10_003, 1_500_000, 7 * 86400 * 10**9)]
    ['0s', '10ns', '10.003µs', '1.5ms', '1w']
    """
    if value < 0:
        return "-" + format_nanoseconds(-value)
    if value < 10**9:
        return _small(value)
    parts = []
    for unit in _LARGE:
        count, value = divmod(value, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if value:
        parts.append(_decimal(value, 10**9) + "s")
    return "".join(parts)


def _small(value: int) -> str:
    if value == 0:
        return "0s"
    unit = "ns" if value < 10**3 else "µs" if value < 10**6 else "ms"
    return _decimal(value, _UNITS[unit]) + unit


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0").removesuffix(".") if rest else str(whole)
