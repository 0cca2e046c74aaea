"""From a rule's answer to a resolution: the outcome table of flagd.

For each flag and requested type there is a table of prepared resolutions, one per variant, so that an evaluation is a
rule call and two dictionary look-ups. What depends on the caller's default cannot be prepared and is made on the spot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import trunc
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct

from wigwag.errors import RuleError, UsageError
from wigwag.flags.flag import Flag, Table
from wigwag.flags.model import (
    DEFAULT,
    DISABLED,
    ERROR,
    FLAG_NOT_FOUND,
    GENERAL,
    PARSE_ERROR,
    STATIC,
    TARGETING_MATCH,
    TYPE_MISMATCH,
    FlagType,
    Resolution,
)
from wigwag.flags.rules.coerce import describe, json_notation
from wigwag.flags.rules.cost import deep_cost
from wigwag.flags.rules.scope import LargeOperandError, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wigwag.flags.model import Json, Numbers
    from wigwag.flags.rules.compile import Program

TYPES = get_args(FlagType)
_NO_CONTEXT: dict[str, Json] = {}
_MISMATCH = object()
_LONGEST_ANSWER = 1_000
"""Steps to write an answer that is not text as JSON: a thousand short values, or 64,000 characters."""
_LONGEST_QUOTE = 200
"""Characters of an answer in a message."""


class Budget(Struct):
    """Steps that the evaluations of one request share. Each of them may still take no more than `Limits.steps`.

    An evaluation that is refused uses up all that it could have had.
    """

    steps: int
    refused: set[str] = set()
    """The flags whose evaluation was refused because the others had used the budget up."""


def tabulate(flag: Flag, type: str | None) -> Table:
    """Prepare the answers, and leave them with the flag for the next time."""
    numbers = flag.setting.options.numbers
    typed = {name: typed_value(value, type, numbers) for name, value in flag.variants.items()}

    def prepare(variant: str | None, reason: str) -> Resolution | None:
        value = typed.get(variant, _MISMATCH) if variant is not None else _MISMATCH
        return None if value is _MISMATCH else Resolution(value, variant, reason, None, flag.metadata)

    targeted = flag.targeted and not flag.disabled
    settled = None if targeted or flag.disabled else prepare(flag.default_variant, STATIC)
    matched = {name: prepare(name, TARGETING_MATCH) for name in typed} if targeted else {}
    table = Table(
        flag.key,
        type,
        flag.metadata,
        flag.variants,
        flag.default_variant,
        flag.disabled,
        settled,
        flag.program if targeted else None,
        {name: resolution for name, resolution in matched.items() if resolution},
        prepare(flag.default_variant, DEFAULT) if targeted else None,
    )
    flag.tables = {**flag.tables, type: table}
    return table


def conclude(
    table: Table,
    default: Json,
    context: Mapping[str, Json] | None,
    now: float | None,
    clock: Callable[[], float],
    budget: Budget | None = None,
) -> Resolution:
    """Answer where `settled` does not: by the rule, or with the caller's default."""
    program = table.program
    if program is None:
        return _without_rule(table, default)
    if context.__class__ is not dict:
        context = _mapping(context)
    try:
        if budget is not None:
            answer = _within(budget, table.key, program, context, now, clock)
        else:
            run = None
            if program.needs_run:
                seconds = (clock() if now is None else now) if program.reads_time else 0
                run = Run(trunc(seconds), program.steps)  # as `Program.run` does, without a call; `int` takes longer
            try:
                answer = program.decide(context, run)
            except LargeOperandError:
                answer = program.decide(context, program.run(now, clock))
        if answer.__class__ is not str and answer is not None:
            answer = variant_name(answer)
    except RuleError as error:
        return _rule_failed(table, default, error)
    prepared = table.default if answer is None else table.matched.get(answer)
    return prepared if prepared is not None else _unprepared(table, answer, default)


def conclude_all(
    tables: Iterable[Table], context: Mapping[str, Json] | None, clock: Callable[[], float], budget: Budget
) -> list[Resolution]:
    """Answer for many flags as one request: they share the budget, one `Run`, and the time that rules see.

    The loop repeats what `conclude` does: without two calls and a `Run` per flag, a flag takes half the time. Most
    rules take no steps, so the budget is looked at only after one that did.
    """
    if context.__class__ is not dict:
        context = _mapping(context)
    resolutions: list[Resolution] = []
    run, most, allowance, timed = Run(0, 0), 0, 0, False
    for table in tables:
        program = table.program
        if program is None:
            resolutions.append(table.settled or _without_rule(table, None))
            continue
        if program.reads_time and not timed:
            run.now, timed = trunc(clock()), True
        if program.steps != most:
            most = program.steps
            allowance = run.steps = min(most, budget.steps)
        try:
            answer = program.decide(context, run)
            if answer.__class__ is not str and answer is not None:
                answer = variant_name(answer)
            prepared = table.default if answer is None else table.matched.get(answer)
            resolutions.append(prepared if prepared is not None else _unprepared(table, answer, None))
        except RuleError as error:
            resolutions.append(_rule_failed(table, None, error))
            if run.refused and allowance < most:
                budget.refused.add(table.key)
            run.refused = False
        if run.steps != allowance:
            budget.steps -= allowance - run.steps
            allowance = run.steps = min(most, budget.steps)
    return resolutions


