"""Quantities as Kubernetes writes them: `500m`, `64Mi`, `1e3`."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext

_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i)?)")
_POWERS = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_LONGEST = 40


def quantity(text: str | int) -> Decimal:
    """Read a quantity; `ValueError` if it is none.

    >>> quantity("500m"), quantity("0.5"), quantity("1Ki"), quantity("2e3"), quantity(1)
    (Decimal('0.500'), Decimal('0.5'), Decimal('1024'), Decimal('2E+3'), Decimal('1'))
    """
    match = _QUANTITY.fullmatch(str(text)) if len(str(text)) <= _LONGEST else None
    if match is None:
        raise ValueError(f"{text!r} is not a quantity such as 500m or 64Mi")
    number, exponent, suffix = match[1], match[2] or "", match[3] or ""
    base = Decimal(1024) if suffix.endswith("i") else Decimal(1000)
    power = suffix.removesuffix("i").replace("K", "k")
    return Decimal(number + exponent) * base ** _POWERS[power]


def canonical_quantity(text: str | int) -> str:
    """Return a quantity as the API server stores it, so that a stored object does not look changed.

    Quantities with an exponent, and those that the server rounds or refuses, stay as they are.

    >>> [canonical_quantity(each) for each in ("0.5", "1000m", "64M", "0.5Gi", "1024Ki", "1.50", 0, "2e3", "much")]
    ['500m', '1', '64M', '512Mi', '1Mi', '1500m', '0', '2e3', 'much']
    """
    written = str(text)
    with localcontext(prec=_LONGEST + 20):  # all digits of the longest text, with the largest suffix
        try:
            return _canonical(quantity(text), written)
        except ValueError:
            return written


def _canonical(value: Decimal, written: str) -> str:
    if not value or "e" in written or written.rstrip("E").count("E"):
        return written if value else "0"
    binary = written.endswith("i")
    base, suffix = (Decimal(1024), "i") if binary else (Decimal(1000), "")
    for name, power in reversed(_POWERS.items()):
        if (power >= 0 or not binary) and not value % base**power:
            number = int(value / base**power)
            return f"{number}{name.upper() if binary else name}{suffix if power else ''}"
    return written
