"""What looks wrong in documents that load: beyond the schema, and across flags and sources.

schema, operands   a flag or rule that is not as the schema says          (also in `FlagSet.problems`)
answers            what a rule can answer, and which branches never do
here               what only shows when all flags, evaluators and sources are seen together
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from wigwag.errors import DocumentError
from wigwag.flags.answers import answer_findings
from wigwag.flags.coerce import kind_of
from wigwag.flags.document import read
from wigwag.flags.flag import Options
from wigwag.flags.flagset import layer_problems
from wigwag.flags.model import Finding, child
from wigwag.flags.parse import parse
from wigwag.flags.refs import REF
from wigwag.flags.visit import Operation, visit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from wigwag.flags.document import Format, Input
    from wigwag.flags.model import Json, Limits
    from wigwag.flags.parse import Layer

_ORDER = {"error": 0, "warning": 1, "info": 2}
_COMPARISONS = frozenset(("==", "!=", "===", "!==", "<", "<=", ">", ">=", "starts_with", "ends_with"))
_PLAIN = ("string", "number", "boolean")


def lint_documents(documents: Iterable[tuple[str, Input, Format | None]], limits: Limits) -> list[Finding]:
    """Lint (source, document, format)s, the last on top; one that cannot be read is a finding too. Worst first."""
    layers, findings = [], []
    for source, document, form in documents:
        try:
            layers.append(parse(read(document, limits, form), source, Options(limits=limits)))
        except DocumentError as error:
            findings.append(_rejected(error, source))
    for layer in layers:
        findings += lint_layer(layer)
    findings += shadowed(layers)
    return sorted(findings, key=lambda finding: (_ORDER[finding.severity], finding.source))


def lint_layer(layer: Layer) -> Iterator[Finding]:
    """Lint one source."""
    yield from layer_problems(layer)
    found = [*_answers(layer), *unused_evaluators(layer), *two_faced_attributes(layer)]
    for finding in dict.fromkeys(found):
        yield finding.of(layer.setting.source)


def unused_evaluators(layer: Layer) -> Iterator[Finding]:
    """Report shared rules that no flag refers to, directly or through another."""
    used = {operation.argument for operation in _operations(layer) if operation.name == REF}
    for name in layer.setting.evaluators:
        if name not in used:
            message = f"the evaluator {name!r} is not used by any flag"
            yield Finding(
                "evaluator-unused", child("$.$evaluators", name), "warning", message, "remove it, or refer to it"
            )


def two_faced_attributes(layer: Layer) -> Iterator[Finding]:
    """Report attributes that one rule takes for text and another for a number."""
    seen: dict[str, tuple[str, str]] = {}
    for operation in _operations(layer):
        for name, kind in _typed_uses(operation):
            first, where = seen.setdefault(name, (kind, operation.path))
            if kind != first:
                message = f"the attribute {name!r} is compared with a {kind} here and with a {first} at {where}"
                yield Finding(
                    "attribute-type", operation.path, "warning", message, "compare it with one type everywhere"
                )


def shadowed(layers: Sequence[Layer]) -> Iterator[Finding]:
    """Report flags that another source, higher up, hides."""
    for position, layer in enumerate(layers):
        for flag in layer.flags():
            above = next((top for top in reversed(layers[position + 1 :]) if top.flag(flag.set_id, flag.key)), None)
            if above is not None:
                message = f"flag {flag.key!r} is hidden by the one of {above.setting.source}"
                yield Finding(
                    "flag-shadowed", flag.path, "warning", message, "remove one of them", layer.setting.source
                )


def _answers(layer: Layer) -> Iterator[Finding]:
    for flag in layer.flags():
        try:
            yield from answer_findings(flag)
        except DocumentError:
            continue  # reported already: the rule cannot be decoded


def _operations(layer: Layer) -> Iterator[Operation]:
    setting = layer.setting
    for flag in layer.flags():
        try:
            rule = flag.rule
        except DocumentError:
            continue
        for found in visit(rule, child(flag.path, "targeting"), setting.evaluators, setting.options.limits):
            if isinstance(found, Operation):
                yield found


def _typed_uses(operation: Operation) -> Iterator[tuple[str, str]]:
    """Return (attribute, type) for each attribute that is compared with constants of one type."""
    operands = operation.operands
    names = [name for name in map(_attribute, operands) if name]
    if operation.name in _COMPARISONS:
        kinds = {kind_of(operand) for operand in operands}
    elif operation.name == "in" and len(operands) == 2 and operands[1].__class__ is list:
        kinds, names = {kind_of(element) for element in operands[1]}, names[:1]
    else:
        return
    plain = [kind for kind in _PLAIN if kind in kinds]
    if len(plain) == 1:
        yield from ((name, plain[0]) for name in names)


def _attribute(operand: Json) -> str | None:
    if operand.__class__ is not dict or len(operand) != 1 or "var" not in operand:
        return None
    name = operand["var"][0] if operand["var"].__class__ is list and operand["var"] else operand["var"]
    return name if name.__class__ is str and not name.startswith("$flagd") else None


def _rejected(error: DocumentError, source: str) -> Finding:
    path, separator, message = str(error).partition(": ")
    if not separator or not path.startswith("$"):
        path, message = "$", str(error)
    return Finding("document-rejected", path, "error", message, "nothing of the document can be used", source)


def count(findings: Iterable[Finding]) -> dict[str, int]:
    """Count findings by severity."""
    counts: dict[str, int] = defaultdict(int)
    for finding in findings:
        counts[finding.severity] += 1
    return dict(counts)
