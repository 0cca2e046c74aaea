"""Go's standard library, where we must agree with the programs that we replace: durations, and the FNV-1a hash.

A duration is a whole number of nanoseconds within 64 bits, as in Go, so nothing is rounded on the way. There are two
spellings: Go's own, from `ns` to `h` (`seconds`, `duration_text`), and that of fortio's dflag, which adds days and
weeks and allows blanks between the parts (`nanoseconds`, `format_nanoseconds`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

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
_PART = re.compile(r"[ \t]*(?=\.?[0-9])([0-9]*+)\.?([0-9]*+)(ns|us|µs|μs|ms|s|m|h|d|w)")
_NOT_GO = re.compile(r"[dw\s]|^$")
_LIMIT = 1 << 63
_LONGEST = 200
_SHOWN = 60
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193


def seconds(text: str) -> float:
    """Read a duration as Go's `time.ParseDuration` does, in seconds.

    >>> seconds("1h30m"), seconds("250ms"), seconds("-.5s"), seconds("0")
    (5400.0, 0.25, -0.5, 0.0)
    """
    text = text.strip()
    if _NOT_GO.search(text):
        raise _not_a_duration(text, "30s, 5m or 1h30m")
    return nanoseconds(text, "30s, 5m or 1h30m") / 10**9


def duration_text(seconds: float) -> str:
    """Write seconds as `seconds` reads them.

    >>> duration_text(30), duration_text(5400), duration_text(90000), duration_text(0.25), duration_text(0)
    ('30s', '1h30m', '25h', '250ms', '0')
    """
    return format_nanoseconds(round(seconds * 10**9), "hm") if seconds else "0"


def nanoseconds(text: str, examples: str = "250ms, 1h30m or 1w2d") -> int:
    """Read a duration exactly, days and weeks among its units; an empty text is 0. Errors show the examples.

    >>> nanoseconds("10.003µs"), nanoseconds("3w 2d\t4h"), nanoseconds(" -0 ")
    (10003, 2001600000000000, 0)
    """
    plain = text.strip()
    sign, digits = (-1, plain[1:]) if plain.startswith("-") else (1, plain.removeprefix("+"))
    if digits in ("", "0") and plain not in ("-", "+"):
        return 0
    at, total = 0, 0
    while at < len(digits) <= _LONGEST and (part := _PART.match(digits, at)):
        whole, fraction, unit = part.groups()
        total += int(whole + fraction) * _UNITS[unit] * 10 ** (_LONGEST - len(fraction))
        at = part.end()
    if at < len(digits) or not digits:
        raise _not_a_duration(plain, examples)
    total = rounded_quotient(total, 10**_LONGEST)
    if total >= _LIMIT:
        raise ValueError(f"{plain!r} is more than 292 years, which 64 bits of nanoseconds cannot hold")
    return sign * total


def format_nanoseconds(value: int, units: str = "wdhm") -> str:
    """Write a duration exactly, with these units above a second.

    >>> [format_nanoseconds(n) for n in (0, 10, 10_003, 1_500_000, 7 * 86400 * 10**9)]
    ['0s', '10ns', '10.003µs', '1.5ms', '1w']
    """
    if value < 0:
        return "-" + format_nanoseconds(-value, units)
    if value < 10**9:
        unit = "s" if value == 0 else "ns" if value < 10**3 else "µs" if value < 10**6 else "ms"
        return _decimal(value, _UNITS[unit]) + unit
    parts = []
    for unit in units:
        count, value = divmod(value, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if value:
        parts.append(_decimal(value, 10**9) + "s")
    return "".join(parts)


def rounded_quotient(value: int, unit: int) -> int:
    """Divide, and round half to even.

    >>> rounded_quotient(1500, 1000), rounded_quotient(2500, 1000), rounded_quotient(-2501, 1000)
    (2, 2, -3)
    """
    whole, rest = divmod(value, unit)
    return whole + (2 * rest > unit or (2 * rest == unit and whole % 2 == 1))


def fnv1a32(parts: Iterable[str]) -> int:
    """Return the 32-bit FNV-1a hash of texts, as if they were one.

    >>> f"{fnv1a32(['foo', 'bar']):08x}"
    'bf9cf968'
    """
    value = _FNV_OFFSET
    for part in parts:
        for byte in part.encode(errors="surrogatepass"):
            value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0").removesuffix(".") if rest else str(whole)


def _not_a_duration(text: str, examples: str) -> ValueError:
    return ValueError(f"{text[:_SHOWN]!r}{'…' * (len(text) > _SHOWN)} is not a duration such as {examples}")
