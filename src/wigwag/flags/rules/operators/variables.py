"""`var missing missing_some set`: the operators that read the context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.errors import RuleError
from wigwag.flags.rules.coerce import fixed_notation, to_index, to_number
from wigwag.flags.rules.cost import fixed_path_cost, operands_cost, paths_cost
from wigwag.flags.rules.scope import FLAGD, ElementScope, affordable, charge, split, variable

if TYPE_CHECKING:
    from wigwag.flags.model import Json
    from wigwag.flags.rules.scope import Fn, Run, Scope, ScopeView
    from wigwag.flags.rules.site import RuleSite


def read(site: RuleSite, argument: Json) -> Fn:
    """`var`: a dotted path with an optional default, looked up in what is around first, where there is such a thing."""
    outer = site.scope.outer
    if outer is None:
        return _look_up(site, site.scope, argument)  # type: ignore[arg-type]
    inner = read(site.within(ElementScope()), argument)
    if argument.__class__ is str and (not argument or argument[0] == "."):
        return lambda data, run: inner(data[1], run)
    first = read(site.within(outer), argument)

    def fn(data: Json, run: Run | None) -> Json:
        value = first(data[0], run)
        return inner(data[1], run) if value is None else value

    return fn


def _look_up(site: RuleSite, view: ScopeView, argument: Json) -> Fn:
    """A fixed path is resolved while compiling."""
    values = site.expr(argument)
    if values.constant and values.value == "" and not view.is_root:
        return view.whole  # the element itself: what most conditions are about
    if values.constant and values.value is not None:
        name, default = _name_and_default(values.value)
        parts = split(name or "")
        if parts:
            site.compilation.reads_time |= view.is_root and parts[0] == FLAGD and parts[1:] != ("flagKey",)
            return _metered(site, view.attribute(parts, default), fixed_path_cost(parts))
    site.compilation.reads_time |= view.is_root
    return lambda data, run: variable(view, values.fn(data, run), data, run)


def _metered(site: RuleSite, fn: Fn, cost: int) -> Fn:
    """Account for a path that is longer than usual."""
    if not cost:
        return fn
    site.compilation.metered += 1

    def metered(data: Json, run: Run | None) -> Json:
        charge(run, cost)
        return fn(data, run)

    return metered


def _name_and_default(value: Json) -> tuple[str | None, Json]:
    if value.__class__ is str:
        return value, None
    if value.__class__ in (int, float):
        return fixed_notation(value), None
    if value.__class__ is list and value and value[0].__class__ is str:
        return value[0], value[1] if len(value) == 2 else None
    return None, None


def missing(site: RuleSite, argument: Json) -> Fn:
    """`missing`: those of the named variables that are not there."""
    values, scope = site.expr(argument).fn, site.scope
    site.compilation.reads_time = True

    def fn(data: Json, run: Run | None) -> Json:
        names = values(data, run)
        names = [names] if names.__class__ is str else names
        if names.__class__ is not list:
            raise RuleError("`missing` needs the names of variables")
        charge(run, paths_cost(names, affordable(run)))
        return [name for name in names if _absent(scope, name, data, run)]

    return fn


def missing_some(site: RuleSite, argument: Json) -> Fn:
    """`missing_some`: `[n, names]`: nothing if at least n of the variables are there, else those that are not."""
    values, scope = site.expr(argument).fn, site.scope
    site.compilation.reads_time = True

    def fn(data: Json, run: Run | None) -> Json:
        operands = values(data, run)
        if operands.__class__ is not list or len(operands) < 2 or operands[1].__class__ is not list:
            raise RuleError("`missing_some` needs a number and an array of names")
        names = operands[1]
        charge(run, operands_cost(operands[:1], affordable(run)) + paths_cost(names, affordable(run)))
        needed = to_index(to_number(operands[0]))
        absent = [name for name in names if _absent(scope, name, data, run)]
        return absent if needed > len(names) - len(absent) else []

    return fn


def put(values: Json) -> Json:
    """`set`: `[object, name, value]`: a copy of the object with one member set."""
    if values.__class__ is not list:
        raise RuleError("`set` needs an array of operands")
    if len(values) < 3 or values[0].__class__ is not dict:
        return values[0] if values else None
    if values[1].__class__ is not str:
        raise RuleError("`set` needs the name of a member")
    return {**values[0], values[1]: values[2]}


def _absent(scope: Scope, name: Json, data: Json, run: Run | None) -> bool:
    inner, item = scope.innermost(data)
    return variable(inner, name, item, run) is None
