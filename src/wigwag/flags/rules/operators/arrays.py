"""`map filter reduce all none some`: operators that apply a body to each element. See `scope` for what a body sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.errors import RuleError
from wigwag.flags.rules.coerce import describe, to_number, to_text
from wigwag.flags.rules.cost import conversion_cost
from wigwag.flags.rules.scope import enter

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.flags.model import Json
    from wigwag.flags.rules.scope import Bind, Fn, Run
    from wigwag.flags.rules.site import RuleSite


def transform(site: RuleSite, argument: Json) -> Fn:
    """`map`: the body's answer for every element."""
    operands = _operands(site, argument)
    if len(operands) < 2:
        return lambda data, run: []
    subject, (body, bind, cost) = _subject(site, operands), _body(site, operands[1])

    def fn(data: Json, run: Run) -> Json:
        return [body(bind(data, item), run) for item in _elements(subject(data, run), run, cost)]

    return fn  # type: ignore[return-value]


def keep(site: RuleSite, argument: Json) -> Fn:
    """`filter`: the elements for which the body is truthy."""
    operands = _operands(site, argument)
    if len(operands) < 2:
        return lambda data, run: []
    subject, (body, bind, cost) = _subject(site, operands), _body(site, operands[1])

    def fn(data: Json, run: Run) -> Json:
        return [item for item in _elements(subject(data, run), run, cost) if body(bind(data, item), run)]

    return fn  # type: ignore[return-value]


def every(site: RuleSite, argument: Json) -> Fn:
    """`all`: whether the body is truthy for every element; of no elements, false."""
    return _quantifier(site, argument, stop_at=False)


def some(site: RuleSite, argument: Json) -> Fn:
    """`some`: whether the body is truthy for any element."""
    return _quantifier(site, argument, stop_at=True)


def none(site: RuleSite, argument: Json) -> Fn:
    """`none`: whether the body is truthy for no element."""
    some_of_them = _quantifier(site, argument, stop_at=True)
    return lambda data, run: not some_of_them(data, run)


def reduce(site: RuleSite, argument: Json) -> Fn:
    """`reduce`: `[array, body, start]`; the body sees `current` and `accumulator`, which keeps the type of `start`."""
    operands = _operands(site, argument)
    if len(operands) < 3:
        return lambda data, run: 0
    subject, (body, bind, cost) = _subject(site, operands), _body(site, operands[1])
    start = site.expr(operands[2], 2).fn

    def fn(data: Json, run: Run) -> Json:
        accumulator = start(data, run)
        convert, kind = _accumulator(accumulator)
        items = subject(data, run)
        if items is None:
            return 0
        for item in _elements(items, run, cost):
            if item is not None:
                seen = {"current": item, "accumulator": accumulator, "valueType": kind}
                value = body(bind(data, seen), run)
                if (value.__class__ is str) is not (kind == "string"):
                    run.spend(conversion_cost(value))
                accumulator = convert(value)
        return accumulator

    return fn  # type: ignore[return-value]


def _quantifier(site: RuleSite, argument: Json, *, stop_at: bool) -> Fn:
    operands = _operands(site, argument)
    if not operands:
        raise RuleError(f"`{site.name}` needs an array and a condition")
    subject = _subject(site, operands)
    body, bind, cost = _body(site, operands[1]) if len(operands) > 1 else _unconditioned(site.name)

    def fn(data: Json, run: Run) -> bool:
        items = subject(data, run)
        if not items:
            return False
        for item in _elements(items, run, cost):
            if bool(body(bind(data, item), run)) is stop_at:
                return stop_at
        return not stop_at

    return fn  # type: ignore[return-value]


def _unconditioned(name: str) -> tuple[Fn, Bind, int]:
    def fn(data: Json, run: Run | None) -> Json:
        raise RuleError(f"`{name}` needs a condition")

    return fn, lambda data, item: item, 1


def _operands(site: RuleSite, argument: Json) -> list[Json]:
    site.compilation.loops = True
    return site.operands(argument)


def _subject(site: RuleSite, operands: list[Json]) -> Fn:
    """The array to walk. A literal that is not an array (`{"map": [1, …]}`) counts as nothing."""
    if operands[0].__class__ not in (list, dict):
        return lambda data, run: None
    return site.expr(operands[0], 0).fn


def _body(site: RuleSite, body: Json) -> tuple[Fn, Bind, int]:
    """Return the body, what makes its data, and what it costs for one element: a step for each of its values."""
    scope, bind = enter(site.scope, site.name)
    before = site.compilation.weight
    fn = site.within(scope).expr(body, 1).fn
    return fn, bind, 1 + site.compilation.weight - before


def _elements(items: Json, run: Run, cost: int) -> list[Json]:
    if items is None:
        return []
    if items.__class__ is not list:
        raise RuleError(f"{describe(items)} cannot be walked like an array")
    run.spend(len(items) * cost)
    return items


def _accumulator(start: Json) -> tuple[Callable[[Json], Json], str]:
    if start.__class__ is bool:
        return bool, "bool"
    if start.__class__ is str:
        return to_text, "string"
    if start.__class__ in (int, float):
        return to_number, "number"
    raise RuleError(f"`reduce` cannot start from {describe(start)}: use a number, a text or a boolean")
