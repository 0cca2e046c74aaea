"""What the schema asks of an operator's operands, where they stand in the rule and need no evaluation to be judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wigwag.flags.coerce import describe, kind_of
from wigwag.flags.model import Finding, render
from wigwag.flags.operators.fractional import MAX_WEIGHT
from wigwag.flags.operators.semver import RELATIONS, parse
from wigwag.flags.visit import LOOPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wigwag.flags.model import Json, Where
    from wigwag.flags.visit import Operation

_AT_LEAST = {"==": 2, "!=": 2, "===": 2, "!==": 2, "<": 2, "<=": 2, ">": 2, ">=": 2, "%": 2, "in": 2, "substr": 2}
_AT_LEAST |= {"if": 1, "?:": 1, "map": 2, "filter": 2, "all": 2, "some": 2, "none": 2, "reduce": 3, "missing_some": 2}
_NEED_ARRAYS = LOOPS | {"if", "?:", "and", "or"}
_FLAGD_PROPERTIES = ("$flagd.flagKey", "$flagd.timestamp")


def operand_findings(operation: Operation) -> Iterator[Finding]:
    """Check the operands of one operation."""
    if operation.name in _NEED_ARRAYS and operation.argument.__class__ is not list:
        if not operation.constant:  # a constant is evaluated, and fails only if it is reached
            message = f"this always fails: `{operation.name}` needs an array of operands"
            yield Finding("operation-fails", operation.path, "error", message)
        return
    least = _AT_LEAST.get(operation.name, 0)
    if len(operation.operands) < least and not _computed(operation.argument):
        message = f"`{operation.name}` needs at least {least} operand{'s' if least > 1 else ''}"
        yield _finding("operand-count", operation.where, message)
    check = _CHECKS.get(operation.name)
    if check is not None:
        yield from check(operation)


def _fractional(operation: Operation) -> Iterator[Finding]:
    operands, path = operation.operands, operation.where
    if operation.argument.__class__ is not list:
        return
    first = operands[0] if operands else None
    shares = operands[1:] if operands and first.__class__ is not list else operands
    if first is not None and first.__class__ not in (list, dict):
        message = f"the bucketing value is {describe(first)} that never changes, so everybody gets the same variant"
        yield _finding("fractional-bucketing", (path, 0), message, 'use an expression such as {"var": "email"}')
    wrong = [
        finding
        for index, share in enumerate(shares, len(operands) - len(shares))
        for finding in _share(share, (path, index))
    ]
    yield from wrong or _sum(shares, path)
    if not shares:
        yield _finding("fractional-share", path, "there is no variant to choose from", "add [variant, weight] pairs")


def _share(share: Json, path: Where) -> Iterator[Finding]:
    if _computed(share):
        return
    if share.__class__ is not list or not 1 <= len(share) <= 2:
        yield _finding("fractional-share", path, "a share is [variant] or [variant, weight]")
        return
    given = share[1] if len(share) == 2 else None
    weight = fixed_weight(share)
    if weight is None and not _computed(given):
        what = "a fraction" if given.__class__ is float else describe(given)
        yield _finding("fractional-weight", (path, 1), f"a weight must be a whole number, not {what}")
    elif weight is not None and weight < 0:
        yield _finding("fractional-weight", (path, 1), "a negative weight counts as 0")
    elif weight is not None and weight > MAX_WEIGHT:
        yield _finding("fractional-weight", (path, 1), f"a weight cannot be more than {MAX_WEIGHT}")


def _sum(shares: list[Json], path: Where) -> Iterator[Finding]:
    total = sum(max(0, fixed_weight(share) or 0) for share in shares if share.__class__ is list)
    if total > MAX_WEIGHT:
        message = f"the weights add up to {total}, more than {MAX_WEIGHT}, so nobody gets any of the variants"
        yield _finding("fractional-weight", path, message, "divide them all by the same number")


def fixed_weight(share: list[Json]) -> int | None:
    """Return the weight of a share if it is a whole number; left out or null, it is 1."""
    weight: Any = share[1] if len(share) > 1 else None
    if weight is None:
        return 1
    if weight.__class__ is float and weight.is_integer():
        return int(weight)
    return weight if weight.__class__ is int else None


def _version(operation: Operation) -> Iterator[Finding]:
    operands, path = operation.operands, operation.where
    if len(operands) != 3:
        yield _finding("operand-count", path, "`sem_ver` needs exactly 3 operands: version, operator, version")
        return
    relation = operands[1]
    hint = f"use one of {' '.join(RELATIONS)}"
    if relation.__class__ is str and relation not in RELATIONS:
        yield _finding("semver-operator", (path, 1), f"unknown version operator {relation!r}", hint)
    elif relation.__class__ is not str and not _computed(relation):
        what = "null" if relation is None else describe(relation)
        yield _finding("semver-operator", (path, 1), f"a version operator is text, not {what}", hint)
    for index in (0, 2):
        version = operands[index]
        if version.__class__ is str and parse(version) is None:
            hint = "write MAJOR, MAJOR.MINOR or MAJOR.MINOR.PATCH"
            yield _finding("semver-version", (path, index), f"{version!r} is not a semantic version", hint)


def _text(operation: Operation) -> Iterator[Finding]:
    if len(operation.operands) != 2:
        yield _finding("operand-count", operation.where, f"`{operation.name}` needs exactly 2 operands, both text")
        return
    for index, operand in enumerate(operation.operands):
        if not _computed(operand) and operand.__class__ is not str:
            message = f"`{operation.name}` compares text, not {describe(operand)}; the answer is always null"
            yield _finding("operand-type", (operation.where, index), message)


def _variable(operation: Operation) -> Iterator[Finding]:
    name = operation.operands[0] if operation.operands else ""
    if name.__class__ is str and name.startswith("$flagd.") and name not in _FLAGD_PROPERTIES:
        yield _finding(
            "flagd-property", operation.where, f"unknown property {name}", f"known: {', '.join(_FLAGD_PROPERTIES)}"
        )


def _computed(operand: Json) -> bool:
    return kind_of(operand) == "object"


def _finding(code: str, path: Where, message: str, hint: str = "") -> Finding:
    return Finding(code, render(path), "warning", message, hint)


_CHECKS: dict[str, Callable[[Operation], Iterator[Finding]]] = {
    "fractional": _fractional,
    "sem_ver": _version,
    "starts_with": _text,
    "ends_with": _text,
    "var": _variable,
}
