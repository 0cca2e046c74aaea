"""What looks wrong in documents that load: beyond the schema, and across flags and sources.

schema, operands   a flag or rule that departs from the schema            (also in `FlagSet.problems`)
answers            what a rule can answer (also in `FlagSet.problems`), and which branches are never reached
here               unknown members, which loading does not even decode; evaluators that no flag uses; what only shows
                   when all flags, evaluators and sources are seen together
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from wigwag import jsontext
from wigwag.errors import DocumentError
from wigwag.flags.checks.answers import branch_findings
from wigwag.flags.checks.catalogue import finding
from wigwag.flags.checks.findings import layer_problems
from wigwag.flags.checks.operands import variable_name
from wigwag.flags.checks.positions import locate
from wigwag.flags.checks.schema import walked
from wigwag.flags.checks.visit import evaluators_of
from wigwag.flags.critical import CRITICAL
from wigwag.flags.document import UNDECODABLE, read
from wigwag.flags.flag import LoadSettings
from wigwag.flags.model import child
from wigwag.flags.parse import parse
from wigwag.flags.rules.coerce import kind_of
from wigwag.flags.rules.refs import SHARED, reachable
from wigwag.flags.rules.scope import FLAGD
from wigwag.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from wigwag.flags.checks.visit import Operation
    from wigwag.flags.document import Format, Input, Text
    from wigwag.flags.model import Finding, Limits
    from wigwag.flags.parse import Layer

_ORDER = {"error": 0, "warning": 1, "info": 2}
_COMPARISONS = frozenset(("==", "!=", "===", "!==", "<", "<=", ">", ">=", "starts_with", "ends_with"))
_PLAIN = ("string", "number", "boolean")
MOST_CRITICAL = 10
"""Critical flags of a source; more are reported if they are most of its flags."""
_OF_A_DOCUMENT = ("flags", "$evaluators", "metadata", "$schema")
_OF_A_FLAG = ("key", "state", "variants", "defaultVariant", "targeting", "metadata", "source", "selector")
"""The last two are in what daemons send each other."""
_members = msgspec.json.Decoder(dict[str, Raw]).decode


_ruled = jsontext.decoder(msgspec.defstruct("_Ruled", [("targeting", Any, None)]))
"""Decodes the rule of a flag that may be wrong in every other way."""


def lint_documents(
    documents: Iterable[tuple[str, Input, Format | None]], limits: Limits, *, merge: bool = True
) -> list[Finding]:
    """Lint (source, document, format)s; one that cannot be read is a finding too. Worst first, with their positions.

    With `merge`, the documents are sources of one agent, the last on top; without, they have nothing to do with each
    other.
    """
    given, layers, findings = list(documents), [], []
    for source, document, form in given:
        try:
            layers.append(parse(read(document, limits, form), source, LoadSettings(limits=limits)))
        except DocumentError as error:
            findings.append(rejected(error, source))
    for layer in layers:
        findings += lint_layer(layer)
    findings += shadowed(layers) if merge else ()
    return in_order(_located(findings, given))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings: the worst first, those of one source together."""
    return sorted(findings, key=lambda each: (_ORDER[each.severity], each.source))


def _located(findings: list[Finding], documents: list[tuple[str, Input, Format | None]]) -> list[Finding]:
    """Add line and column to findings in texts."""
    paths: dict[str, list[str]] = {}
    for each in findings:
        paths.setdefault(each.source, []).append(each.path)
    positions = {
        source: locate(document, form, paths[source])
        for source, document, form in documents
        if source in paths and isinstance(document, str | bytes)
    }

    def located(each: Finding) -> Finding:
        position = None if each.line else positions.get(each.source, {}).get(each.path)
        return replace(each, line=position[0], column=position[1]) if position else each

    return list(map(located, findings))


def lint_layer(layer: Layer) -> Iterator[Finding]:
    """Lint one source."""
    yield from layer_problems(layer)
    rules = _Rules(layer)
    more = chain(
        rules.branches(),
        rules.unused_evaluators(),
        rules.mixed_attributes(),
        critical_findings(layer),
        member_findings(layer),
    )
    for each in dict.fromkeys(more):
        yield each.of(layer.setting.source)


def critical_findings(layer: Layer) -> Iterator[Finding]:
    """Report a source that marks most of its flags as critical."""
    flags = list(layer.flags())
    critical = sum(flag.metadata.get(CRITICAL) is True for flag in flags)
    if critical > MOST_CRITICAL and critical * 2 > len(flags):
        message = f"{critical} of {len(flags)} flags are critical, so their changes are soon ordinary ones"
        yield finding("critical-many", "$.flags", message, "mark only flags that must be switched off at once")


