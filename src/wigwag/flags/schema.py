"""What flagd's schema says about documents, flags and rules, beyond what makes a flag impossible to load.

flagd only logs such violations, and so these are findings, not failures. Errors are the ones that make a rule fail when
it is evaluated: an unknown operator, a `$ref` to nowhere or in a circle, a rule beyond the limits.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from wigwag.errors import DocumentError
from wigwag.flags.coerce import kind_of
from wigwag.flags.model import Finding, render
from wigwag.flags.operands import operand_findings
from wigwag.flags.operators.table import OPERATORS
from wigwag.flags.refs import REF
from wigwag.flags.visit import Ambiguous, Excess, Operation, visit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from wigwag.flags.flag import Flag, Setting
    from wigwag.flags.model import Json, Where

STATES = ("ENABLED", "DISABLED")
_PLAIN = ("boolean", "string", "number")


def rule_errors(flag: Flag) -> list[Finding]:
    """Return what will make the flag's rule fail, if it is reached."""
    return [finding for finding in rule_findings(flag) if finding.severity == "error"]


def flag_findings(flag: Flag) -> Iterator[Finding]:
    """Check one flag against the schema."""
    definition, path = flag.definition, flag.where
    if definition.state not in STATES:
        known = " or ".join(STATES)
        message = f"the state is {definition.state!r}; anything but DISABLED counts as enabled"
        yield Finding("state-unknown", render((path, "state")), "warning", message, f"say {known}")
    yield from variant_findings(flag)
    own = definition.metadata or {}
    yield from metadata_findings(own, (path, "metadata"))
    yield from rule_findings(flag)


def variant_findings(flag: Flag) -> Iterator[Finding]:
    """Check that there are variants, all of one type that a client can ask for."""
    path = (flag.where, "variants")
    if not flag.variants:
        yield Finding(
            "variants-missing", render(path), "warning", "there are no variants, so the flag has no value to give"
        )
    for name, value in flag.variants.items():
        if kind_of(value) in ("array", "null"):
            message = f"an {kind_of(value)}" if value is not None else "null"
            hint = "use a boolean, a string, a number or an object"
            yield Finding(
                "variant-type", render((path, name)), "warning", f"{message} cannot be asked for by type", hint
            )
    kinds = set(map(kind_of, flag.variants.values()))
    if len(kinds) > 1:
        message = f"variants are of several types: {', '.join(sorted(kinds))}"
        yield Finding(
            "variants-mixed", render(path), "warning", message, "clients ask for one type; the others will mismatch"
        )


def metadata_findings(metadata: Mapping[str, Json], path: Where) -> Iterator[Finding]:
    """Check that metadata values are plain, and that the two known members are text."""
    for name, value in metadata.items():
        if kind_of(value) not in _PLAIN:
            hint = "use a string, a number or a boolean"
            yield Finding(
                "metadata-value", render((path, name)), "warning", f"a metadata value cannot be {kind_of(value)}", hint
            )
        elif name in ("flagSetId", "version") and value.__class__ is not str:
            yield Finding(
                "metadata-value", render((path, name)), "warning", f"`{name}` must be a string, so it is not used"
            )


def rule_findings(flag: Flag) -> list[Finding]:
    """Check the rule of one flag."""
    if not flag.targeted:
        return []
    path = (flag.where, "targeting")
    try:
        rule = flag.rule
    except DocumentError as error:
        return [Finding("rule-undecodable", render(path), "error", str(error))]
    if rule is not None and rule.__class__ is not dict:
        message = f"the rule is a {kind_of(rule)}, not an object; it is taken for the name of a variant"
        return [
            Finding("rule-shape", render(path), "warning", message, "write the rule as an object with one operator")
        ]
    return list(checked(rule, path, flag.setting))


def checked(rule: Json, path: Where, setting: Setting) -> Iterator[Finding]:
    """Check any rule: a flag's, or an evaluator."""
    evaluators, limits = setting.evaluators, setting.options.limits
    for found in visit(rule, path, evaluators, limits):
        match found:
            case Excess():
                yield Finding("limit-rule", found.path, "error", found.message)
            case Ambiguous():
                yield from _ambiguous(found)
            case Operation(name="$ref"):
                yield from _reference(found, evaluators)
            case Operation() if found.name not in OPERATORS:
                message = f"unknown operator `{found.name}`"
                yield Finding("operator-unknown", found.path, "error", message, suggest(found.name, OPERATORS))
            case Operation():
                yield from operand_findings(found)


def evaluator_findings(setting: Setting) -> Iterator[Finding]:
    """Check the shared rules."""
    for name, rule in setting.evaluators.items():
        yield from checked(rule, ("$.$evaluators", name), setting)


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the closest known name, or none."""
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean `{close[0]}`?" if close else ""


def _ambiguous(found: Ambiguous) -> Iterator[Finding]:
    meant = [name for name in found.names if name in OPERATORS or name == REF]
    if meant:
        message = f"an object with several members is data, so `{meant[0]}` is not evaluated"
        yield Finding("operator-ambiguous", found.path, "warning", message, "give each operator an object of its own")


def _reference(found: Operation, evaluators: Mapping[str, Json]) -> Iterator[Finding]:
    name = found.argument
    if name.__class__ is not str or name not in evaluators:
        hint = suggest(str(name), evaluators) or "define it under `$evaluators`"
        yield Finding("ref-unknown", found.path, "error", f"`$ref` to an evaluator that does not exist: {name!r}", hint)
    elif name in found.names:
        circle = " → ".join((*found.names[found.names.index(name) :], name))
        yield Finding("ref-circular", found.path, "error", f"`$ref` in a circle: {circle}", "break the circle")
