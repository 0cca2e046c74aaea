"""How values of one type become another inside a rule: the conversions of flagd's JSONLogic engine.

Two families, and the difference matters. *Comparison* follows JavaScript: null is 0, and text that is not a number is
NaN, so it equals nothing. *Arithmetic* reads text that is not a number as 0 and refuses null, booleans and containers.
Truthiness needs no function here: Python's `bool` agrees for every JSON value.

Everything here is linear in the length of a text: contexts come from clients. The patterns are possessive (`++`), so a
match never goes back; integers are read and written exactly only while they are short.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from wigwag.errors import RuleError
from wigwag.flags.model import Json

NAN = math.nan
SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_NOT_SPACE = "\x1c\x1d\x1e\x1f"
"""What Python takes for white space, but flagd does not."""
_DIGITS, _HEX = r"[0-9]++(?:_[0-9]++)*+", r"[0-9a-fA-F]++(?:_[0-9a-fA-F]++)*+"
_DECIMAL = re.compile(rf"[+-]?(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_SPECIAL = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)
_HEXADECIMAL = re.compile(rf"[+-]?0[xX]_?(?:{_HEX}\.?(?:{_HEX})?|\.{_HEX})[pP][+-]?{_DIGITS}")
_INFINITE = (math.inf, -math.inf)
_EXACT_DIGITS = 300
_WRITTEN_BITS = 1024
"""Of the largest integer that is written as text: the range of a double."""
_EXACT = 1 << 63
_FIXED_FROM, _FIXED_BELOW = 1e-6, 1e21


def parse_number(text: str) -> int | float | None:
    """Return the number that `text` spells as Go writes them, or None: `1_000` and `0x1p-2` are, ` 1` is not."""
    if _DECIMAL.fullmatch(text):
        if "_" in text:
            text = text.encode().translate(None, b"_").decode()
        if len(text) < _EXACT_DIGITS and text.lstrip("+-").isdigit():
            return int(text)
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text)
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.replace("_", ""))
        except (OverflowError, ValueError):
            return -math.inf if text[0] == "-" else math.inf
    return None


def to_comparable(value: Json) -> int | float:
    """Return the number a value stands for in a comparison."""
    kind = value.__class__
    if kind is int or kind is float:
        return value  # type: ignore[no-any-return]
    if kind is str:
        if not value or (value.isspace() and not any(c in value for c in _NOT_SPACE)):
            return 0
        number = parse_number(value)
        if number is None or (number in _INFINITE and not _SPECIAL.fullmatch(value)):
            return NAN  # out of range is no number, unless it is spelled out
        return number
    if value is None:
        return 0
    return int(value) if kind is bool else NAN


def to_number(value: Json) -> int | float:
    """Return the number a value stands for in arithmetic; null, booleans and containers have none."""
    kind = value.__class__
    if kind is int or kind is float:
        return value  # type: ignore[no-any-return]
    if kind is str:
        return parse_number(value) or 0
    raise RuleError(f'{describe(value)} is not a number; give the attribute a default, as in {{"var": ["name", 0]}}')


def settle(number: float) -> int | float:
    """Keep whole results exact while they fit 64 bits; beyond that arithmetic is in doubles, as in flagd."""
    if isinstance(number, int) and not -_EXACT <= number < 2 * _EXACT:
        return to_double(number)
    return number


def to_double(number: float) -> float:
    """Return the number as a double, infinite where it is too large for one."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def to_index(number: float) -> int:
    """Cut a number to a whole one, towards zero; what does not fit 64 bits is far below everything, as in flagd."""
    if not -_EXACT <= number < _EXACT:
        return -_EXACT
    return int(number)


def loosely_equal(a: Json, b: Json) -> bool:
    """Tell whether `==` holds: null equals only null, texts compare as text, everything else as numbers."""
    if a is None or b is None:
        return a is b
    if a.__class__ is str and b.__class__ is str:
        return bool(a == b)
    return to_comparable(a) == to_comparable(b)


def strictly_equal(a: Json, b: Json) -> bool:
    """Tell whether `===` holds: the same kind, and equal. Arrays and objects equal nothing."""
    return kind_of(a) == kind_of(b) and loosely_equal(a, b)


def less(a: Json, b: Json) -> bool:
    """Tell whether `<` holds: texts by code point, everything else as numbers."""
    if a.__class__ is str and b.__class__ is str:
        return bool(a < b)
    return to_comparable(a) < to_comparable(b)


def same(a: Json, b: Json) -> bool:
    """Tell whether two elements are the same value; containers cannot be compared."""
    kind = kind_of(a)
    if kind != kind_of(b):
        return False
    if kind in ("array", "object"):
        raise RuleError(f"an {kind} cannot be compared with an element of an array")
    return bool(a == b)


def to_text(value: Json) -> str:
    """Return a value as text for `cat` and `substr`: null is empty, numbers have no exponent."""
    kind = value.__class__
    if kind is str:
        return value  # type: ignore[no-any-return]
    if value is None:
        return ""
    if kind is int or kind is float:
        return fixed_notation(value)
    raise RuleError(f"{describe(value)} cannot be joined to text")


def fixed_notation(number: float) -> str:
    """Write a number in full, without exponent and without a needless fraction.

    >>> fixed_notation(1.0), fixed_notation(0.1), fixed_notation(1e21)
    ('1', '0.1', '1000000000000000000000')
    """
    if isinstance(number, int):
        return decimal_text(number)
    if math.isfinite(number):
        text = repr(number)
        if "e" in text:
            text = format(Decimal(text), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return "NaN" if math.isnan(number) else f"{number:+}".replace("inf", "Inf")


def decimal_text(number: int) -> str:
    """Write an integer. One beyond the range of a double is refused: flagd has none, and writing it is quadratic."""
    if number.bit_length() > _WRITTEN_BITS:
        raise RuleError("an integer beyond the range of a double cannot be written as text")
    return str(number)


def json_notation(number: float) -> str:
    """Write a number as JSON text does: exponents only below 1e-6 and from 1e21 on.

    >>> json_notation(2.0), json_notation(1e21), json_notation(1e-7)
    ('2', '1e+21', '1e-7')
    """
    if isinstance(number, int):
        return decimal_text(number)
    if not math.isfinite(number):
        raise RuleError(f"{number} is not a JSON number")
    if number == 0 or _FIXED_FROM <= abs(number) < _FIXED_BELOW:
        return fixed_notation(number)
    return repr(number).replace("e-0", "e-").replace("e+0", "e+")


def kind_of(value: Json) -> str:
    """Name the JSON kind of a value."""
    if value is None:
        return "null"
    return _KINDS.get(value.__class__, "object")


def describe(value: Json) -> str:
    """Name a value in an error message, shortly and without quoting data from a context."""
    kind = kind_of(value)
    if kind == "null":
        return "null (a missing attribute?)"
    return f"an {kind}" if kind[0] in "ao" else f"a {kind}"


_KINDS: dict[type, str] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
