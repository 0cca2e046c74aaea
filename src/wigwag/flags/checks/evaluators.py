"""The shared rules of a document: each one's operations, its size with references followed, and circles.

A rule that refers twice to a rule that refers twice … doubles at every step, so sizes are added up, never counted by
following. A document never changes, so the results are cached.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from wigwag.flags.checks.visit import Operation, Walk, beyond, walk
from wigwag.flags.rules.refs import SHARED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from wigwag.flags.flag import DocumentDefaults

_LONGEST_CIRCLE = 8


class ReferenceCycle(NamedTuple):
    """A reference back to a rule that leads to it."""

    reference: Operation
    names: tuple[str, ...]

    def __str__(self) -> str:
        shown = self.names[:_LONGEST_CIRCLE]
        return " → ".join((*shown, *(("…",) if len(self.names) > len(shown) else ()), self.names[0]))


class Key:
    """The defaults of a document as a cache key: the same object has the same evaluators."""

    def __init__(self, setting: DocumentDefaults) -> None:
        self.rules, self.limits, self.setting = setting.evaluators, setting.options.limits, setting

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.rules is other.rules and self.limits == other.limits

    def __hash__(self) -> int:
        return id(self.rules)


class Evaluators:
    """The shared rules of one document: their operations, sizes and circles."""

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


def evaluators_of(setting: DocumentDefaults) -> Evaluators:
    """Return the shared rules of a document, examined."""
    return _evaluators(Key(setting))


@lru_cache(maxsize=2)
def _evaluators(key: Key) -> Evaluators:
    """Two are cached: the document that is loaded, and the one it replaces."""
    return Evaluators(key.setting)
