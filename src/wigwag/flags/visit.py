"""Every operation of a rule with its path, references followed: what checks and lints walk over."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from wigwag.flags.model import render
from wigwag.flags.refs import REF

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wigwag.flags.model import Json, Limits, Where

    Pending = tuple[Json, Where, int, tuple[str, ...]]


class Operation(NamedTuple):
    """One operator at one place. `names` are the references followed to get there."""

    where: Where
    name: str
    argument: Json
    names: tuple[str, ...]

    @property
    def path(self) -> str:
        """The JSON path of the operator."""
        return render(self.where)

    @property
    def operands(self) -> list[Json]:
        """The operands; a single one may stand without its array."""
        return self.argument if self.argument.__class__ is list else [self.argument]


class Excess(NamedTuple):
    """The rule goes beyond a limit here; nothing after this is visited."""

    path: str
    message: str


class Ambiguous(NamedTuple):
    """An object with several members: data to the engine, though one of them may have been meant as an operator."""

    path: str
    names: list[str]


def visit(
    rule: Json, path: Where, evaluators: Mapping[str, Json], limits: Limits
) -> Iterator[Operation | Excess | Ambiguous]:
    """Walk a rule in document order, parents before their operands."""
    nodes = 0
    stack: list[Pending] = [(rule, path, 0, ())]
    while stack:
        node, where, depth, names = stack.pop()
        nodes += 1
        if nodes > limits.rule_nodes or depth > limits.depth:
            what = "has too many values" if nodes > limits.rule_nodes else "is nested too deeply"
            yield Excess(render(path), f"the rule {what} (see Limits.rule_nodes and Limits.depth)")
            return
        inner: list[Pending] = []
        if node.__class__ is list:
            inner = [(item, (where, index), depth + 1, names) for index, item in enumerate(node)]
        elif node.__class__ is dict and len(node) > 1:
            yield Ambiguous(render(where), list(node))
        elif node.__class__ is dict and node:
            ((name, argument),) = node.items()
            yield Operation((where, name), name, argument, names)
            inner = _within(name, argument, where, depth, names, evaluators)
        stack.extend(reversed(inner))


def _within(
    name: str, argument: Json, where: Where, depth: int, names: tuple[str, ...], evaluators: Mapping[str, Json]
) -> list[Pending]:
    if name != REF:
        return [(argument, (where, name), depth + 1, names)]
    if argument.__class__ is str and argument in evaluators and argument not in names:
        return [(evaluators[argument], ("$.$evaluators", argument), depth + 1, (*names, argument))]
    return []
