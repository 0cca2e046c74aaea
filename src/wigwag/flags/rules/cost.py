"""What operators cost, in steps: a bound that is known before the work is done.

A step is about a quarter of a microsecond: the visit of one element, or the evaluation of one value of a rule. What a
rule costs by itself is known when it is compiled. These functions say what the data adds: they look at the evaluated
operands of an operator, no deeper than the operator itself does, and stop where the result is above `most`: to refuse
an operation must cost next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.flags.model import Json

    Cost = Callable[[Json, int], int]

_NUMBER, _SEARCH, _PATH, _VERSION = 5, 6, 1, 2
"""Characters that one step reads, as powers of two: 32 of a number, 64 of a text, 2 of a path, 4 of a version."""
_TEXT = 8
"""Steps to read any text as a number, or to hash it."""
_NAMED = 8
"""Steps to look up a variable whose name is not in the rule."""
_BITS = 9
"""Bits of an integer that one step encodes, as a power of two."""
FREE_TEXT = 1 << _SEARCH
"""Characters from which searching a text costs a step."""
LONGEST_VERSION = 256
_WRITTEN = 8
"""Steps to write a fraction as text, which may have hundreds of digits."""


def operands_cost(values: Json, most: int) -> int:
    """Reading each operand as a number, or comparing it as text."""
    if values.__class__ is not list:
        return len(values) >> _NUMBER if values.__class__ is str else 1
    total = len(values)
    if total <= most:
        for value in values:
            if value.__class__ is str:
                total += _TEXT + (len(value) >> _NUMBER)
    return total


def substring_cost(values: Json, most: int) -> int:
    """Writing the first operand as text, cutting it, and reading the others as numbers."""
    if values.__class__ is not list:
        return 1
    return concatenation_cost(values[:1], most) + operands_cost(values[1:3], most)


def text_cost(values: Json, most: int) -> int:
    """Searching texts."""
    if values.__class__ is not list:
        return 1
    total = 0
    for value in values[:2]:
        if value.__class__ is str:
            total += len(value) >> _SEARCH
    return total


def concatenation_cost(values: Json, most: int) -> int:
    """Writing every operand as text, and joining the texts."""
    if values.__class__ is not list:
        return 1
    total = len(values)
    if total <= most:
        for value in values:
            if value.__class__ is str:
                total += len(value) >> _NUMBER
            elif value.__class__ is float or value.__class__ is int:
                total += _WRITTEN
    return total


def conversion_cost(value: Json) -> int:
    """Reading or writing one value as a number or a text."""
    return _WRITTEN + (len(value) >> _NUMBER) if value.__class__ is str else _WRITTEN


def membership_cost(values: Json, most: int) -> int:
    """Searching a text, or comparing the needle with every element of an array; ranges compare as numbers."""
    if values.__class__ is not list or len(values) < 2:
        return 1
    needle, haystack = values[0], values[1]
    if haystack.__class__ is not list:
        return text_cost(values, most)
    total = len(haystack)
    if needle.__class__ is str:
        total *= 1 + (len(needle) >> _NUMBER)
    if total > most or (needle.__class__ is str and list not in map(type, haystack)):
        return total
    for element in haystack:
        if element.__class__ is str:
            total += _TEXT + (len(element) >> _NUMBER)
        elif element.__class__ is list:
            total += _TEXT + operands_cost(element[:2], most)
    return total


def arrays_cost(values: Json, most: int) -> int:
    """Comparing the elements of two arrays."""
    if values.__class__ is not list or len(values) != 2:
        return 1
    return operands_cost(values[0], most) + operands_cost(values[1], most)


def merge_cost(values: Json, most: int) -> int:
    """Copying the elements of arrays."""
    if values.__class__ is not list or len(values) > most:
        return len(values) if values.__class__ is list else 1
    return sum([1 + len(value) if value.__class__ is list else 1 for value in values])


def copy_cost(values: Json, most: int) -> int:
    """Copying the first operand, if it is an object."""
    return len(values[0]) if values.__class__ is list and values and values[0].__class__ is dict else 1


def version_cost(value: Json) -> int:
    """Reading a version; a longer text is not one."""
    return len(value) >> _VERSION if value.__class__ is str and len(value) <= LONGEST_VERSION else 1


def versions_cost(values: Json, most: int) -> int:
    """Reading the versions among the operands."""
    return sum([version_cost(value) for value in values[:3]]) if values.__class__ is list else 1


def hash_cost(value: Json, most: int) -> int:
    """Hashing a bucketing value, which may be of any kind."""
    return _TEXT + (len(value) >> _SEARCH) if value.__class__ is str else deep_cost(value, most)


def path_cost(name: Json) -> int:
    """Following the path that a name spells."""
    if name.__class__ is list:
        name = name[0] if name else None
    return _NAMED + (len(name) >> _PATH) if name and name.__class__ is str else 1


def paths_cost(names: list[Json], most: int) -> int:
    """Looking for every named variable."""
    total = len(names) * _WRITTEN
    return total if total > most else total + sum([path_cost(name) for name in names])


def fixed_path_cost(parts: tuple[str, ...]) -> int:
    """Following a path of the rule, beyond what every variable costs; signed positions are read as numbers."""
    numeric = sum([part[0] in "+-0123456789" and not part.isdecimal() for part in parts[1:]])
    return max(0, len(parts) - _TEXT + _TEXT * numeric) + (sum(map(len, parts)) >> _SEARCH)


def deep_cost(value: Json, most: int) -> int:
    """Reading a value with everything in it; counted up to `most`, because a built value may hold one part often."""
    total, waiting = 1, [value]
    while waiting and total <= most:
        value = waiting.pop()
        if value.__class__ is str:
            total += len(value) >> _SEARCH
        elif value.__class__ is int:
            total += value.bit_length() >> _BITS
        elif value.__class__ is list:
            total += _TEXT * len(value)
            waiting += value if total <= most else ()
        elif value.__class__ is dict:
            total += _WRITTEN * len(value)
            waiting += (*value, *value.values()) if total <= most else ()
    return total


COSTS: dict[str, Cost] = {
    **dict.fromkeys(("==", "!=", "===", "!==", "<", "<=", ">", ">="), operands_cost),
    **dict.fromkeys(("+", "-", "*", "/", "%", "abs", "max", "min"), operands_cost),
    **dict.fromkeys(("contains_all", "contains_any", "contains_none"), arrays_cost),
    **dict.fromkeys(("starts_with", "ends_with"), text_cost),
    "in": membership_cost,
    "merge": merge_cost,
    "cat": concatenation_cost,
    "substr": substring_cost,
    "sem_ver": versions_cost,
    "set": copy_cost,
}
"""By operator. `!` and `!!` cost nothing beyond themselves, and lazy operators account for their own work."""