def _rule_failed(table: Table, default: Json, error: RuleError) -> Resolution:
    return failed(default, PARSE_ERROR, f"the rule of {table.key!r} failed: {error}", table.metadata)


def _within(
    budget: Budget, key: str, program: Program, context: Any, now: float | None, clock: Callable[[], float]
) -> Json:
    """Evaluate a rule as one of many that share a budget."""
    most, left = program.steps, budget.steps
    allowance = most if most < left else left  # noqa: FURB136 - `min` takes three times as long
    run = Run(trunc(clock() if now is None else now) if program.reads_time else 0, allowance)
    try:
        return program.decide(context, run)
    finally:
        budget.steps -= allowance - run.steps
        if run.refused and allowance < most:
            budget.refused.add(key)


def _mapping(context: Any) -> Mapping[str, Json]:
    if context is None:
        return _NO_CONTEXT
    if not isinstance(context, Mapping):
        raise UsageError(f"the context must be a mapping of attributes, not {type(context).__name__}")
    return context


def not_found(key: str, default: Json, metadata: dict[str, Json]) -> Resolution:
    """Answer for a flag that does not exist."""
    return failed(default, FLAG_NOT_FOUND, f"flag {key!r} does not exist", metadata)


def failed(default: Json, code: str, message: str, metadata: dict[str, Json]) -> Resolution:
    """Make the resolution of an error: the caller's default, and what went wrong."""
    return Resolution(default, None, ERROR, code, metadata, message)


def variant_name(answer: Json) -> str:
    """Return the variant that a rule's answer names: its JSON text, without quotes."""
    kind = answer.__class__
    if kind is str:
        return answer  # type: ignore[no-any-return]
    if kind is bool:
        return "true" if answer else "false"
    if kind in (int, float):
        return json_notation(answer)
    if deep_cost(answer, _LONGEST_ANSWER) > _LONGEST_ANSWER:
        raise RuleError(f"{describe(answer)} of that size cannot be the name of a variant")
    try:
        return json.dumps(answer, separators=(",", ":"), sort_keys=True, allow_nan=False, default=str).replace('"', "")
    except (ValueError, RecursionError) as error:
        raise RuleError("the answer cannot be written as JSON") from error


def typed_value(value: Json, type: str | None, numbers: Numbers) -> Json:
    """Return a variant's value as the requested type, or `_MISMATCH`."""
    kind = value.__class__
    if type is None:
        return _MISMATCH if value is None else value
    if type == "integer":
        return _integer(value, numbers)
    if type == "float":
        return _float(value)
    wanted = {"boolean": bool, "string": str, "object": dict}[type]
    return value if kind is wanted else _MISMATCH


def _integer(value: Json, numbers: Numbers) -> Json:
    if value.__class__ is int:
        return value
    if value.__class__ is float and (numbers == "truncate" or value.is_integer()):
        return int(value)
    return _MISMATCH


def _float(value: Json) -> Json:
    if value.__class__ not in (int, float):
        return _MISMATCH
    try:
        return float(value)
    except OverflowError:
        return value


def _without_rule(table: Table, default: Json) -> Resolution:
    if table.disabled:
        return Resolution(default, None, DISABLED, None, table.metadata)
    return _unprepared(table, table.default_variant, default)


def _unprepared(table: Table, variant: str | None, default: Json) -> Resolution:
    """Answer when no prepared resolution fits: no default variant, an unknown one, or a value of another type."""
    name = variant if variant is not None else table.default_variant
    if name is None:
        return Resolution(default, None, DEFAULT, None, table.metadata)
    if name not in table.variants:
        quoted = name if len(name) <= _LONGEST_QUOTE else f"{name[:_LONGEST_QUOTE]}…"
        message = f"the rule of {table.key!r} answered {quoted!r}, which is not one of its variants"
        return failed(default, GENERAL, message, table.metadata)
    message = f"variant {name!r} of {table.key!r} is not of type {table.type or 'any'}"
    return failed(default, TYPE_MISMATCH, message, table.metadata)
