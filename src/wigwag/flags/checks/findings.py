"""All findings of a layer, each once, with its source and, if there are several documents, its part.

A flag and a part are checked once: one that did not change is the same object, and keeps its findings.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from wigwag.flags.checks.catalogue import finding
from wigwag.flags.checks.schema import evaluator_findings, flag_findings, metadata_findings
from wigwag.flags.document import duplicates
from wigwag.flags.layering import labelled, part_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from wigwag.flags.model import Finding
    from wigwag.flags.parse import Layer
    from wigwag.flags.part import Part


def layer_problems(layer: Layer) -> tuple[Finding, ...]:
    """Return what is wrong with one document: each thing once, the flags in quarantine first."""
    if layer.findings is None:
        source = layer.setting.source
        findings = chain(
            layer.problems,
            _document_findings(layer) if layer.parted is None else _part_findings(layer.parted.parts, source),
            metadata_findings(layer.setting.metadata, "$.metadata"),
            evaluator_findings(layer.setting),
            _flag_findings(layer),
        )
        unique: dict[tuple[str, ...], Finding] = {}
        for each in findings:
            placed = each.of(source)
            cause = each.message.partition("; ")[0]  # behind it: what becomes of a flag in quarantine
            unique.setdefault((placed.code, placed.path, placed.source, cause), placed)
        layer.findings = tuple(unique.values())
    return layer.findings


def _flag_findings(layer: Layer) -> Iterator[Finding]:
    """Return what is wrong with flags. Most were looked at before and are well: those cost next to nothing."""
    for flag in [flag for flag in layer.flags() if flag.findings is None or flag.findings]:
        if flag.findings is None:
            flag.findings = tuple(flag_findings(flag))
        if flag.findings:
            source = labelled(layer.setting.source, part_of(layer, flag))
            yield from (each.of(source) for each in flag.findings)


def _document_findings(layer: Layer) -> Iterator[Finding]:
    document = layer.document
    yield from _text_findings(duplicates(document.text), mended=document.mended)
    if str(document.schema).endswith("/flags.json") and bytes(document.flags).startswith(b"["):
        hint = "name the schema flagd.json, or write `flags` as an object"
        yield finding("flags-array", "$.flags", "the schema this document names has no arrays of flags", hint)


def _part_findings(parts: Mapping[str, Part], source: str) -> Iterator[Finding]:
    """Return what is wrong with the texts of parts; each was looked at once."""
    for name, part in parts.items():
        if part.duplicates or part.mended:
            for each in _text_findings(part.duplicates, mended=part.mended):
                yield each.of(labelled(source, name))


def _text_findings(repeated: Iterable[str], *, mended: bool) -> Iterator[Finding]:
    if mended:
        message = "half a surrogate pair is not a character; it was replaced by U+FFFD"
        yield finding("text-mended", "$", message, "write the character itself")
    for path in repeated:
        yield finding("duplicate-key", path, "appears twice in one object; the last one counts", "remove one")
