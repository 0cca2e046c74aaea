"""A compiled piece of a rule: a function, and what is known about it before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wigwag.flags.model import Json
    from wigwag.flags.rules.scope import Fn


class Expr(NamedTuple):
    """A function of (data, run), with its value if that never changes, or its name if it is a plain attribute."""

    fn: Fn
    constant: bool = False
    value: Json = None
    attribute: str | None = None


def constant(value: Json) -> Expr:
    """Make an expression that always answers `value`."""
    return Expr(lambda data, run: value, True, value)


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
