"""What a rule can answer, without evaluating it: branches of `if`, shares of `fractional`, operands of `or` and `and`.

From that: answers that are no variant, and branches that are never reached. A shared rule has the same answers wherever
it is referred to, so it is read once, and looked at once for each flag.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

from wigwag.errors import RuleError
from wigwag.flags.checks.catalogue import finding
from wigwag.flags.checks.visit import evaluate_constant, once_per_document
from wigwag.flags.evaluate import variant_name
from wigwag.flags.model import child, few
from wigwag.flags.rules.refs import REF, SHARED
from wigwag.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from wigwag.flags.checks.visit import Operation, Walk
    from wigwag.flags.flag import DocumentDefaults, Flag
    from wigwag.flags.model import Finding, Json, Limits, Where

    Names = tuple[str, ...]
    Pending = tuple[Json, Where]

_MOST_FINDINGS = 20
_TRUTHS = ("true", "false")
_REFUSED = ("false",)
_COMPARISONS = frozenset(("==", "===", "!=", "!==", "<", "<=", ">", ">=", "!", "!!", "in", "all", "some", "none"))
_COMPARISONS |= {"sem_ver", "starts_with", "ends_with"}
_CONDITIONALS = ("if", "?:")
_ARITHMETIC = frozenset(("+", "-", "*", "/", "%", "max", "min"))
_NUMBERS = ("a number",)
"""Stands for every number in the place of a name."""


class RuleResults:
    """The answers of one rule, without those of the rules it refers to."""

    def __init__(self, rule: Json, where: Where, *, falsy: bool) -> None:
        """`falsy`: whether false is an answer, too. To an operand of `or`, it is not: the next one is tried."""
        self.places: dict[Names, list[Where]] = defaultdict(list)
        """Where the rule answers one of these names."""
        self.references: list[str] = []
        pending: list[tuple[Json, Where, bool]] = [(rule, where, falsy)]
        while pending:
            node, where, falsy = pending.pop()
            if node.__class__ is dict and len(node) == 1:
                ((name, argument),) = node.items()
                inner = self._operation(name, argument, (where, name), falsy)
                last = len(inner) - 1
                pending += reversed(
                    [(*each, falsy and (name != "or" or index == last)) for index, each in enumerate(inner)]
                )
            elif node is not None and node.__class__ not in (list, dict) and (node or falsy):
                self._constant(node, where)

    def _operation(self, name: str, argument: Json, where: Where, falsy: bool) -> list[Pending]:
        if name in _COMPARISONS:
            self.places[_TRUTHS].append(where)
        elif name in _ARITHMETIC:
            self.places[_NUMBERS].append(where)
        elif name == REF and argument.__class__ is str:
            self.references.append(argument)
        elif argument.__class__ is list and name in _CHOICES:
            if name == "and" and falsy:
                self._refusals(argument, where)
            return _CHOICES[name](argument, where)
        return []

    def _refusals(self, operands: list[Json], where: Where) -> None:
        """`and` answers the first operand that is not truthy: of a comparison, false."""
        for index, operand in enumerate(operands[:-1]):
            if operand.__class__ is dict and len(operand) == 1 and not _COMPARISONS.isdisjoint(operand):
                self.places[_REFUSED].append((where, index))

    def _constant(self, value: Json, where: Where) -> None:
        try:
            self.places[(variant_name(value),)].append(where)
        except RuleError:
            return  # a number that has no name


@once_per_document
def _shared_results(setting: DocumentDefaults) -> dict[str, RuleResults]:
    """Return the answers of each shared rule."""
    return {name: RuleResults(rule, (SHARED, name), falsy=False) for name, rule in setting.evaluators.items()}


def _reached(first: RuleResults, shared: Mapping[str, RuleResults]) -> Iterator[RuleResults]:
    """Return the answers of a rule and of the shared rules it answers with, each once."""
    seen, pending = set[str](), [first]
    while pending:
        results = pending.pop()
        yield results
        names = [name for name in dict.fromkeys(results.references) if name in shared and name not in seen]
        seen.update(names)
        pending += [shared[name] for name in names]


def answer_findings(flag: Flag) -> Iterator[Finding]:
    """Report answers of the flag's rule that are none of its variants; the first of them, if there are very many."""
    left, variants = _MOST_FINDINGS, flag.variants
    if _fine(flag.rule, variants):
        return
    own = RuleResults(flag.rule, (flag.where, "targeting"), falsy=True)
    for answers in _reached(own, _shared_results(flag.setting)) if own.references else (own,):
        whose = "the variants" if answers is own else f"the variants of flag {flag.key!r}"
        for names, places in answers.places.items():
            if not (any(map(_is_number, variants)) if names == _NUMBERS else any(name in variants for name in names)):
                yield from (_unknown(names, where, variants, whose) for where in places[:left])
                left -= len(places)
                if left <= 0:
                    return


