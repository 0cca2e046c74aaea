"""Flags in force become a document again: one that loads to the same flags, from the same source, ever after.

`flags.dump` says how. Here it is one document, whatever happened: shared rules that a flag in quarantine has of an
earlier one get a name that says of which they were, so that they do not replace those of today. Then, and only then,
the flags have another id than before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from wigwag.errors import DocumentError, StateError, UsageError
from wigwag.flags.document import decode
from wigwag.flags.dump import definition_text, document_text, document_versions, write
from wigwag.flags.rules.refs import REF, reference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.flags.dump import DocumentVersion
    from wigwag.flags.flag import Flag
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Json
    from wigwag.flags.parse import Layer

_KEPT = re.compile(r"kept:[0-9a-f]{32}:")
"""How the name of a shared rule of an earlier document begins."""


def document_of(flags: FlagSet) -> bytes:
    """Return the flags of one source as a document, which `load` with the same options and source name turns back.

    >>> import wigwag
    >>> flags = wigwag.load({"flags": {"a": {"state": "ENABLED", "variants": {"on": 1}}}})
    >>> wigwag.load(document_of(flags)).id == flags.id
    True
    """
    if len(flags.layers) != 1:
        raise UsageError(f"a document holds the flags of one source, not of {len(flags.layers)}")
    return _Writer(flags.layers[0]).document()


class _Writer:
    """Writes one layer; knows how flags of earlier documents differ from it."""

    def __init__(self, layer: Layer) -> None:
        self._layer, self._metadata = layer, layer.setting.metadata
        self._evaluators = dict(layer.setting.evaluators)
        self._version_of = document_versions(layer)

    def document(self) -> bytes:
        flags = list(self._bounded())  # which bring shared rules along
        return document_text(self._metadata, self._evaluators, flags)

    def _bounded(self) -> Iterator[bytes]:
        """Write the flags; not without end, as what a flag inherited from an earlier document is written with it."""
        limits, source = self._layer.setting.options.limits, self._layer.setting.source
        left = limits.document_bytes - len(write([self._metadata, self._evaluators])) - 64
        known = len(self._evaluators)
        for flags in self._layer.sets.values():
            for key in sorted(flags):
                text = self._definition(flags[key])
                left -= len(text) + 2
                if len(self._evaluators) > known:
                    added, known = list(self._evaluators.items())[known:], len(self._evaluators)
                    left -= len(write(added))
                if left < 0:
                    most = limits.document_bytes
                    raise StateError(f"{source}: the flags in force take more than {most} bytes, so they are not kept")
                yield text

    def _definition(self, flag: Flag) -> bytes:
        version = self._version_of(flag)
        plain = version.same_metadata and flag.metadata is flag.setting.metadata
        inherited = flag.metadata if plain else self._metadata
        return definition_text(flag, inherited, self._targeting(flag, version))

    def _targeting(self, flag: Flag, version: DocumentVersion) -> Any:
        raw = flag.definition.targeting
        if not isinstance(raw, Raw) or version.same_evaluators:
            return raw
        try:
            rule = decode(raw, flag.path)
            moved, names = self._moved(rule, version), set(_references(rule))
        except (DocumentError, RecursionError):
            return raw  # it fails wherever it is
        self._bring(names, version)
        return Raw(write(moved)) if names else raw

    def _bring(self, names: set[str], version: DocumentVersion) -> None:
        """Take over the shared rules of an earlier document that a rule leads to."""
        pending = sorted(names)
        while pending:
            name = pending.pop()
            new = self._name(name, version)
            if name in version.evaluators and new not in self._evaluators:
                rule = version.evaluators[name]
                self._evaluators[new] = self._moved(rule, version)
                pending += sorted(set(_references(rule)))

    def _moved(self, rule: Json, version: DocumentVersion) -> Json:
        """Return a rule with references to the shared rules of its own document. Data stays as it is."""
        name = reference(rule)
        if name is not None:
            return {REF: self._name(name, version)}
        if rule.__class__ is dict and len(rule) == 1:
            return {name: self._moved(value, version) for name, value in rule.items()}
        return [self._moved(item, version) for item in rule] if rule.__class__ is list else rule

    def _name(self, name: str, version: DocumentVersion) -> str:
        """Return the name of an earlier document's shared rule, whether it exists or not."""
        own = _KEPT.match(name) and name not in self._layer.setting.evaluators
        return name if own else f"kept:{version.digest}:{name}"


def _references(rule: Json) -> Iterator[str]:
    """Return the names that a rule refers to, where the engine would follow them: an object of several is data."""
    pending = [rule]
    while pending:
        node = pending.pop()
        name = reference(node)
        if name is not None:
            yield name
        elif node.__class__ is dict and len(node) == 1:
            pending += node.values()
        elif node.__class__ is list:
            pending += node
