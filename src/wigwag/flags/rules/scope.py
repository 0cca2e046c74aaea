"""What a rule sees when it asks for a variable.

At the root it sees the evaluation context and `$flagd`. Inside an array operator it sees an element, as flagd's engine
has it:

    map, reduce      the element
    filter, none     what is around the operator first, then the element
    all              the element; array operators within it see that element first, then their own
    some             both: what is around, then the element; and so do array operators within it

The literal name "", or one that starts with ".", always means the innermost element. A scope is chosen while compiling;
at run time `data` is just the context, the element, or a pair (around, element).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from wigwag.errors import RuleError
from wigwag.flags.rules.coerce import describe, fixed_notation, parse_number, to_index
from wigwag.flags.rules.cost import path_cost

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.flags.model import Json

    Fn = Callable[[Json, "Run | None"], Json]
    Bind = Callable[[Json, Json], Json]
    ScopeView: TypeAlias = "RootScope | ElementScope"
    """A scope with one thing to look at: the context, or an element."""
    Scope: TypeAlias = "RootScope | ElementScope | AroundScope"
    """What is visible at one place of a rule."""

FLAGD = "$flagd"
_SHORT = 10
UNMETERED = 1_000
"""Steps that one operator may cost in an evaluation without a budget."""


class LargeOperandError(Exception):
    """An evaluation without a budget met large data, and must start again with one."""


class Run(Struct, gc=False):
    """One evaluation of a rule with a budget: the time that it sees, and the steps that it may still take."""

    now: int
    steps: int
    refused: bool = False
    """Whether anything cost more than what was left."""

    def spend(self, steps: int) -> None:
        """Account for work that is about to be done, or refuse it."""
        if steps > self.steps:
            self.steps, self.refused = 0, True  # finding that out was work, too
            raise RuleError("the evaluation takes too many steps for this context (raise Limits.steps)")
        self.steps -= steps


def affordable(run: Run | None) -> int:
    """Return how many steps the next piece of work may cost."""
    return UNMETERED if run is None else run.steps


def charge(run: Run | None, steps: int) -> None:
    """Account for work; without a budget only a little may be done."""
    if run is not None:
        run.spend(steps)
    elif steps > UNMETERED:
        raise LargeOperandError


def enter(scope: Scope, operator: str) -> tuple[Scope, Bind]:
    """Return the scope of an array operator's body, and what makes its data of (data around, element)."""
    if operator in ("filter", "none"):
        return AroundScope(scope), lambda data, item: (data, item)
    if operator == "some":
        return AroundScope(AroundScope(scope)), lambda data, item: ((data, item), item)
    element: Scope = ElementScope()
    bind: Bind = _element
    if isinstance(scope, AroundScope):
        element, bind = scope, _element_around
    if operator == "all":
        return AroundScope(element), lambda data, item: (bind(data, item), item)
    return element, bind


def _element(data: Json, item: Json) -> Json:
    return item


def _element_around(data: Json, item: Json) -> Json:
    return data[0], item


def split(name: str) -> tuple[str, ...]:
    """Cut a dotted name into its parts; empty parts do not count."""
    return tuple(part for part in name.split(".") if part)


def walk(value: Json, parts: tuple[str, ...], default: Json) -> Json:
    """Follow a path through objects and arrays; whatever is missing or null is the default."""
    for part in parts:
        if value.__class__ is dict:
            value = value.get(part)
        elif value.__class__ is list:
            position = _position(part)
            value = value[position] if 0 <= position < len(value) else None
        else:
            return default
        if value is None:
            return default
    return default if value is None else value


def _position(part: str) -> int:
    if len(part) < _SHORT and part.isascii() and part.isdecimal():
        return int(part)
    return to_index(parse_number(part) or 0)


