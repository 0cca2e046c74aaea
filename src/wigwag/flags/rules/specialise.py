"""Faster closures for the most frequent forms of rules: attributes against constants, and a few more.

Each must answer exactly as the operator's own function does; where the operands are not as expected it calls that
function. A property test holds the two together. Some cost no more than the constant in the rule, whatever the data is;
the others account for their data, as the general function does.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

from wigwag.flags.rules.coerce import SPACE, to_comparable, to_number
from wigwag.flags.rules.cost import FREE_TEXT, concatenation_cost, membership_cost, version_cost
from wigwag.flags.rules.operators.semver import RELATIONS, version_of
from wigwag.flags.rules.scope import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wigwag.flags.model import Json
    from wigwag.flags.rules.scope import Fn, Run
    from wigwag.flags.rules.site import Expr

    Function = Callable[[Json, Run | None], Json]
    Relation = Callable[[Json, Json], bool]

_SHORT = 256
"""Characters of a constant up to which a comparison with it is as good as free."""
_UNMETERED_TEXT = 1_000
"""Characters of the data that need no accounting in an evaluation without a budget."""
_FEW = 64
"""Elements of an array up to which looking for ranges among them is as good as free."""
_NUMBERS = frozenset((int, float))
_SCALARS = frozenset((int, float, str))


def specialise(name: str, items: Sequence[Expr], function: Function) -> Fn | None:
    """Return a faster closure for an operator with these operands, whose cost does not depend on the data, or None."""
    match items:
        case (subject, fixed) if fixed.constant and not subject.constant:
            maker = _WITH_CONSTANT.get(name)
            return maker(subject, fixed.value, function) if maker else None
        case (fixed, subject) if fixed.constant and name in _EQUALITIES:
            return _WITH_CONSTANT[name](subject, fixed.value, function)
        case (subject,) if name in ("!", "!!"):
            return _negated(subject.fn) if name == "!" else _affirmed(subject.fn)
    return None


def specialise_metered(name: str, items: Sequence[Expr], function: Function, longest: int) -> Fn | None:
    """Return a faster closure that accounts for its data, or None. `longest` is the limit on built texts."""
    relation = _RELATIONS.get(name)
    match items:
        case (first, second) if relation is not None:
            return _compared(name, first, second, relation, function)
        case (low, subject, high) if relation is not None and name not in _EQUALITIES:
            return _between(low, subject, high, relation, function)
        case (fixed, subject) if name == "in" and fixed.constant and fixed.value.__class__ is str:
            return _search(subject, fixed.value, function)
        case (first, second) if name == "cat":
            return _joined(first.fn, second.fn, function, min(longest, _SHORT))
        case (subject, relation_name, target) if name == "sem_ver" and relation_name.constant and target.constant:
            return _version(subject, relation_name.value, target.value)
    return None


def _negated(fn: Fn) -> Fn:
    return lambda data, run: not fn(data, run)


def _affirmed(fn: Fn) -> Fn:
    return lambda data, run: bool(fn(data, run))


def _equal(subject: Expr, value: Json, function: Function) -> Fn | None:
    """A text that is not a number equals only itself, so `==` and `===` are Python's own equality; so is null."""
    name, fn = subject.attribute, subject.fn
    if value is None:
        return lambda data, run: fn(data, run) is None
    if value.__class__ is not str or len(value) > _SHORT:
        return None
    if not math.isnan(to_comparable(value)):
        return _equal_digits(fn, value, function)
    if name is not None:

        def of_attribute(data: Json, run: Run | None) -> Json:
            operand = data.get(name)
            return operand.__class__ is str and operand == value

        return of_attribute

    def specialised(data: Json, run: Run | None) -> Json:
        operand = fn(data, run)
        return operand.__class__ is str and operand == value

    return specialised


def _equal_digits(fn: Fn, value: str, function: Function) -> Fn:
    """A text that is a number equals the same text; any other value must be read as a number."""

    def specialised(data: Json, run: Run | None) -> Json:
        operand = fn(data, run)
        return operand == value if operand.__class__ is str else function([operand, value], run)

    return specialised


def _unequal(subject: Expr, value: Json, function: Function) -> Fn | None:
    equal = _equal(subject, value, lambda values, run: not function(values, run))
    return None if equal is None else _negated(equal)


def _element(subject: Expr, value: Json, function: Function) -> Fn | None:
    """A text is an element as it is; a number is one if an element, read as a number, equals it."""
    if value.__class__ is not list or not all(element.__class__ in _SCALARS for element in value):
        return None
    texts, fn = frozenset(element for element in value if element.__class__ is str), subject.fn
    numbers = frozenset(number for number in map(to_number, value) if number == number)  # NaN equals nothing

    def specialised(data: Json, run: Run | None) -> Json:
        needle = fn(data, run)
        if needle.__class__ is str:
            return needle in texts
        return needle in numbers if needle.__class__ in _NUMBERS else function([needle, value], run)

    return specialised


