"""Targeting rules become closures, once; evaluating is then only calling them.

    rule ──▶ Compiler.expr ──▶ operators (what they mean) ──▶ Program(decide, …)
                    │
                    └──▶ specialise (the same meaning, faster, for the forms that rules are full of)

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
from wigwag.flags.rules.expression import Expr, constant, listing
from wigwag.flags.rules.operators.table import BUILDERS, functions
from wigwag.flags.rules.refs import REF
from wigwag.flags.rules.scope import UNMETERED, LargeOperandError, RootScope, Run
from wigwag.flags.rules.specialise import specialise, specialise_metered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.flags.model import Fractional, Json
    from wigwag.flags.rules.scope import Fn, Scope

    Apply = Callable[[Json, Run | None], Json]
    Path = tuple["Path", str | int] | tuple[()]
    Watch = Callable[[Fn, "RuleSite", Json], Fn]


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


class Compiler:
    """Compiles the rule of one flag, and notes what it will need when it runs."""

    def __init__(
        self,
        flag_key: str,
        evaluators: Mapping[str, Json] | None = None,
        fractional: Fractional = "v2",
        limits: Limits | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.flag_key, self.fractional, self.watch = flag_key, fractional, watch
        self.evaluators = evaluators or {}
        self.limits = limits or Limits()
        self.functions = functions(self.limits)
        self.reads_time = self.loops = False
        self.nodes = self.weight = self.metered = 0
        """How many values there are; how many are evaluated one by one; how many operators account for their data."""

    def program(self, rule: Json, scope: Scope | None = None) -> Program:
        """Compile a rule. Beyond the limits it is replaced by one that always fails."""
        try:
            fn = RuleSite(self, scope or RootScope(self.flag_key), (), 0, ()).expr(rule).fn
        except _TooLargeError as error:
            fn = failing(str(error))
        needs_run = self.reads_time or self.loops or self.metered > _METERED_BY_SIZE
        return Program(fn, needs_run, self.reads_time, self.limits.steps)


class RuleSite:
    """A place in a rule: where it is, what it sees, and how to compile what stands there."""

    __slots__ = ("_depth", "_refs", "compiler", "name", "path", "scope")

    def __init__(
        self, compiler: Compiler, scope: Scope, path: Path, depth: int, refs: tuple[str, ...], name: str = ""
    ) -> None:
        self.compiler, self.scope, self.name = compiler, scope, name
        self.path, self._depth, self._refs = path, depth, refs

    def within(self, scope: Scope) -> RuleSite:
        """Return the same place with another view of the data."""
        return RuleSite(self.compiler, scope, self.path, self._depth, self._refs, self.name)

    def expr(self, node: Json, step: str | int | None = None) -> Expr:
        """Compile what stands here, or one step further down."""
        site = self if step is None else self._at(step)
        site._account()
        if node.__class__ is dict and len(node) == 1:
            ((name, argument),) = node.items()
            compiled = site._reference(argument) if name == REF else site._operation(name, argument)
        elif node.__class__ is list:
            weight = self.compiler.weight
            items = site.items(node)
            compiled = Expr(listing(items))
            if all(item.constant for item in items):
                compiled, self.compiler.weight = constant(node), weight
        else:
            compiled = constant(node)
        watch = self.compiler.watch
        return compiled if watch is None else Expr(watch(compiled.fn, site, node))

    def items(self, nodes: list[Json]) -> tuple[Expr, ...]:
        """Compile every element of a literal array."""
        compiled = []  # a plain loop: every frame here is one for each level of a nested rule
        for index, node in enumerate(nodes):
            compiled.append(self.expr(node, index))
        return tuple(compiled)

    def _at(self, step: str | int, name: str = "") -> RuleSite:
        return RuleSite(self.compiler, self.scope, (self.path, step), self._depth + 1, self._refs, name)

    def _account(self) -> None:
        self.compiler.nodes += 1
        self.compiler.weight += 1
        limits = self.compiler.limits
        if self.compiler.nodes > limits.rule_nodes:
            raise _TooLargeError(f"the rule has more than {limits.rule_nodes} values (raise Limits.rule_nodes)")
        if self._depth > limits.depth:
            raise _TooLargeError(f"the rule is nested more than {limits.depth} deep (raise Limits.depth)")

    def _operation(self, name: str, argument: Json) -> Expr:
        site = self._at(name, name)
        function, builder = self.compiler.functions.get(name), BUILDERS.get(name)
        try:
            if builder is not None:
                return Expr(builder(site, argument), attribute=_plain_attribute(site, name, argument))
            if function is not None:
                return Expr(_application(site, name, function, argument))
        except RuleError as error:
            return Expr(failing(str(error)))
        return Expr(failing(f"unknown operator `{name}`"))

    def _reference(self, name: Json) -> Expr:
        evaluators = self.compiler.evaluators
        if name.__class__ is not str or name not in evaluators:
            return Expr(failing(f"`$ref` to an evaluator that does not exist: {name!r}"))
        if name in self._refs:
            return Expr(failing(f"`$ref` in a circle: {' → '.join((*self._refs, name))}"))
        return RuleSite(
            self.compiler, self.scope, ((), f"$evaluators.{name}"), self._depth + 1, (*self._refs, name)
        ).expr(evaluators[name])


class _TooLargeError(Exception):
    """The rule is beyond a limit; not a `RuleError`, because no part of it may be used."""


def failing(message: str) -> Fn:
    """Make a function that fails when it is reached."""

    def fn(data: Json, run: Run | None) -> Json:
        raise RuleError(message)

    return fn


def _application(site: RuleSite, name: str, function: Callable[[Json], Json], argument: Json) -> Fn:
    apply = _metered(name, function)
    if argument.__class__ is not list or not argument:
        site.compiler.metered += name in COSTS
        values = site.expr(argument).fn
    else:
        items = site.items(argument)
        bounded = specialise(name, items, apply)
        if bounded is not None:
            return bounded
        site.compiler.metered += name in COSTS
        faster = specialise_metered(name, items, apply, site.compiler.limits.string_length)
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


def _plain_attribute(site: RuleSite, name: str, argument: Json) -> str | None:
    """Return the name if this is `{"var": "name"}` or `{"var": ["name"]}` with nothing special about it."""
    if argument.__class__ is list and len(argument) == 1:
        argument = argument[0]
    plain = name == "var" and argument.__class__ is str and argument and "." not in argument and argument != "$flagd"
    return argument if plain and site.scope.is_root else None
