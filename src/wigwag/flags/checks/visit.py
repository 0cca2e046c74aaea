"""Every operation of a rule with its path, in one walk; what the constant ones come to; the shared rules of a document.

References are not followed. Each shared rule is walked on its own, once (see `Evaluators`), so a document costs as much
to check as it is long, however often its rules refer to each other.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from wigwag.errors import RuleError
from wigwag.flags.model import render
from wigwag.flags.rules.compile import compile_rule
from wigwag.flags.rules.operators.table import OPERATORS
from wigwag.flags.rules.refs import REF, SHARED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from wigwag.flags.flag import DocumentDefaults
    from wigwag.flags.model import Json, Limits, Where

    Pending = tuple[Json, Where, int, "Operation | None", bool]

T = TypeVar("T")
LOOPS = frozenset(("map", "filter", "all", "some", "none", "reduce"))
"""Operators with a body, their second operand, in which names are those of an element."""
DECIDING = frozenset(("if", "?:", "and", "or", "!", "!!"))
"""Operators whose operands are conditions or answers."""
_LONGEST_CIRCLE = 8
_CONSTANT_STEPS = 10_000
_FIXED = OPERATORS - {"var", "missing", "missing_some", "fractional"}


class Operation(Struct, eq=False, gc=False):
    """One operator at one place."""

    where: tuple[Any, str]
    name: str
    argument: Json
    depth: int
    parent: Operation | None
    element: bool
    """Whether it stands in the body of a loop, where names are not (only) attributes of the context."""
    constant: bool = True
    """Whether the answer depends on nothing but what is written here."""

    @property
    def path(self) -> str:
        """The JSON path of the operator."""
        return render(self.where)

    @property
    def operands(self) -> list[Json]:
        """The operands; a single one may stand without its array."""
        return self.argument if self.argument.__class__ is list else [self.argument]

    @property
    def position(self) -> int | None:
        """Which operand of its parent it is; None if it stands deeper within one, or alone."""
        place = self.where[0]
        if self.parent is None or place.__class__ is str or place[0] is not self.parent.where:
            return None
        return place[1]  # type: ignore[no-any-return]

    @property
    def outermost(self) -> bool:
        """Whether it is constant and not a part of a larger constant."""
        return self.constant and (self.parent is None or not self.parent.constant)


class Ambiguous(NamedTuple):
    """An object with several members: data to the engine, though one of them may have been meant as an operator."""

    where: Where
    names: list[str]
    parent: Operation | None

    @property
    def decides(self) -> bool:
        """Whether it stands where a condition or an answer does, and not where data may."""
        parent = self.parent
        if parent is None or parent.name == "fractional":
            return True
        direct = self.where is parent.where or self.where[0] is parent.where
        return direct and (parent.name in DECIDING or (parent.name in LOOPS and self.where[1] == 1))


class Walk(NamedTuple):
    """The operations of a rule, in document order, parents before their operands."""

    where: Where
    parts: list[Operation | Ambiguous]
    nodes: int
    depth: int
    excess: str
    """Empty, or which limit the rule goes beyond; then `parts` ends there."""

    @property
    def operations(self) -> Iterator[Operation]:
        """The operations."""
        return (part for part in self.parts if isinstance(part, Operation))

    @property
    def references(self) -> Iterator[Operation]:
        """The references that name something."""
        return (each for each in self.operations if each.name == REF and each.argument.__class__ is str)


def walk(rule: Json, path: Where, limits: Limits) -> Walk:
    """Walk a rule."""
    parts: list[Operation | Ambiguous] = []
    nodes = deepest = 0
    stack: list[Pending] = [(rule, path, 0, None, False)]
    while stack:
        node, where, depth, parent, element = stack.pop()
        nodes, deepest = nodes + 1, max(deepest, depth)
        excess = beyond(nodes, depth, limits)
        if excess:
            return Walk(path, parts, nodes, deepest, excess)
        if node.__class__ is list:
            stack.extend(reversed(_items(node, where, depth, parent, element)))
        elif node.__class__ is dict and len(node) > 1:
            parts.append(Ambiguous(where, list(node), parent))
        elif node.__class__ is dict and node:
            ((name, argument),) = node.items()
            operation = Operation((where, name), name, argument, depth, parent, element)
            parts.append(operation)
            if name != REF:
                stack.append((argument, operation.where, depth + 1, operation, element))
    _mark_constants(parts)
    return Walk(path, parts, nodes, deepest, "")


def beyond(nodes: int, depth: int, limits: Limits) -> str:
    """Return which limit so many values, nested so deeply, go beyond; empty if none."""
    if nodes <= limits.rule_nodes and depth <= limits.depth:
        return ""
    what = "has too many values" if nodes > limits.rule_nodes else "is nested too deeply"
    return f"the rule {what} (see Limits.rule_nodes and Limits.depth)"


def _items(nodes: list[Json], where: Where, depth: int, parent: Operation | None, element: bool) -> list[Pending]:
    items: list[Pending] = [(node, (where, index), depth + 1, parent, element) for index, node in enumerate(nodes)]
    if parent is not None and parent.name in LOOPS and where is parent.where and len(items) > 1:
        items[1] = (*items[1][:4], True)
    return items


def _mark_constants(parts: list[Operation | Ambiguous]) -> None:
    """Mark what is constant: an operation that does not look at the context, and has no part that does."""
    for operation in reversed(parts):
        if isinstance(operation, Operation):
            operation.constant &= operation.name in _FIXED
            if operation.parent is not None:
                operation.parent.constant &= operation.constant


class ConstantResult(NamedTuple):
    """What a constant comes to: a value, an error, or neither where finding out would take too long."""

    decided: bool
    value: Json = None
    error: str = ""


def evaluate_constant(operation: Operation, limits: Limits) -> ConstantResult:
    """Evaluate a constant operation with the real operators, so that checks and evaluations agree."""
    limits = replace(limits, steps=min(limits.steps, _CONSTANT_STEPS))
    program = compile_rule({operation.name: operation.argument}, limits=limits)
    run = program.run(0, lambda: 0.0)
    try:
        return ConstantResult(True, program.decide({}, run))
    except RuleError as error:
        return ConstantResult(False, error="" if run.refused else str(error))
    except RecursionError:
        return ConstantResult(False)


class ReferenceCycle(NamedTuple):
    """A reference back to a rule that leads to it."""

    reference: Operation
    names: tuple[str, ...]

    def __str__(self) -> str:
        shown = self.names[:_LONGEST_CIRCLE]
        return " → ".join((*shown, *(("…",) if len(self.names) > len(shown) else ()), self.names[0]))


class Evaluators:
    """The shared rules of one document: their operations, sizes and circles.

    A rule that refers twice to a rule that refers twice … doubles at every step, so sizes are added up, never counted
    by following.
    """

    def __init__(self, setting: DocumentDefaults) -> None:
        self._limits = setting.options.limits
        self.walks = {name: walk(rule, (SHARED, name), self._limits) for name, rule in setting.evaluators.items()}
        self.circles: dict[str, list[ReferenceCycle]] = defaultdict(list)
        self._sizes: dict[str, tuple[int, int]] = {}
        for name in self.walks:
            if name not in self._sizes:
                self._measure(name)

    def excess(self, rule: Walk) -> str:
        """Return which limit a rule goes beyond once its references are followed; empty if none."""
        return rule.excess or beyond(*self._size(rule), self._limits)

    def reached(self, references: Iterable[Operation]) -> list[str]:
        """Return the names of the rules that references lead to, directly or through others."""
        names: dict[str, None] = {}
        pending = list(references)
        while pending:
            name = pending.pop().argument
            if name in self.walks and name not in names:
                names[name] = None
                pending += self.walks[name].references
        return list(names)

    def _measure(self, root: str) -> None:
        """Measure a rule and those it leads to, innermost first; a reference back to an unfinished one is a circle."""
        line: list[tuple[str, Iterator[Operation]]] = []
        places: dict[str, int] = {}
        following: str | None = root
        while following is not None or line:
            if following is not None:
                places[following] = len(line)
                line.append((following, self.walks[following].references))
            name, references = line[-1]
            following = self._next(name, references, line, places)
            if following is None:
                line.pop()
                del places[name]
                self._sizes[name] = self._size(self.walks[name])

    def _next(
        self,
        name: str,
        references: Iterator[Operation],
        line: list[tuple[str, Iterator[Operation]]],
        places: dict[str, int],
    ) -> str | None:
        for reference in references:
            target: str = reference.argument
            if target in places:
                first = places[target]
                circle = line[first : first + _LONGEST_CIRCLE + 1]
                self.circles[name].append(ReferenceCycle(reference, tuple(step for step, _ in circle)))
            elif target in self.walks and target not in self._sizes:
                return target
        return None

    def _size(self, rule: Walk) -> tuple[int, int]:
        """Return the number of values and their depth; what is unknown, or in a circle, has none."""
        nodes, depth = rule.nodes, rule.depth
        for reference in rule.references:
            more, deeper = self._sizes.get(reference.argument, (0, 0))
            nodes, depth = nodes + more, max(depth, reference.depth + 1 + deeper)
        return min(nodes, self._limits.rule_nodes + 1), depth


class _Key:
    """The defaults of a document as a cache key: the same object has the same evaluators."""

    def __init__(self, setting: DocumentDefaults) -> None:
        self.rules, self.limits, self.setting = setting.evaluators, setting.options.limits, setting

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.rules is other.rules and self.limits == other.limits

    def __hash__(self) -> int:
        return id(self.rules)


def once_per_document(examine: Callable[[DocumentDefaults], T]) -> Callable[[DocumentDefaults], T]:
    """Remember what an examination of shared rules came to, for two documents: the one that is loaded, and the last."""
    cached = lru_cache(maxsize=2)(lambda key: examine(key.setting))
    return lambda setting: cached(_Key(setting))


evaluators_of = once_per_document(Evaluators)
"""The shared rules of a document, examined."""