def variable(scope: ScopeView, argument: Json, data: Json, run: Run | None) -> Json:
    """Read the variable that an evaluated argument names: text, a number, `[name, default]`, null or nothing."""
    default = None
    charge(run, path_cost(argument))
    if argument is None:
        value = scope.whole(data, run)
        return None if value.__class__ in (dict, list) else value
    if argument.__class__ is list:
        if not argument:
            return scope.whole(data, run)
        default = argument[1] if len(argument) == 2 else None
        argument = argument[0]
    elif argument.__class__ in (int, float):
        argument = fixed_notation(argument)
    if argument.__class__ is not str:
        raise RuleError(f"a variable's name must be text, not {describe(argument)}")
    return scope.read(data, run, argument, default)


class RootScope:
    """The evaluation context, plus `$flagd`."""

    is_root = True
    """Whether variables are attributes of the context here, not of an array's element."""
    outer: Scope | None = None
    """What is looked at first, if anything is."""

    def __init__(self, flag_key: str) -> None:
        self._flag_key = flag_key

    def attribute(self, parts: tuple[str, ...], default: Json) -> Fn:
        """Return a function that reads the variable at a fixed path."""
        if parts[0] == FLAGD:
            return self._flagd(parts[1:], default)
        if len(parts) == 1:
            return _plain(parts[0], default)
        if len(parts) == 2:
            return _member(*parts, default)
        return lambda data, run: walk(data.get(parts[0]), parts[1:], default)

    def _flagd(self, parts: tuple[str, ...], default: Json) -> Fn:
        if parts == ("timestamp",):
            return timestamp
        if parts == ("flagKey",):
            flag_key = self._flag_key
            return lambda data, run: flag_key
        return lambda data, run: walk(self._properties(run), parts, default)

    def _properties(self, run: Run | None) -> dict[str, Json]:
        return {"flagKey": self._flag_key, "timestamp": run.now if run else None}

    def read(self, data: Json, run: Run | None, name: str, default: Json) -> Json:
        """Read a variable whose name is only known at run time."""
        parts = split(name)
        if not parts:
            return self.whole(data, run)
        if parts[0] == FLAGD:
            return walk(self._properties(run), parts[1:], default)
        return walk(data.get(parts[0]), parts[1:], default)

    def whole(self, data: Json, run: Run | None) -> Json:
        """Return everything that is visible: the meaning of an empty name."""
        charge(run, len(data))
        return {**data, FLAGD: self._properties(run)}

    def innermost(self, data: Json) -> tuple[ScopeView, Json]:
        """Return what is visible without what is around: all that `missing` and `fractional` look at."""
        return self, data


class ElementScope:
    """One JSON value of any kind, and nothing else."""

    is_root = False
    outer: Scope | None = None

    def attribute(self, parts: tuple[str, ...], default: Json) -> Fn:
        return lambda data, run: walk(data, parts, default)

    def read(self, data: Json, run: Run | None, name: str, default: Json) -> Json:
        return walk(data, split(name), default)

    def whole(self, data: Json, run: Run | None) -> Json:
        return data

    def innermost(self, data: Json) -> tuple[ScopeView, Json]:
        return self, data


class AroundScope:
    """What is around comes first, then the element: `data` is the pair of them."""

    is_root = False

    def __init__(self, outer: Scope) -> None:
        self.outer: Scope | None = outer

    def innermost(self, data: Json) -> tuple[ScopeView, Json]:
        return ElementScope(), data[1]


def timestamp(data: Json, run: Run | None) -> Json:
    """Return the time that a rule sees; one that reads it is always evaluated with a run."""
    return run.now  # type: ignore[union-attr]


def _plain(name: str, default: Json) -> Fn:
    if default is None:
        return lambda data, run: data.get(name)

    def fn(data: Json, run: Run | None) -> Json:
        value = data.get(name)
        return default if value is None else value

    return fn


def _member(name: str, member: str, default: Json) -> Fn:
    rest = (member,)

    def fn(data: Json, run: Run | None) -> Json:
        value = data.get(name)
        if value.__class__ is dict:
            value = value.get(member)
            return default if value is None else value
        return walk(value, rest, default)

    return fn
