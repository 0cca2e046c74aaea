"""Targeting rules become closures, once; evaluating is then only calling them.

    rule ──▶ RuleSite.expr ──▶ operators (what they mean) ──▶ Program(decide, …)
                    │
                    └──▶ specialise (the same meaning, faster, for the most frequent forms)

A rule is data, and no rule can fail to compile: what is wrong with a part of it (an unknown operator, a `$ref` to
nowhere) becomes a function that raises `RuleError` when, and only when, evaluation gets there, as in flagd. Only a rule
beyond the limits is refused as a whole. With a `watch`, every piece reports what it came to: that is `explain`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wigwag.errors import RuleError
from wigwag.flags.model import Limits
from wigwag.flags.rules.cost import COSTS
from wigwag.flags.rules.operators.table import BUILDERS, functions
from wigwag.flags.rules.scope import FLAGD, UNMETERED, LargeOperandError, RootScope, Run
from wigwag.flags.rules.site import Compilation, Expr, RuleSite, RuleTooLargeError, failing, listing
from wigwag.flags.rules.specialise import specialise, specialise_metered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.flags.model import Fractional, Json, Where
    from wigwag.flags.rules.scope import Fn, Scope
    from wigwag.flags.rules.site import Watch

    Apply = Callable[[Json, Run | None], Json]


_PLAIN = frozenset((int, float, bool, type(None)))
_SHORT = 1_000
_METERED_BY_SIZE = 50
"""Operators whose cost depends on the data, in a rule that is evaluated without a budget: each of them is small."""


class Program(Struct, frozen=True):
    """A compiled rule: what decides, and what it needs of its surroundings."""

    decide: Callable[[Any, Any], Any]
    needs_run: bool = False
    reads_time: bool = False
    steps: int = 0

    def run(self, now: float | None, clock: Callable[[], float], steps: int | None = None) -> Run:
        """Start a run; the clock is read only if the rule reads the time and none is given."""
        steps = self.steps if steps is None else steps
        if not self.reads_time:
            return Run(0, steps)
        return Run(int(clock() if now is None else now), steps)


def compile_rule(
    rule: Json,
    flag_key: str = "",
    evaluators: Mapping[str, Json] | None = None,
    fractional: Fractional = "v2",
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    watch: Watch | None = None,
    *,
    path: Where = "$",
    scope: Scope | None = None,
    overrides: Mapping[str, Callable[[Json], Json]] | None = None,
) -> Program:
    """Compile a rule. Beyond the limits it is replaced by one that always fails; `overrides` replaces operators."""
    known = {**functions(limits), **(overrides or {})}
    compilation = Compilation(flag_key, evaluators or {}, fractional, limits, watch, known, _operation)
    try:
        fn = RuleSite(compilation, scope or RootScope(flag_key), path).expr(rule).fn
    except RuleTooLargeError as error:
        fn = failing(str(error))
    needs_run = compilation.reads_time or compilation.loops or compilation.metered > _METERED_BY_SIZE
    return Program(fn, needs_run, compilation.reads_time, limits.steps)


def _operation(site: RuleSite, argument: Json) -> Expr:
    builder, function = BUILDERS.get(site.name), site.compilation.functions.get(site.name)
    try:
        if builder is not None:
            return Expr(builder(site, argument), attribute=_plain_attribute(site, argument))
        if function is not None:
            return Expr(_application(site, function, argument))
    except RuleError as error:
        return Expr(failing(str(error)))
    return Expr(failing(f"unknown operator `{site.name}`"))


def _application(site: RuleSite, function: Callable[[Json], Json], argument: Json) -> Fn:
    name = site.name
    apply = _metered(name, function)
    if argument.__class__ is not list or not argument:
        site.compilation.metered += name in COSTS
        values = site.expr(argument).fn
    else:
        items = site.items(argument)
        bounded = specialise(name, items, apply)
        if bounded is not None:
            return bounded
        site.compilation.metered += name in COSTS
        faster = specialise_metered(name, items, apply, site.compilation.limits.string_length)
        if faster is not None:
            return faster
        if len(items) == 2:
            return _pair(items[0].fn, items[1].fn, function, apply)
        values = listing(items)
    return lambda data, run: apply(values(data, run), run)


def _pair(first: Fn, second: Fn, function: Callable[[Json], Json], apply: Apply) -> Fn:
    """Two operands are by far the most frequent; without a budget, short ones need no accounting."""

    def fn(data: Json, run: Run | None) -> Json:
        a, b = first(data, run), second(data, run)
        if (
            run is None
            and (a.__class__ in _PLAIN or (a.__class__ is str and len(a) <= _SHORT))
            and (b.__class__ in _PLAIN or (b.__class__ is str and len(b) <= _SHORT))
        ):
            return function([a, b])
        return apply([a, b], run)

    return fn


def _metered(name: str, function: Callable[[Json], Json]) -> Apply:
    """Make a function account for its operands before it looks at them."""
    cost = COSTS.get(name)
    if cost is None:
        return lambda values, run: function(values)

    def apply(values: Json, run: Run | None) -> Json:
        if run is not None:
            run.spend(cost(values, run.steps))
        elif cost(values, UNMETERED) > UNMETERED:
            raise LargeOperandError
        return function(values)

    return apply


def _plain_attribute(site: RuleSite, argument: Json) -> str | None:
    """Return the name if this is `{"var": "name"}` or `{"var": ["name"]}` with nothing special about it."""
    if argument.__class__ is list and len(argument) == 1:
        argument = argument[0]
    plain = site.name == "var" and argument.__class__ is str and argument and "." not in argument
    return argument if plain and argument != FLAGD and site.scope.is_root else None
