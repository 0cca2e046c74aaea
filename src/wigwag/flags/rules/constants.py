"""What the constant parts of a rule come to: evaluated with the real operators, so that nothing is judged twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from wigwag.errors import RuleError
from wigwag.flags.rules.compile import Compiler

if TYPE_CHECKING:
    from wigwag.flags.checks.visit import Operation
    from wigwag.flags.model import Json, Limits

_STEPS = 10_000


class ConstantResult(NamedTuple):
    """What a constant comes to: a value, an error, or neither where finding out would take too long."""

    decided: bool
    value: Json = None
    error: str = ""


def outcome(operation: Operation, limits: Limits) -> ConstantResult:
    """Evaluate a constant operation."""
    limits = replace(limits, steps=min(limits.steps, _STEPS))
    program = Compiler("", limits=limits).program({operation.name: operation.argument})
    run = program.run(0, lambda: 0.0)
    try:
        return ConstantResult(True, program.decide({}, run))
    except RuleError as error:
        return ConstantResult(False, error="" if run.refused else str(error))
    except RecursionError:
        return ConstantResult(False)
