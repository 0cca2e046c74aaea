"""Every operator of flagd, standard and custom, by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.flags.rules.operators import (
    arithmetic,
    arrays,
    compare,
    fractional,
    logic,
    membership,
    semver,
    text,
    variables,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.flags.model import Json, Limits
    from wigwag.flags.rules.scope import Fn
    from wigwag.flags.rules.site import RuleSite

BUILDERS: dict[str, Callable[[RuleSite, Json], Fn]] = {
    "if": logic.conditional,
    "?:": logic.conditional,
    "and": logic.conjunction,
    "or": logic.disjunction,
    "var": variables.read,
    "missing": variables.missing,
    "missing_some": variables.missing_some,
    "map": arrays.transform,
    "filter": arrays.keep,
    "reduce": arrays.reduce,
    "all": arrays.every,
    "some": arrays.some,
    "none": arrays.none,
    "fractional": fractional.split,
}
"""Operators that decide for themselves what to evaluate, or that look at the data."""

_FUNCTIONS: dict[str, Callable[[Json], Json]] = {
    "!": logic.negation,
    "!!": logic.affirmation,
    "==": compare.equal,
    "!=": compare.different,
    "===": compare.identical_or_false,
    "!==": compare.distinct,
    "<": compare.below,
    "<=": compare.at_most,
    ">": compare.above,
    ">=": compare.at_least,
    "+": arithmetic.add,
    "-": arithmetic.subtract,
    "*": arithmetic.multiply,
    "/": arithmetic.divide,
    "%": arithmetic.modulo,
    "abs": arithmetic.absolute,
    "max": arithmetic.largest,
    "min": arithmetic.smallest,
    "in": membership.contained,
    "contains_all": membership.contains_all,
    "contains_any": membership.contains_any,
    "contains_none": membership.contains_none,
    "substr": text.substring,
    "starts_with": text.starts_with,
    "ends_with": text.ends_with,
    "sem_ver": semver.compare,
    "set": variables.put,
    "merge": membership.merge,
}

OPERATORS = frozenset((*BUILDERS, *_FUNCTIONS, "cat"))


def functions(limits: Limits) -> dict[str, Callable[[Json], Json]]:
    """Return the operators that are functions of their evaluated operands."""
    return {**_FUNCTIONS, "cat": text.concatenate(limits.string_length)}