def _search(subject: Expr, value: str, function: Function) -> Fn | None:
    """A short text in short data: in a text, or among the elements of an array without ranges."""
    if len(value) >= FREE_TEXT:
        return None
    name, fn, weight = subject.attribute, subject.fn, membership_cost([value, [None]], 1)

    if name is not None:

        def in_attribute(data: Json, run: Run | None) -> Json:
            operand = data.get(name)
            if operand.__class__ is str and len(operand) < FREE_TEXT:
                return value in operand
            if operand.__class__ is list and len(operand) <= _FEW:
                for element in operand:
                    if element.__class__ is list:
                        return function([value, operand], run)
                if run is not None:
                    run.spend(len(operand) * weight)
                return value in operand
            return function([value, operand], run)

        return in_attribute

    def specialised(data: Json, run: Run | None) -> Json:
        operand = fn(data, run)
        return (
            value in operand
            if operand.__class__ is str and len(operand) < FREE_TEXT
            else function([value, operand], run)
        )

    return specialised


def _joined(first: Fn, second: Fn, function: Function, longest: int) -> Fn:
    """Two texts that are short together."""

    def specialised(data: Json, run: Run | None) -> Json:
        a, b = first(data, run), second(data, run)
        if a.__class__ is str and b.__class__ is str and len(a) + len(b) <= longest:
            if run is not None:
                run.spend(concatenation_cost([a, b], run.steps))
            return (a + b).strip(SPACE)
        return function([a, b], run)

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


def _compared(name: str, first: Expr, second: Expr, relation: Relation, function: Function) -> Fn | None:
    """A comparison with a constant number or boolean, or of two values that are both computed."""
    if second.constant is first.constant:
        return _two(first.fn, second.fn, relation, function)
    subject, value = (first, second.value) if second.constant else (second, first.value)
    if value.__class__ is bool and name in _EQUALITIES:
        return _boolean(subject.fn, value, relation, function)
    if first.constant:
        mirrored = _RELATIONS[_MIRRORED.get(name, name)]
        return _number(subject, value, mirrored, lambda values, run: function(values[::-1], run))
    return _number(subject, value, relation, function)


def _number(subject: Expr, value: Json, relation: Relation, function: Function) -> Fn | None:
    """Numbers compare directly; any other value must be read as a number."""
    if value.__class__ not in _NUMBERS:
        return None
    name, fn = subject.attribute, subject.fn
    if fn is timestamp:
        return lambda data, run: relation(run.now, value)  # type: ignore[union-attr]
    if name is not None:

        def of_attribute(data: Json, run: Run | None) -> Json:
            operand = data.get(name)
            if operand.__class__ is int or operand.__class__ is float:
                return relation(operand, value)
            return function([operand, value], run)

        return of_attribute

    def specialised(data: Json, run: Run | None) -> Json:
        operand = fn(data, run)
        if operand.__class__ is int or operand.__class__ is float:
            return relation(operand, value)
        return function([operand, value], run)

    return specialised


def _boolean(fn: Fn, value: bool, relation: Relation, function: Function) -> Fn:
    """Equality with a boolean, whichever side it is on; any other value must be read as a number."""

    def specialised(data: Json, run: Run | None) -> Json:
        operand = fn(data, run)
        return relation(operand, value) if operand.__class__ is bool else function([operand, value], run)

    return specialised


def _two(first: Fn, second: Fn, relation: Relation, function: Function) -> Fn:
    """Two numbers compare directly, and so do two texts; without a budget, short ones need no accounting."""

    def specialised(data: Json, run: Run | None) -> Json:
        a, b = first(data, run), second(data, run)
        if a.__class__ in _NUMBERS and b.__class__ in _NUMBERS:
            return relation(a, b)
        if run is None and a.__class__ is str and b.__class__ is str and len(a) + len(b) <= _UNMETERED_TEXT:
            return relation(a, b)
        return function([a, b], run)

    return specialised


def _between(low: Expr, subject: Expr, high: Expr, relation: Relation, function: Function) -> Fn | None:
    """A number between two constant ones."""
    least, most, fn = low.value, high.value, subject.fn
    if least.__class__ not in _NUMBERS or most.__class__ not in _NUMBERS:
        return None

    def specialised(data: Json, run: Run | None) -> Json:
        operand = fn(data, run)
        if operand.__class__ in _NUMBERS:
            return relation(least, operand) and relation(operand, most)
        return function([least, operand, most], run)

    return specialised


def _version(subject: Expr, relation: Json, target: Json) -> Fn | None:
    wanted = version_of(target)
    if relation.__class__ is not str or relation not in RELATIONS or wanted is None:
        return None
    holds, fn = RELATIONS[relation], subject.fn

    def specialised(data: Json, run: Run | None) -> Json:
        operand = fn(data, run)
        if run is not None:
            run.spend(version_cost(operand))
        version = version_of(operand)
        return None if version is None else holds(version, wanted)

    return specialised


_EQUALITIES = frozenset(("==", "===", "!=", "!=="))
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What an ordering becomes when its operands change places."""
_RELATIONS: dict[str, Relation] = {
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
