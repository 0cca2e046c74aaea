"""`if ?: and or ! !!`: what is decided lazily, and the two negations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.errors import RuleError

if TYPE_CHECKING:
    from wigwag.flags.compile import Site
    from wigwag.flags.model import Json
    from wigwag.flags.scope import Fn, Run


def clauses(site: Site, argument: Json) -> tuple[Fn, ...]:
    """Compile the operands of a lazy operator, each on its own."""
    if argument.__class__ is not list:
        raise RuleError(f"`{site.name}` needs an array of operands")
    return tuple(item.fn for item in site.items(argument))


def conditional(site: Site, argument: Json) -> Fn:
    """`if`: pairs of condition and answer, an odd last operand is the else; without a match null."""
    fns = clauses(site, argument)
    pairs = tuple(zip(fns[0:-1:2], fns[1::2], strict=True))
    otherwise = fns[-1] if len(fns) % 2 else None
    if len(pairs) == 1 and otherwise is not None:
        condition, then = pairs[0]
        return lambda data, run: then(data, run) if condition(data, run) else otherwise(data, run)

    def fn(data: Json, run: Run | None) -> Json:
        for condition, then in pairs:
            if condition(data, run):
                return then(data, run)
        return otherwise(data, run) if otherwise is not None else None

    return fn


def conjunction(site: Site, argument: Json) -> Fn:
    """`and`: the first falsy operand, else the last."""
    fns = clauses(site, argument)
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


def disjunction(site: Site, argument: Json) -> Fn:
    """`or`: the first truthy operand, else the last."""
    fns = clauses(site, argument)
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