class _Rules:
    """The rules of one source: those of its flags, and the shared ones that they reach."""

    def __init__(self, layer: Layer) -> None:
        self._layer, self._setting, self._evaluators = layer, layer.setting, evaluators_of(layer.setting)
        self._own = [rule for rule in map(walked, layer.flags()) if rule]
        references = [reference for rule in self._own for reference in rule.references]
        self._used = self._evaluators.reached(references)
        self._all = [*self._own, *(self._evaluators.walks[name] for name in self._used)]

    def branches(self) -> Iterator[Finding]:
        for rule in self._all:
            if not rule.excess:
                yield from branch_findings(rule, self._setting.options.limits)

    def unused_evaluators(self) -> Iterator[Finding]:
        """Report shared rules that no flag refers to, directly or through another; one in quarantine is a flag, too."""
        unused = self._setting.evaluators.keys() - set(self._used)
        if unused:
            unused -= set(self._used_in_quarantine())
        for name in self._setting.evaluators:
            if name in unused:
                message = f"the evaluator {name!r} is not used by any flag"
                yield finding("evaluator-unused", child(SHARED, name), message, "remove it, or refer to it")

    def _used_in_quarantine(self) -> Iterator[str]:
        for place, text in self._layer.texts.items():
            if place not in self._layer.placed:
                try:
                    rule = _ruled(text).targeting
                except UNDECODABLE:
                    continue
                yield from reachable(rule, self._setting.evaluators)

    def mixed_attributes(self) -> Iterator[Finding]:
        """Report attributes that one rule takes for text and another for a number."""
        seen: dict[str, tuple[str, str]] = {}
        for operation in self._outside_loops():
            for name, kind in _typed_uses(operation):
                first, where = seen.setdefault(name, (kind, operation.path))
                if kind != first:
                    message = f"the attribute {name!r} is compared with a {kind} here and with a {first} at {where}"
                    hint = "compare it with one type everywhere"
                    yield finding("attribute-type", operation.where, message, hint)

    def _outside_loops(self) -> Iterator[Operation]:
        """Return the operations that see attributes only: not in a body, nor in a shared rule that a body refers to."""
        inner = [reference for rule in self._all for reference in rule.references if reference.element]
        looped = set(self._evaluators.reached(inner))
        shared = (self._evaluators.walks[name] for name in self._used if name not in looped)
        for rule in (*self._own, *shared):
            yield from (operation for operation in rule.operations if not operation.element)


def member_findings(layer: Layer) -> Iterator[Finding]:
    """Report unknown members of the document and of its flags."""
    yield from _unknown(layer.document.text, "$", _OF_A_DOCUMENT, "a document")
    for place, text in layer.texts.items():
        yield from _unknown(text, child("$.flags", place), _OF_A_FLAG, "a flag")


def _unknown(text: Text | Raw, path: str, known: tuple[str, ...], what: str) -> Iterator[Finding]:
    try:
        members = _members(text)
    except UNDECODABLE:
        return  # no object: reported elsewhere
    for name in members:
        if name not in known:
            message = f"{what} has no member `{name}`, so it is ignored"
            yield finding("member-unknown", child(path, name), message, suggest(name, known))


def shadowed(layers: Sequence[Layer]) -> Iterator[Finding]:
    """Report flags that another source, higher up, hides."""
    for position, layer in enumerate(layers):
        for flag in layer.flags():
            above = next((top for top in reversed(layers[position + 1 :]) if top.flag(flag.set_id, flag.key)), None)
            if above is not None:
                message = f"flag {flag.key!r} is hidden by the one of {above.setting.source}"
                yield finding("flag-shadowed", flag.path, message, "remove one of them", layer.setting.source)


def _typed_uses(operation: Operation) -> Iterator[tuple[str, str]]:
    """Return (attribute, type) for each attribute that is compared with constants of one type."""
    operands = operation.operands
    names = [name for name in map(variable_name, operands) if name and not name.startswith(FLAGD)]
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


def rejected(error: DocumentError, source: str) -> Finding:
    """Return what is wrong with a document that cannot be used at all."""
    path, separator, message = str(error).partition(": ")
    if not separator or not path.startswith("$"):
        path, message = "$", str(error)
    rejection = finding("document-rejected", path, message, "nothing of the document can be used", source)
    return replace(rejection, line=error.position[0], column=error.position[1]) if error.position else rejection
