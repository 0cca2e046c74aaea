"""What looks wrong in documents that load: beyond the schema, and across flags and sources.

schema, operands   a flag or rule that is not as the schema says          (also in `FlagSet.problems`)
answers            what a rule can answer, and which branches never do
members            what nobody will ever read
here               what only shows when all flags, evaluators and sources are seen together
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.errors import DocumentError
from wigwag.flags.answers import Library, answer_findings, branch_findings
from wigwag.flags.coerce import kind_of
from wigwag.flags.document import read
from wigwag.flags.evaluators import ROOT, evaluators_of
from wigwag.flags.findings import layer_problems
from wigwag.flags.flag import Options
from wigwag.flags.members import member_findings
from wigwag.flags.model import Finding, child
from wigwag.flags.parse import parse
from wigwag.flags.schema import walked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from wigwag.flags.document import Format, Input
    from wigwag.flags.flag import Flag
    from wigwag.flags.model import Json, Limits
    from wigwag.flags.parse import Layer
    from wigwag.flags.visit import Operation

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
    return in_order(findings)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings: the worst first, those of one source together."""
    return sorted(findings, key=lambda finding: (_ORDER[finding.severity], finding.source))


def lint_layer(layer: Layer) -> Iterator[Finding]:
    """Lint one source."""
    yield from layer_problems(layer)
    rules = _Rules(layer)
    found = [
        *rules.unknown_answers(),
        *rules.branches(),
        *rules.unused_evaluators(),
        *rules.two_faced_attributes(),
        *member_findings(layer),
    ]
    for finding in dict.fromkeys(found):
        yield finding.of(layer.setting.source)


class _Rules:
    """The rules of one source: those of its flags, and the shared ones that they reach."""

    def __init__(self, layer: Layer) -> None:
        self._setting, self._evaluators = layer.setting, evaluators_of(layer.setting)
        rules = [(flag, walked(flag)) for flag in layer.flags()]
        self._flags: list[Flag] = [flag for flag, rule in rules if rule and not rule.excess]
        self._own = [rule for _, rule in rules if rule]
        references = [reference for rule in self._own for reference in rule.references]
        self._used = self._evaluators.reached(references)
        self._all = [*self._own, *(self._evaluators.walks[name] for name in self._used)]

    def unknown_answers(self) -> Iterator[Finding]:
        library = Library(self._setting.evaluators)
        for flag in self._flags:
            if flag.rule.__class__ is dict:
                yield from answer_findings(flag, library)

    def branches(self) -> Iterator[Finding]:
        for rule in self._all:
            if not rule.excess:
                yield from branch_findings(rule, self._setting.options.limits)

    def unused_evaluators(self) -> Iterator[Finding]:
        """Report shared rules that no flag refers to, directly or through another."""
        used = set(self._used)
        for name in self._setting.evaluators:
            if name not in used:
                message = f"the evaluator {name!r} is not used by any flag"
                yield Finding("evaluator-unused", child(ROOT, name), "warning", message, "remove it, or refer to it")

    def two_faced_attributes(self) -> Iterator[Finding]:
        """Report attributes that one rule takes for text and another for a number."""
        seen: dict[str, tuple[str, str]] = {}
        for operation in self._outside_loops():
            for name, kind in _typed_uses(operation):
                first, where = seen.setdefault(name, (kind, operation.path))
                if kind != first:
                    message = f"the attribute {name!r} is compared with a {kind} here and with a {first} at {where}"
                    hint = "compare it with one type everywhere"
                    yield Finding("attribute-type", operation.path, "warning", message, hint)

    def _outside_loops(self) -> Iterator[Operation]:
        """Return the operations that see attributes only: not in a body, nor in a shared rule that a body refers to."""
        inner = [reference for rule in self._all for reference in rule.references if reference.element]
        looped = set(self._evaluators.reached(inner))
        shared = (self._evaluators.walks[name] for name in self._used if name not in looped)
        for rule in (*self._own, *shared):
            yield from (operation for operation in rule.operations if not operation.element)


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


def _typed_uses(operation: Operation) -> Iterator[tuple[str, str]]:
    """Return (attribute, type) for each attribute that is compared with constants of one type."""
    operands = operation.operands
    names = [name for name in map(_attribute, operands) if name]
    if operation.name in _COMPARISONS:
        kinds = {kind_of(operand) for operand in operands}
    elif operation.name == "in" and len(operands) == 2 and operands[1].__class__ is list:
        kinds, names = {kind_of(element) for element in operands[1]}, names[:1]
    elif operation.name == "in" and len(operands) == 2 and operands[1].__class__ is str:
        kinds = {"string"}
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
