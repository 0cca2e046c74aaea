"""JSON from outside, decoded in bounded time.

msgspec reads most numbers in 50 ns, but takes 18 µs for some with an exponent (1e308, 1.5e300): a request of 1 MB would
take three seconds. So a large text with many candidates is decoded by a decoder that has Python read the floats: slower
for all others, but never slow. Candidates are counted by two passes at C speed. Digits of a hash may look like one,
which costs time only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

Text: TypeAlias = bytes | str | msgspec.Raw
SMALL = 8 * 1024
"""Bytes of a text that cannot hold enough of such numbers to matter."""
MANY = 1_000
"""Candidates that may take 18 µs each."""
MOST = 50_000
"""Candidates in a request: more of them would take longer than 50 ms however they are read."""
_SHAPE = bytes(
    48 if 48 <= byte <= 57 else 101 if byte in b"eE" else byte if byte in b"+-" else 32 for byte in range(256)
)
"""Digits as 0, both letters as e, signs as they are, everything else as a blank."""


def exponents(text: bytes) -> int:
    """Count what looks like a number with an exponent of two digits or more; 0 if there cannot be many.

    >>> exponents(b'[1e308, 1.5E+30, 1e-30, 1e5, 1.5, "x1e30"]' * 1000)
    4000
    """
    if text.count(b"e") + text.count(b"E") <= MANY:
        return 0  # nothing to look for: most texts, and those of digits only
    shape = text.translate(_SHAPE)
    return shape.count(b"0e00") + shape.count(b"0e+00") + shape.count(b"0e-00")


def read_float(text: str) -> float:
    """Read a number; one that is out of range is refused, as msgspec does."""
    value = float(text)
    if value - value != 0.0:
        raise ValueError("a number is out of range")
    return value


def decoder(
    type: Any = Any, most: int | None = None, read_float: Callable[[str], float] = read_float
) -> Callable[[Text], Any]:
    """Return a function that decodes JSON into a type. More than `most` candidates are refused, like malformed text."""
    quick = msgspec.json.Decoder(type).decode
    careful = msgspec.json.Decoder(type, float_hook=read_float).decode

    def decode(text: Text) -> Any:
        size = len(bytes(text)) if isinstance(text, msgspec.Raw) else len(text)
        if size <= SMALL or (count := exponents(text.encode() if isinstance(text, str) else bytes(text))) <= MANY:
            return quick(text)
        if most is not None and count > most:
            raise msgspec.ValidationError(f"there are more than {most} numbers with exponents")
        return careful(text)

    return decode


decode_request = decoder(most=MOST)
"""Decodes the body of a request."""
