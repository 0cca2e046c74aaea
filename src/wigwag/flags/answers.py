"""What a rule can answer, read off its text: branches of `if`, shares of `fractional`, and nothing cleverer.

From that: answers that are no variant, branches that are never reached, shares that add up to nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from wigwag.flags.evaluate import variant_name
from wigwag.flags.model import Finding, child
from wigwag.flags.schema import suggest
from wigwag.flags.visit import Operation, visit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.flags.flag import Flag
    from wigwag.flags.model import Json

_DEEPEST = 100


class Answer(NamedTuple):
    """A constant that a rule can answer, and where it stands."""

    path: str
    value: Json


def answer_findings(flag: Flag) -> Iterator[Finding]:
    """Check what the flag's rule can answer."""
    if not flag.targeted or flag.rule.__class__ is not dict:
        return
    path, setting = child(flag.path, "targeting"), flag.setting
    for answer in answers(flag.rule, path, flag, 0):
        name = None if answer.value is None else variant_name(answer.value)
        if name is not None and name not in flag.variants:
            known = ", ".join(flag.variants) or "none"
            hint = suggest(name, flag.variants) or f"the variants are: {known}"
            message = f"the rule can answer {name!r}, which is not one of the variants"
            yield Finding("variant-unknown", answer.path, "error", message, hint)
    for found in visit(flag.rule, path, setting.evaluators, setting.options.limits):
        if isinstance(found, Operation) and found.argument.__class__ is list:
            check = _CHECKS.get(found.name)
            yield from check(found) if check else ()


def answers(rule: Json, path: str, flag: Flag, depth: int) -> Iterator[Answer]:
    """Return the constants a rule can answer with."""
    if rule.__class__ in (str, bool, int, float) or rule is None:
        yield Answer(path, rule)
        return
    if rule.__class__ is not dict or len(rule) != 1 or depth > _DEEPEST:
        return
    ((name, operands),) = rule.items()
    evaluators = flag.setting.evaluators
    if name == "$ref" and operands.__class__ is str and operands in evaluators:
        yield from answers(evaluators[operands], child("$.$evaluators", operands), flag, depth + 1)
    elif operands.__class__ is list and name in ("if", "?:", "fractional"):
        chosen = _shares(operands) if name == "fractional" else _branches(operands)
        for index, inner in chosen:
            where = child(child(path, name), index)
            yield from answers(inner, child(where, 0) if name == "fractional" else where, flag, depth + 1)


def _branches(operands: list[Json]) -> Iterator[tuple[int, Json]]:
    for index, operand in enumerate(operands):
        if index % 2 or index == len(operands) - 1:
            yield index, operand


def _shares(operands: list[Json]) -> Iterator[tuple[int, Json]]:
    for index, operand in enumerate(operands):
        if operand.__class__ is list and operand:
            yield index, operand[0]


def _unreachable(found: Operation) -> Iterator[Finding]:
    """An `if` never gets past a condition that always holds, nor into one that never does or stood there before."""
    operands: list[Json] = found.argument
    seen: dict[str, int] = {}
    for index in range(0, len(operands) - 1, 2):
        condition, where = operands[index], child(found.path, index + 1)
        text = json.dumps(condition, sort_keys=True)
        if text in seen:
            message = f"this branch is never reached: its condition is that of {child(found.path, seen[text])}"
            yield Finding("branch-unreachable", where, "warning", message, "remove it, or change its condition")
        seen[text] = index
        if _is_constant(condition):
            if not condition:
                yield Finding(
                    "branch-unreachable", where, "warning", "this branch is never reached: its condition is false"
                )
            elif index + 2 < len(operands):
                message = f"what follows is never reached: the condition at {child(found.path, index)} always holds"
                yield Finding(
                    "branch-unreachable", child(found.path, index + 2), "warning", message, "remove what follows"
                )
                return


def _is_constant(condition: Json) -> bool:
    return condition.__class__ is not dict and condition.__class__ is not list


def _nothing_to_share(found: Operation) -> Iterator[Finding]:
    weights = [share[1] if len(share) > 1 else 1 for share in found.argument if share.__class__ is list and share]
    if weights and all(weight.__class__ in (int, float) and weight <= 0 for weight in weights):
        message = "the weights add up to 0, so nobody gets any of the variants"
        yield Finding("weights-zero", found.path, "warning", message, "give at least one variant a weight")


_CHECKS = {"if": _unreachable, "?:": _unreachable, "fractional": _nothing_to_share}
