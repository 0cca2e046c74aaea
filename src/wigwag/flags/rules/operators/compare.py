"""`== != === !== < <= > >=`: two operands, or three for "between"."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from wigwag.errors import RuleError
from wigwag.flags.rules.coerce import less, loosely_equal, strictly_equal, to_comparable

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.flags.model import Json

    Relation = Callable[[Json, Json], bool]


def less_or_equal(a: Json, b: Json) -> bool:
    """`<=` is `<` or `==`; so null, which equals only null, is not `<=` 0."""
    if a.__class__ is str and b.__class__ is str:
        return bool(a <= b)
    x, y = to_comparable(a), to_comparable(b)
    return x < y or (x == y and (a is None) is (b is None))


def equality(relation: Relation) -> Callable[[Json], bool]:
    """Make an operator of two operands; fewer are never equal."""

    def operator(values: Json) -> bool:
        operands = _operands(values)
        return len(operands) > 1 and relation(operands[0], operands[1])

    return operator


def ordering(relation: Relation, *, descending: bool = False) -> Callable[[Json], bool]:
    """Make an operator of two operands, or three for "between"; fewer are never in order."""

    def operator(values: Json) -> bool:
        operands = _operands(values)
        if len(operands) < 2:
            return False
        chain = operands if len(operands) == 3 else operands[:2]
        if descending:
            chain = chain[::-1]
        return all(relation(a, b) for a, b in pairwise(chain))

    return operator


def _operands(values: Json) -> list[Json]:
    if values.__class__ is not list:
        raise RuleError("a comparison needs an array of operands")
    return values


equal = equality(loosely_equal)
identical = equality(strictly_equal)
below = ordering(less)
at_most = ordering(less_or_equal)
above = ordering(less, descending=True)
at_least = ordering(less_or_equal, descending=True)


def different(values: Json) -> bool:
    """`!=`, the contrary of `==`."""
    return not equal(values)


def distinct(values: Json) -> bool:
    """`!==`, the contrary of `===`."""
    return not (values.__class__ is list and identical(values))


def identical_or_false(values: Json) -> bool:
    """`===`; unlike the other comparisons it answers false when there is no array of operands."""
    return values.__class__ is list and identical(values)
