"""Faster closures for the forms that rules are full of: an attribute against a constant.

Each must answer exactly as the operator's own function does; where the operands are not as expected it calls that
function. A property test holds the two together. Some cost no more than the constant in the rule, whatever the data is;
the others account for their data, as the general function does.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

from wigwag.flags.coerce import to_comparable
from wigwag.flags.cost import version_cost
from wigwag.flags.operators.semver import RELATIONS, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wigwag.flags.expression import Expr
    from wigwag.flags.model import Json
    from wigwag.flags.scope import Fn, Run

    Function = Callable[[Json, Run | None], Json]

_SHORT = 256
"""Characters of a constant up to which a comparison with it is as good as free."""


def specialise(name: str, items: Sequence[Expr], function: Function) -> Fn | None:
    """Return a faster closure for an operator with these operands, whose cost does not depend on the data, or None."""
    match items:
        case (subject, fixed) if fixed.constant and not subject.constant:
            maker = _WITH_CONSTANT.get(name)
            return maker(subject, fixed.value, function) if maker else None
        case (fixed, subject) if fixed.constant and name in ("==", "===", "!=", "!=="):
            return _WITH_CONSTANT[name](subject, fixed.value, function)
    return None


def specialise_metered(name: str, items: Sequence[Expr], function: Function) -> Fn | None:
    """Return a faster closure that accounts for its data, or None."""
    match items:
        case (subject, fixed) if fixed.constant and not subject.constant and name in _RELATIONS:
            return _number(subject, fixed.value, _RELATIONS[name], function)
        case (subject, relation, target) if name == "sem_ver" and relation.constant and target.constant:
            return _version(subject, relation.value, target.value)
    return None


def _equal(subject: Expr, value: Json, function: Function) -> Fn | None:
    """A text that is no number equals only itself, so `==` and `===` are Python's own equality."""
    if value.__class__ is not str or len(value) > _SHORT or not math.isnan(to_comparable(value)):
        return None
    name, fn = subject.attribute, subject.fn
    if name is not None:

        def of_attribute(data: Json, run: Run | None) -> Json:
            found = data.get(name)
            return found.__class__ is str and found == value

        return of_attribute

    def specialised(data: Json, run: Run | None) -> Json:
        found = fn(data, run)
        return found.__class__ is str and found == value

    return specialised


def _unequal(subject: Expr, value: Json, function: Function) -> Fn | None:
    equal = _equal(subject, value, function)
    return None if equal is None else lambda data, run: not equal(data, run)


def _element(subject: Expr, value: Json, function: Function) -> Fn | None:
    if value.__class__ is not list or not all(element.__class__ is str for element in value):
        return None
    elements, fn = frozenset(value), subject.fn

    def specialised(data: Json, run: Run | None) -> Json:
        needle = fn(data, run)
        return needle in elements if needle.__class__ is str else function([needle, value], run)

    return specialised


def _part(test: Callable[[str, str], bool]) -> Callable[[Expr, Json, Function], Fn | None]:
    def maker(subject: Expr, value: Json, function: Function) -> Fn | None:
        if value.__class__ is not str or len(value) > _SHORT:
            return None
        fn = subject.fn

        def specialised(data: Json, run: Run | None) -> Json:
            text = fn(data, run)
            return test(text, value) if text.__class__ is str else None

        return specialised

    return maker


def _number(subject: Expr, value: Json, relation: Callable[[Json, Json], bool], function: Function) -> Fn | None:
    """Numbers compare as they are; only what is none must be read as one."""
    if value.__class__ is not int and value.__class__ is not float:
        return None
    fn = subject.fn

    def specialised(data: Json, run: Run | None) -> Json:
        found = fn(data, run)
        if found.__class__ is int or found.__class__ is float:
            return relation(found, value)
        return function([found, value], run)

    return specialised


def _version(subject: Expr, relation: Json, target: Json) -> Fn | None:
    wanted = version_of(target)
    if relation.__class__ is not str or relation not in RELATIONS or wanted is None:
        return None
    holds, fn = RELATIONS[relation], subject.fn

    def specialised(data: Json, run: Run | None) -> Json:
        found = fn(data, run)
        if run is not None:
            run.spend(version_cost(found))
        version = version_of(found)
        return None if version is None else holds(version, wanted)

    return specialised


_RELATIONS: dict[str, Callable[[Json, Json], bool]] = {
    "==": operator.eq,
    "===": operator.eq,
    "!=": operator.ne,
    "!==": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WITH_CONSTANT: dict[str, Callable[[Expr, Json, Function], Fn | None]] = {
    "==": _equal,
    "===": _equal,
    "!=": _unequal,
    "!==": _unequal,
    "in": _element,
    "starts_with": _part(str.startswith),
    "ends_with": _part(str.endswith),
}