def _fine(rule: Json, variants: Mapping[str, Json]) -> bool:
    """Tell whether all answers are texts that name a variant, as most are, without noting where each one stands."""
    pending = [rule]
    for node in pending:
        if node.__class__ is dict and len(node) == 1:
            ((name, argument),) = node.items()
            if argument.__class__ is list and name in _CONDITIONALS:
                pending += argument[1::2]
                pending += argument[-1:] if len(argument) % 2 else ()
            elif argument.__class__ is list and name == "fractional":
                pending += [share[0] for share in argument if share.__class__ is list and share]
            elif name in _COMPARISONS or name in _CHOICES or name in _ARITHMETIC or name == REF:
                return False
        elif (node.__class__ is str and node not in variants) or (
            node.__class__ not in (str, list, dict) and node is not None
        ):
            return False
    return True


def _is_number(name: str) -> bool:
    """Tell whether a variant has the name of a number, which a computed one may have, too."""
    return name.removeprefix("-")[:1].isdigit()


def branch_findings(rule: Walk, limits: Limits) -> Iterator[Finding]:
    """Report branches that are never reached."""
    known = _decided(rule, limits)
    for operation in rule.operations:
        if operation.argument.__class__ is list and operation.name in _CONDITIONALS:
            yield from _unreachable(operation, known)


def _unknown(names: Names, where: Where, variants: Mapping[str, Json], whose: str) -> Finding:
    if names == _TRUTHS:
        message = f"the rule can answer true or false, and neither is one of {whose}"
        hint = f"use it as the condition of an `if`; the variants are: {few(variants)}"
        return finding("variant-unknown", where, message, hint)
    if names == _NUMBERS:
        message = f"the rule can answer a number, and none of {whose} has the name of one"
        hint = f"compare it in the condition of an `if`; the variants are: {few(variants)}"
        return finding("variant-unknown", where, message, hint)
    if names == _REFUSED:
        message = f"where this does not hold, the rule answers false, which is not one of {whose}"
        return finding("variant-unknown", where, message, 'write {"if": [condition, variant]} instead of `and`')
    message = f"the rule can answer {names[0]!r}, which is not one of {whose}"
    hint = suggest(names[0], variants) or f"the variants are: {few(variants)}"
    return finding("variant-unknown", where, message, hint)


def _branches(operands: list[Json], where: Where) -> list[Pending]:
    last = len(operands) - 1
    return [(operand, (where, index)) for index, operand in enumerate(operands) if index % 2 or index == last]


def _shares(operands: list[Json], where: Where) -> list[Pending]:
    return [
        (share[0], ((where, index), 0)) for index, share in enumerate(operands) if share.__class__ is list and share
    ]


def _any(operands: list[Json], where: Where) -> list[Pending]:
    return [(operand, (where, index)) for index, operand in enumerate(operands)]


_CHOICES: dict[str, Callable[[list[Json], Where], list[Pending]]] = {
    "if": _branches,
    "?:": _branches,
    "fractional": _shares,
    "or": _any,
    "and": lambda operands, where: _any(operands, where)[-1:],
}


def _decided(rule: Walk, limits: Limits) -> dict[tuple[int, int], bool]:
    """Return whether a constant condition holds, by the identity of its `if` and its index there.

    An `if` within a larger constant is left out: evaluating each part of a part of a constant would never end.
    """
    known = {}
    for part in rule.operations:
        outer, index = part.parent, part.position
        if not part.constant or outer is None or outer.name not in _CONDITIONALS or index is None or index % 2:
            continue
        if outer.outermost or not outer.constant:
            result = evaluate_constant(part, limits)
            if result.decided:
                known[id(outer), index] = bool(result.value)
    return known


def _unreachable(operation: Operation, known: Mapping[tuple[int, int], bool]) -> Iterator[Finding]:
    """An `if` never gets past a condition that always holds, nor into one that never does or stood there before."""
    operands, path = operation.operands, operation.path
    seen: dict[str, int] = {}
    for index in range(0, len(operands) - 1, 2):
        condition, where = operands[index], child(path, index + 1)
        holds = _holds(condition) if (truth := known.get((id(operation), index))) is None else truth
        text = json.dumps(condition, sort_keys=True)
        if holds and index + 2 < len(operands):
            message = f"what follows is never reached: the condition at {child(path, index)} always holds"
            yield finding("branch-unreachable", child(path, index + 2), message, "remove what follows")
        if holds:
            return
        if holds is False:
            yield finding("branch-unreachable", where, "this branch is never reached: its condition is false")
        elif text in seen:
            message = f"this branch is never reached: its condition is that of {child(path, seen[text])}"
            yield finding("branch-unreachable", where, message, "remove it, or change its condition")
        seen.setdefault(text, index)


def _holds(condition: Json) -> bool | None:
    """Whether data is truthy; None for an operation. An array is, if there is anything in it."""
    return None if condition.__class__ is dict and len(condition) == 1 else bool(condition)
