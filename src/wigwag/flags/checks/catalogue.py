"""Every kind of finding: its severity, what it means, and what the agent does about it.

`lint`, `check-config`, the agent and `load(strict=True)` take severities from here, so they agree on what an error is.
The table in docs/reference/findings.md is written by `table()`; a test compares them.

An error makes the document, the flag or the rule fail for some contexts. So the agent never lets an error replace a
definition that works:

    REJECT       nothing of the document can be used: what the source said last stays in force
    QUARANTINE   the flag cannot exist like this: its last good definition stays in force; without one, there is no flag
    HOLD         the rule fails for those who reach the fault: the last good definition stays in force; without one,
                 the flag is served as it is, as flagd does
    REPORT       the flag is served as it is
    LINT_ONLY    the agent does not check it: that takes a view of the whole document, and no evaluation fails
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from wigwag.flags.model import Finding, Severity, render

if TYPE_CHECKING:
    from wigwag.flags.model import Where


class Effect(Enum):
    """What the agent does with a flag or document that has a finding; the value is the text for the docs."""

    REJECT = "rejects the document; the last good one stays in force"
    QUARANTINE = "quarantines the flag: last good definition, or no flag"
    HOLD_PARSE_ERROR = "keeps the last good definition; without one, `PARSE_ERROR` where the rule gets there"
    HOLD_GENERAL = "keeps the last good definition; without one, `GENERAL` where the rule gets there"
    HOLD_OPEN = "keeps the last good definition; without one, serves the flag as flagd does"
    REPORT = "serves the flag; logs it and lists it in `/debug/sources`"
    LINT_ONLY = "does not look for it"


class FindingKind(NamedTuple):
    """The severity, meaning and effect of one kind of finding."""

    severity: Severity
    meaning: str
    effect: Effect


def _error(meaning: str, effect: Effect = Effect.HOLD_PARSE_ERROR) -> FindingKind:
    return FindingKind("error", meaning, effect)


def _warning(meaning: str, effect: Effect = Effect.REPORT) -> FindingKind:
    return FindingKind("warning", meaning, effect)


CATALOGUE: dict[str, FindingKind] = {
    "document-rejected": _error("the document cannot be read at all", Effect.REJECT),
    "flag-shape": _error("a member of a flag has the wrong type", Effect.QUARANTINE),
    "flag-key-missing": _error("a flag has no key, or an empty one", Effect.QUARANTINE),
    "default-variant-unknown": _error("the default variant is not one of the variants", Effect.QUARANTINE),
    "limit": _error("variants or metadata go beyond a limit", Effect.QUARANTINE),
    "limit-rule": _error("a rule goes beyond a limit"),
    "rule-undecodable": _error("a rule holds a number or text that JSON does not have"),
    "operator-unknown": _error("no such operator; with a suggestion"),
    "operator-ambiguous": _error(
        "an object with several members stands where a condition or an answer is expected; it is data, so a condition "
        "is always true, and an operator in it is not evaluated",
        Effect.HOLD_OPEN,
    ),
    "ref-unknown": _error("`$ref` to an evaluator that does not exist; with a suggestion"),
    "ref-circular": _error("evaluators refer to each other in a circle"),
    "operation-fails": _error(
        "an operation fails for everybody: a constant that cannot be computed, operands that are no array"
    ),
    "variant-unknown": _error(
        "a rule can answer something that is not a variant; with a suggestion; at most 20 for a flag",
        Effect.HOLD_GENERAL,
    ),
    "branch-unreachable": _warning("a branch of an `if` is never reached", Effect.LINT_ONLY),
    "weights-zero": _warning("no weight of a `fractional` is above 0, so nobody gets any of its variants"),
    "attribute-type": _warning("one attribute is compared with values of two types", Effect.LINT_ONLY),
    "evaluator-unused": _warning("no flag refers to an evaluator", Effect.LINT_ONLY),
    "flag-shadowed": _warning("`lint --merge`: a file further to the right hides a flag", Effect.LINT_ONLY),
    "text-mended": _warning("half a surrogate pair in the text was replaced by U+FFFD"),
    "member-unknown": _warning("a document or a flag has no member of that name; with a suggestion", Effect.LINT_ONLY),
    "duplicate-key": _warning("a member appears twice in one JSON object; the last counts"),
    "duplicate-flag": _warning("a flag appears twice in an array; the last counts"),
    "state-unknown": _warning("the state is neither ENABLED nor DISABLED, so the flag is enabled"),
    "variants-missing": _warning("there are no variants"),
    "variants-mixed": _warning("variants are of several types"),
    "variant-type": _warning("a variant is an array or null, which no typed request can get"),
    "metadata-value": _warning("a metadata value is not plain, or `flagSetId` / `version` is not text"),
    "critical-mark": _warning("`critical` in metadata is neither true nor false, so it marks nothing"),
    "critical-many": _warning(
        "more than ten flags are critical, and more than half of all; only a few changes go first", Effect.LINT_ONLY
    ),
    "flags-array": _warning("an array of flags in a document that names the schema without arrays"),
    "rule-shape": _warning("a rule is not an object, so it is taken for a variant's name"),
    "operator-data": _warning("an object with several members is an operand; an operator in it is not evaluated"),
    "operand-count": _warning("an operator has too few or too many operands"),
    "operand-type": _warning("a literal operand can never be right"),
    "operands-swapped": _warning("the operands of `in` look swapped, or one of them should be a `var`"),
    "timestamp-text": _warning("`$flagd.timestamp`, a number of Unix seconds, is compared with text"),
    "fractional-bucketing": _warning("the bucketing value is a constant"),
    "fractional-share": _warning("a share is not `[variant]` or `[variant, weight]`, so nobody gets any variant"),
    "fractional-weight": _warning("a weight is negative, not whole, or too large, or their sum is"),
    "semver-operator": _warning("not a version operator"),
    "semver-version": _warning("not a semantic version"),
    "flagd-property": _warning("`$flagd` has no such property"),
}


def finding(code: str, where: Where, message: str, hint: str = "", source: str = "") -> Finding:
    """Make a finding; its severity is that of its code.

    >>> print(finding("semver-version", ("$.flags", "x"), "'one' is not a semantic version"))
    $.flags.x: warning: 'one' is not a semantic version (semver-version)
    """
    return Finding(code, render(where), CATALOGUE[code].severity, message, hint, source)


def table() -> str:
    """Return the catalogue as a Markdown table."""
    rows = ["| code | severity | what it means | `lint`, `check-config` | the agent |", "|---|---|---|---|---|"]
    for code, (severity, meaning, effect) in CATALOGUE.items():
        exits = "exit with 1" if severity == "error" else "report it"
        rows.append(f"| `{code}` | {severity} | {meaning} | {exits} | {effect.value} |")
    return "\n".join(rows) + "\n"
