"""What the schema requires of an operator's operands, as far as it can be checked without an evaluation."""

from __future__ import annotations

import re
from calendar import timegm
from typing import TYPE_CHECKING

from wigwag.flags.checks.catalogue import finding
from wigwag.flags.checks.visit import DECIDING, LOOPS
from wigwag.flags.rules.coerce import describe, kind_of
from wigwag.flags.rules.operators.fractional import MAX_WEIGHT, whole_weight
from wigwag.flags.rules.operators.semver import RELATIONS, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wigwag.flags.checks.visit import Operation
    from wigwag.flags.model import Finding, Json, Where

_AT_LEAST = {"==": 2, "!=": 2, "===": 2, "!==": 2, "<": 2, "<=": 2, ">": 2, ">=": 2, "%": 2, "in": 2, "substr": 2}
_AT_LEAST |= {"if": 1, "?:": 1, "map": 2, "filter": 2, "all": 2, "some": 2, "none": 2, "reduce": 3, "missing_some": 2}
_NEED_ARRAYS = LOOPS | {"if", "?:", "and", "or"}
_VOID = "nobody gets any of these variants, and the default variant applies"
_TIMESTAMP = "$flagd.timestamp"
_FLAGD_PROPERTIES = ("$flagd.flagKey", _TIMESTAMP)
_DATE = re.compile(
    r"([12]\d{3})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
    r"(?:[T ](\d\d):(\d\d)(?::(\d\d))?(?:\.\d+)?)?(?:Z|([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)
_COMPARISONS = ("==", "!=", "===", "!==", "<", "<=", ">", ">=")
_SEPARATORS = re.compile(r"[\s,;|/]")


def operand_findings(operation: Operation) -> Iterator[Finding]:
    """Check the operands of one operation."""
    if operation.name in _NEED_ARRAYS and operation.argument.__class__ is not list:
        if not operation.constant:  # a constant is evaluated, and fails only if it is reached
            message = f"this always fails: `{operation.name}` needs an array of operands"
            yield finding("operation-fails", operation.where, message)
        return
    least = _AT_LEAST.get(operation.name, 0)
    if len(operation.operands) < least and not _computed(operation.argument):
        message = f"`{operation.name}` needs at least {least} operand{'s' if least > 1 else ''}"
        yield finding("operand-count", operation.where, message)
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
        yield finding("fractional-bucketing", (path, 0), message, 'use an expression such as {"var": "email"}')
    wrong = [
        each for index, share in enumerate(shares, len(operands) - len(shares)) for each in _share(share, (path, index))
    ]
    yield from wrong
    yield from _sum(shares, path, alone=not wrong)
    if not shares:
        yield finding("fractional-share", path, "there is no variant to choose from", "add [variant, weight] pairs")


def _share(share: Json, path: Where) -> Iterator[Finding]:
    if _computed(share):
        return
    if share.__class__ is not list or not 1 <= len(share) <= 2:
        consequence = "what follows the weight is ignored" if share and share.__class__ is list else _VOID
        yield finding("fractional-share", path, f"a share is [variant] or [variant, weight]; {consequence}")
        return
    given = share[1] if len(share) == 2 else None
    weight = whole_weight(share)
    if weight is None and not _computed(given):
        what = "a fraction" if given.__class__ is float else describe(given)
        hint = "weights are relative: multiply them all by the same number" if given.__class__ is float else ""
        yield finding("fractional-weight", (path, 1), f"a weight must be a whole number, not {what}; {_VOID}", hint)
    elif weight is not None and weight < 0:
        yield finding("fractional-weight", (path, 1), "a negative weight counts as 0")
    elif weight is not None and weight > MAX_WEIGHT:
        yield finding("fractional-weight", (path, 1), f"a weight cannot be more than {MAX_WEIGHT}; {_VOID}")


def _sum(shares: list[Json], path: Where, *, alone: bool) -> Iterator[Finding]:
    weights = [whole_weight(share) for share in shares if share.__class__ is list and share]
    total = sum(max(0, weight or 0) for weight in weights)
    if alone and total > MAX_WEIGHT:
        message = f"the weights add up to {total}, more than {MAX_WEIGHT}; {_VOID}"
        yield finding("fractional-weight", path, message, "divide them all by the same number")
    if weights and len(weights) == len(shares) and all(weight is not None and weight <= 0 for weight in weights):
        message = f"no weight is above 0; {_VOID}"
        yield finding("weights-zero", path, message, "give at least one variant a weight")


def _version(operation: Operation) -> Iterator[Finding]:
    operands, path = operation.operands, operation.where
    if len(operands) != 3:
        yield finding("operand-count", path, "`sem_ver` needs exactly 3 operands: version, operator, version")
        return
    relation = operands[1]
    hint = f"use one of {' '.join(RELATIONS)}"
    if relation.__class__ is str and relation not in RELATIONS:
        yield finding("semver-operator", (path, 1), f"unknown version operator {relation!r}", hint)
    elif relation.__class__ is not str and not _computed(relation):
        what = "null" if relation is None else describe(relation)
        yield finding("semver-operator", (path, 1), f"a version operator is text, not {what}", hint)
    for index in (0, 2):
        version = operands[index]
        if version.__class__ is str and parse(version) is None:
            hint = "write MAJOR, MAJOR.MINOR or MAJOR.MINOR.PATCH"
            yield finding("semver-version", (path, index), f"{version!r} is not a semantic version", hint)


def _text(operation: Operation) -> Iterator[Finding]:
    if len(operation.operands) != 2:
        yield finding("operand-count", operation.where, f"`{operation.name}` needs exactly 2 operands, both text")
        return
    for index, operand in enumerate(operation.operands):
        if not _computed(operand) and operand.__class__ is not str:
            message = f"`{operation.name}` compares text, not {describe(operand)}; the answer is always null"
            yield finding("operand-type", (operation.where, index), message)


def _variable(operation: Operation) -> Iterator[Finding]:
    name = operation.operands[0] if operation.operands else ""
    if name.__class__ is str and name.startswith("$flagd.") and name not in _FLAGD_PROPERTIES:
        yield finding(
            "flagd-property", operation.where, f"unknown property {name}", f"known: {', '.join(_FLAGD_PROPERTIES)}"
        )


def _comparison(operation: Operation) -> Iterator[Finding]:
    """`$flagd.timestamp` is a number: text is at best converted, and a date never is."""
    if not any(variable_name(operand) == _TIMESTAMP for operand in operation.operands):
        return
    for index, operand in enumerate(operation.operands):
        if operand.__class__ is str:
            message = f"{_TIMESTAMP} is a number of Unix seconds, and this is text"
            yield finding("timestamp-text", (operation.where, index), message, f"write {_seconds(operand)}")


def _seconds(text: str) -> str:
    """Return the number that a date or a number in quotes stands for, or an example of one."""
    if text.isascii() and text.isdigit():
        return f"{text}, without quotes"
    date = _DATE.fullmatch(text)
    if date is None:
        return "a number such as 1735689600"
    year, month, day, hour, minute, second = (int(part or 0) for part in date.groups()[:6])
    sign, hours, minutes = date.groups()[6:]
    offset = (int(hours or 0) * 60 + int(minutes or 0)) * (-60 if sign == "-" else 60)
    return str(timegm((year, month, day, hour, minute, second)) - offset)


def _membership(operation: Operation) -> Iterator[Finding]:
    """`in` looks for its first operand in its second: a list is searched, it is not what is looked for."""
    if len(operation.operands) != 2:
        return
    needle, haystack = operation.operands
    decides_alone = operation.constant and (operation.parent is None or operation.parent.name in DECIDING)
    where, hint = operation.where, "write the value first, and the list or text that is searched second"
    if needle.__class__ is list and not (haystack.__class__ is list and any(e.__class__ is list for e in haystack)):
        message = "`in` looks for its first operand in its second; a list in the first place is never part of it"
        yield finding("operands-swapped", where, message, hint)
    elif variable_name(needle) and haystack.__class__ is str and not _SEPARATORS.search(haystack):
        name = variable_name(needle)
        message = f"this asks whether {name!r} is a part of {haystack!r}, not the other way round"
        yield finding("operands-swapped", where, message, hint)
    elif decides_alone and needle.__class__ is str and haystack.__class__ is list:
        message = f"both operands are constants, so the answer is the same for everybody: {needle!r} is text"
        yield finding("operands-swapped", where, message, f'for an attribute write {{"var": "{needle}"}}')


def variable_name(operand: Json) -> str:
    """Return the name if this is `{"var": name}` or `{"var": [name, …]}`; empty otherwise."""
    name = operand.get("var") if operand.__class__ is dict and len(operand) == 1 else None
    name = name[0] if name.__class__ is list and name else name
    return name if name.__class__ is str else ""


def _computed(operand: Json) -> bool:
    return kind_of(operand) == "object"


_CHECKS: dict[str, Callable[[Operation], Iterator[Finding]]] = {
    "fractional": _fractional,
    "sem_ver": _version,
    "starts_with": _text,
    "ends_with": _text,
    "var": _variable,
    "in": _membership,
    **dict.fromkeys(_COMPARISONS, _comparison),
}
