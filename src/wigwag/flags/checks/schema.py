"""What flagd's schema says about documents, flags and rules, beyond what makes a flag impossible to load.

flagd only logs such violations, and so these are findings, not failures. Errors are the ones that make a rule fail when
it is evaluated: an unknown operator, a `$ref` to nowhere or in a circle, a constant that cannot be computed, a rule
beyond the limits, an answer that is not a variant; and a condition that is data, because it is always true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.errors import DocumentError
from wigwag.flags.checks.answers import answer_findings
from wigwag.flags.checks.catalogue import finding
from wigwag.flags.checks.operands import operand_findings
from wigwag.flags.checks.visit import (
    Ambiguous,
    Operation,
    evaluate_constant,
    evaluators_of,
    once_per_document,
    walk,
)
from wigwag.flags.critical import CRITICAL
from wigwag.flags.model import Finding
from wigwag.flags.rules.coerce import describe, kind_of
from wigwag.flags.rules.operators.table import OPERATORS
from wigwag.flags.rules.refs import REF
from wigwag.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wigwag.flags.checks.visit import Walk
    from wigwag.flags.flag import DocumentDefaults, Flag
    from wigwag.flags.model import Json, Limits, Where

STATES = ("ENABLED", "DISABLED")
_PLAIN = ("boolean", "string", "number")


def rule_errors(flag: Flag) -> list[Finding]:
    """Return what will make the flag's rule fail, if it is reached: in the rule, and in those it refers to."""
    findings = rule_findings(flag)
    rule = walked(flag)
    if rule is not None:
        shared = _shared_findings(flag.setting)
        for name in evaluators_of(flag.setting).reached(rule.references):
            findings += shared[name]
    return [each for each in findings if each.severity == "error"]


def flag_findings(flag: Flag) -> Iterator[Finding]:
    """Check one flag against the schema."""
    definition, path = flag.definition, flag.where
    if definition.state not in STATES:
        known = " or ".join(STATES)
        given = "there is no state" if definition.state is None else f"the state is {definition.state!r}"
        message = f"{given}; anything but DISABLED counts as enabled"
        yield finding("state-unknown", (path, "state"), message, f"say {known}")
    yield from variant_findings(flag)
    own = definition.metadata or {}
    yield from metadata_findings(own, (path, "metadata"))
    yield from rule_findings(flag)


def variant_findings(flag: Flag) -> Iterator[Finding]:
    """Check that there are variants, all of one type that a client can ask for."""
    path = (flag.where, "variants")
    if not flag.variants:
        yield finding("variants-missing", path, "there are no variants, so the flag has no value to give")
    for name, value in flag.variants.items():
        if kind_of(value) in ("array", "null"):
            message = f"{named(value)} cannot be asked for by type"
            hint = "use a boolean, a string, a number or an object"
            yield finding("variant-type", (path, name), message, hint)
    kinds = set(map(kind_of, flag.variants.values()))
    if len(kinds) > 1:
        message = f"variants are of several types: {', '.join(sorted(kinds))}"
        yield finding("variants-mixed", path, message, "clients ask for one type; the others will mismatch")


def metadata_findings(metadata: Mapping[str, Json], path: Where) -> Iterator[Finding]:
    """Check that metadata values are plain, and that the known members have their types."""
    for name, value in metadata.items():
        if kind_of(value) not in _PLAIN:
            hint = "use a string, a number or a boolean"
            yield finding("metadata-value", (path, name), f"a metadata value cannot be {named(value)}", hint)
        elif name in ("flagSetId", "version") and value.__class__ is not str:
            yield finding("metadata-value", (path, name), f"`{name}` must be a string, so it is not used")
        elif name == CRITICAL and value.__class__ is not bool:
            message = f"`{name}` is {named(value)}, so it marks nothing as critical"
            yield finding("critical-mark", (path, name), message, "write true, without quotes")


