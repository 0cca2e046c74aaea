"""A place in a rule while it is compiled: what the builders of operators work with, without knowing the operators.

Compilation   one rule: its limits and shared rules, and notes on what it will need when it runs
RuleSite      a place in it: its path, what it sees, and how to compile what stands there
Expr          what comes out: a function, and what is known about it before it runs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from wigwag.errors import RuleError
from wigwag.flags.rules.refs import REF, SHARED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from wigwag.flags.model import Fractional, Json, Limits, Where
    from wigwag.flags.rules.scope import Fn, Run, Scope

    Watch = Callable[[Fn, "RuleSite", Json], Fn]


class Expr(NamedTuple):
    """A function of (data, run), with its value if that never changes, or its name if it is a plain attribute."""

    fn: Fn
    constant: bool = False
    value: Json = None
    attribute: str | None = None


class Compilation(Struct, eq=False):
    """One rule that is being compiled."""

    flag_key: str
    evaluators: Mapping[str, Json]
    fractional: Fractional
    limits: Limits
    watch: Watch | None
    functions: Mapping[str, Callable[[Json], Json]]
    """The operators that are functions of their evaluated operands."""
    build: Callable[[RuleSite, Json], Expr]
    """Compiles an operation, given the place that has the operator's name, and its argument."""
    reads_time: bool = False
    loops: bool = False
    nodes: int = 0
    """How many values there are."""
    weight: int = 0
    """How many of them are evaluated one by one."""
    metered: int = 0
    """How many operators account for their data."""


class RuleTooLargeError(Exception):
    """The rule is beyond a limit; not a `RuleError`, because no part of it may be used."""


class RuleSite:
    """A place in a rule: where it is, what it sees, and how to compile what stands there."""

    __slots__ = ("_depth", "_refs", "compilation", "name", "path", "scope")

    def __init__(
        self,
        compilation: Compilation,
        scope: Scope,
        path: Where = "$",
        depth: int = 0,
        refs: tuple[str, ...] = (),
        name: str = "",
    ) -> None:
        self.compilation, self.scope, self.name = compilation, scope, name
        self.path, self._depth, self._refs = path, depth, refs

    def within(self, scope: Scope) -> RuleSite:
        """Return the same place with another view of the data."""
        return RuleSite(self.compilation, scope, self.path, self._depth, self._refs, self.name)

    def expr(self, node: Json, step: str | int | None = None) -> Expr:
        """Compile what stands here, or one step further down."""
        site = self if step is None else self._at(step)
        site._account()
        if node.__class__ is dict and len(node) == 1:
            ((name, argument),) = node.items()
            compiled = (
                site._reference(argument) if name == REF else self.compilation.build(site._at(name, name), argument)
            )
        elif node.__class__ is list:
            weight = self.compilation.weight
            items = site.items(node)
            compiled = Expr(listing(items))
            if all(item.constant for item in items):
                compiled, self.compilation.weight = constant(node), weight
        else:
            compiled = constant(node)
        watch = self.compilation.watch
        return compiled if watch is None else Expr(watch(compiled.fn, site, node))

    def items(self, nodes: list[Json]) -> tuple[Expr, ...]:
        """Compile every element of a literal array."""
        compiled = []  # a plain loop: every frame here is one for each level of a nested rule
        for index, node in enumerate(nodes):
            compiled.append(self.expr(node, index))
        return tuple(compiled)

    def operands(self, argument: Json) -> list[Json]:
        """Return the operands of an operator that needs an array of them."""
        if argument.__class__ is not list:
            raise RuleError(f"`{self.name}` needs an array of operands")
        return argument

    def _at(self, step: str | int, name: str = "") -> RuleSite:
        return RuleSite(self.compilation, self.scope, (self.path, step), self._depth + 1, self._refs, name)

    def _account(self) -> None:
        self.compilation.nodes += 1
        self.compilation.weight += 1
        limits = self.compilation.limits
        if self.compilation.nodes > limits.rule_nodes:
            raise RuleTooLargeError(f"the rule has more than {limits.rule_nodes} values (raise Limits.rule_nodes)")
        if self._depth > limits.depth:
            raise RuleTooLargeError(f"the rule is nested more than {limits.depth} deep (raise Limits.depth)")

    def _reference(self, name: Json) -> Expr:
        evaluators = self.compilation.evaluators
        if name.__class__ is not str or name not in evaluators:
            return Expr(failing(f"`$ref` to an evaluator that does not exist: {name!r}"))
        if name in self._refs:
            return Expr(failing(f"`$ref` in a circle: {' → '.join((*self._refs, name))}"))
        refs = (*self._refs, name)
        return RuleSite(self.compilation, self.scope, (SHARED, name), self._depth + 1, refs).expr(evaluators[name])


def constant(value: Json) -> Expr:
    """Make an expression that always answers `value`."""
    return Expr(lambda data, run: value, True, value)


def failing(message: str) -> Fn:
    """Make a function that fails when it is reached."""

    def fn(data: Json, run: Run | None) -> Json:
        raise RuleError(message)

    return fn


def listing(items: Sequence[Expr]) -> Fn:
    """Make a function that evaluates all items into one array."""
    fns = tuple(item.fn for item in items)
    match fns:
        case (first,):
            return lambda data, run: [first(data, run)]
        case (first, second):
            return lambda data, run: [first(data, run), second(data, run)]
        case (first, second, third):
            return lambda data, run: [first(data, run), second(data, run), third(data, run)]
    return lambda data, run: [fn(data, run) for fn in fns]
