"""`if ?: and or ! !!`: the operators that evaluate lazily, and the two negations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.flags.rules.site import constant

if TYPE_CHECKING:
    from wigwag.flags.model import Json
    from wigwag.flags.rules.scope import Fn, Run
    from wigwag.flags.rules.site import Expr, RuleSite


def conditional(site: RuleSite, argument: Json) -> Fn:
    """`if`: pairs of condition and answer, an odd last operand is the else; without a match null."""
    items = site.items(site.operands(argument))
    pairs = tuple(zip(items[0:-1:2], items[1::2], strict=True))
    otherwise = items[-1] if len(items) % 2 else constant(None)
    if all(then.constant for _, then in pairs):
        return _constant_answers([(condition.fn, then.value) for condition, then in pairs], otherwise)
    fns = tuple((condition.fn, then.fn) for condition, then in pairs)
    last = otherwise.fn
    if len(fns) == 1:
        ((condition, then),) = fns
        return lambda data, run: then(data, run) if condition(data, run) else last(data, run)

    def fn(data: Json, run: Run | None) -> Json:
        for condition, then in fns:
            if condition(data, run):
                return then(data, run)
        return last(data, run)

    return fn


def _constant_answers(pairs: list[tuple[Fn, Json]], otherwise: Expr) -> Fn:
    """An `if` whose conditions lead to constants, as most do."""
    last, answer = otherwise.fn, otherwise.value
    if len(pairs) == 1:
        ((condition, then),) = pairs
        if otherwise.constant:
            return lambda data, run: then if condition(data, run) else answer
        return lambda data, run: then if condition(data, run) else last(data, run)

    def fn(data: Json, run: Run | None) -> Json:
        for condition, then in pairs:
            if condition(data, run):
                return then
        return last(data, run)

    return fn


def conjunction(site: RuleSite, argument: Json) -> Fn:
    """`and`: the first falsy operand, else the last."""
    fns = tuple(item.fn for item in site.items(site.operands(argument)))
    if len(fns) == 2:
        first, second = fns
        return lambda data, run: first(data, run) and second(data, run)

    def fn(data: Json, run: Run | None) -> Json:
        value = None
        for operand in fns:
            value = operand(data, run)
            if not value:
                break
        return value

    return fn


def disjunction(site: RuleSite, argument: Json) -> Fn:
    """`or`: the first truthy operand, else the last."""
    fns = tuple(item.fn for item in site.items(site.operands(argument)))
    if len(fns) == 2:
        first, second = fns
        return lambda data, run: first(data, run) or second(data, run)

    def fn(data: Json, run: Run | None) -> Json:
        value = None
        for operand in fns:
            value = operand(data, run)
            if value:
                break
        return value

    return fn


def negation(values: Json) -> bool:
    """`!`: of the first operand; an empty array of operands is falsy itself."""
    return not (values[0] if values.__class__ is list and values else values)


def affirmation(values: Json) -> bool:
    """`!!`: whether the first operand is truthy."""
    return not negation(values)