def rule_findings(flag: Flag) -> list[Finding]:
    """Check the rule of one flag."""
    if not flag.targeted:
        return []
    path = (flag.where, "targeting")
    try:
        rule = flag.rule
    except DocumentError as error:
        return [finding("rule-undecodable", path, str(error))]
    findings = []
    if rule is not None and rule.__class__ is not dict:
        message = f"the rule is {named(rule)}, not an object; it is taken for the name of a variant"
        hint = "write the rule as an object with one operator"
        findings = [finding("rule-shape", path, message, hint)]
    operations = walk(rule, path, flag.setting.options.limits)
    findings += checked(operations, flag.setting)
    excess = evaluators_of(flag.setting).excess(operations)
    findings += [finding("limit-rule", path, excess)] if excess else []
    return findings if operations.excess else [*findings, *answer_findings(flag)]


def walked(flag: Flag) -> Walk | None:
    """Return the operations of a flag's rule, if there is one that can be decoded."""
    try:
        rule = flag.rule if flag.targeted else None
    except DocumentError:
        return None
    return None if rule is None else walk(rule, (flag.where, "targeting"), flag.setting.options.limits)


def checked(rule: Walk, setting: DocumentDefaults) -> Iterator[Finding]:
    """Check the operations of any rule: a flag's, or an evaluator."""
    for part in rule.parts:
        if isinstance(part, Ambiguous):
            yield from _ambiguous(part)
        elif part.name == REF:
            yield from _reference(part, setting.evaluators)
        elif part.name not in OPERATORS:
            message = f"unknown operator `{part.name}`"
            yield finding("operator-unknown", part.path, message, suggest(part.name, OPERATORS))
        else:
            yield from operand_findings(part)
            if part.outermost and not rule.excess:
                yield from _failing(part, setting.options.limits)


def evaluator_findings(setting: DocumentDefaults) -> Iterator[Finding]:
    """Check the shared rules."""
    for findings in _shared_findings(setting).values():
        yield from findings


@once_per_document
def _shared_findings(setting: DocumentDefaults) -> dict[str, list[Finding]]:
    """Return the findings of each shared rule by its name: every flag that uses it has the same."""
    evaluators = evaluators_of(setting)
    findings = {name: list(checked(rule, setting)) for name, rule in evaluators.walks.items()}
    for name, rule in evaluators.walks.items():
        if rule.excess:
            findings[name].append(finding("limit-rule", rule.where, rule.excess))
        for circle in evaluators.circles.get(name, ()):
            message = f"`$ref` in a circle: {circle}"
            findings[name].append(finding("ref-circular", circle.reference.path, message, "break the circle"))
    return findings


def named(value: Json) -> str:
    """Name the type of a value in a message."""
    return "null" if value is None else describe(value)


def _failing(constant: Operation, limits: Limits) -> Iterator[Finding]:
    error = evaluate_constant(constant, limits).error
    if error:
        yield finding("operation-fails", constant.path, f"this always fails: {error}")


def _ambiguous(ambiguous: Ambiguous) -> Iterator[Finding]:
    meant = [name for name in ambiguous.names if name in OPERATORS or name == REF]
    if meant:
        message = f"an object with several members is data, so `{meant[0]}` is not evaluated"
        hint = "give each operator an object of its own"
        if ambiguous.decides:
            message += ", and a condition like this holds for everybody"
            hint += ', and combine conditions with {"and": [...]}'
            yield finding("operator-ambiguous", ambiguous.where, message, hint)
        else:
            yield finding("operator-data", ambiguous.where, message, hint)


def _reference(reference: Operation, evaluators: Mapping[str, Json]) -> Iterator[Finding]:
    name = reference.argument
    if name.__class__ is not str:
        yield finding("ref-unknown", reference.path, f"`$ref` needs the name of an evaluator, not {named(name)}")
    elif name not in evaluators:
        hint = suggest(name, evaluators) or "define it under `$evaluators`"
        yield finding("ref-unknown", reference.path, f"`$ref` to an evaluator that does not exist: {name!r}", hint)
