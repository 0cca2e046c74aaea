"""Flags in force become a document again: one that loads to the same flags, from the same source, ever after.

Rules are copied as they were written, to the byte, and what flags inherit (metadata, shared rules) stands where it
stood. An array, because the same key may be in several flag sets; of those, the last one answers, so their order stays.

The hard case is a flag that went bad and kept its last good definition. Its metadata and its shared rules are those of
an earlier document: metadata is written with the flag, as far as it differs, and shared rules that differ get a name
that says of which document they were, so that they do not replace those of today. Then, and only then, the flags have
another id than before.
"""

from __future__ import annotations

import re
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from wigwag.errors import DocumentError, StateError, UsageError
from wigwag.flags.document import decode
from wigwag.flags.refs import REF, reference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.flags.flag import Flag, Setting
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Json
    from wigwag.flags.parse import Layer

_KEPT = re.compile(r"kept:[0-9a-f]{32}:")
"""How the name of a shared rule of an earlier document begins."""
_ABSENT = object()
_write = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="deterministic").encode


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
        self._eras: dict[int, _Era] = {}

    def document(self) -> bytes:
        flags = b",\n".join(self._bounded())
        head = {"metadata": self._metadata, "$evaluators": self._evaluators}
        document = _write({name: value for name, value in head.items() if value})[:-1]
        return document + (b"," if len(document) > 1 else b"") + b'"flags":[' + flags + b"]}"

    def _bounded(self) -> Iterator[bytes]:
        """Write the flags; not without end, as what a flag inherited from an earlier document is written with it."""
        limits, source = self._layer.setting.options.limits, self._layer.setting.source
        left = limits.document_bytes - len(_write([self._metadata, self._evaluators])) - 64
        known = len(self._evaluators)
        for flags in self._layer.sets.values():
            for key in sorted(flags):
                text = _write(self._definition(flags[key]))
                left -= len(text) + 2
                if len(self._evaluators) > known:
                    added, known = list(self._evaluators.items())[known:], len(self._evaluators)
                    left -= len(_write(added))
                if left < 0:
                    most = limits.document_bytes
                    raise StateError(f"{source}: the flags in force take more than {most} bytes, so they are not kept")
                yield text

    def _definition(self, flag: Flag) -> Any:
        era = self._era(flag.setting)
        plain = era.same_metadata and flag.metadata is flag.setting.metadata
        own = None if plain else self._own(flag.metadata)
        targeting = self._targeting(flag, era)
        return replace(flag.definition, key=flag.key, metadata=own or None, targeting=targeting)

    def _era(self, setting: Setting) -> _Era:
        if id(setting) not in self._eras:
            self._eras[id(setting)] = _Era(setting, self._layer.setting)
        return self._eras[id(setting)]

    def _own(self, metadata: dict[str, Json]) -> dict[str, Json]:
        """Return what a flag has to say for itself to have this metadata; null takes away."""
        inherited = self._metadata
        own = {name: value for name, value in metadata.items() if not _exact(value, inherited.get(name, _ABSENT))}
        return own | dict.fromkeys(name for name in inherited if name not in metadata)

    def _targeting(self, flag: Flag, era: _Era) -> Any:
        raw = flag.definition.targeting
        if not isinstance(raw, Raw) or era.same_evaluators:
            return raw
        try:
            rule = decode(raw, flag.path)
            moved, names = self._moved(rule, era), set(_references(rule))
        except (DocumentError, RecursionError):
            return raw  # it fails wherever it is
        self._bring(names, era)
        return Raw(_write(moved)) if names else raw

    def _bring(self, names: set[str], era: _Era) -> None:
        """Take over the shared rules of an earlier document that a rule leads to."""
        pending = sorted(names)
        while pending:
            name = pending.pop()
            new = self._name(name, era)
            if name in era.evaluators and new not in self._evaluators:
                rule = era.evaluators[name]
                self._evaluators[new] = self._moved(rule, era)
                pending += sorted(set(_references(rule)))

    def _moved(self, rule: Json, era: _Era) -> Json:
        """Return a rule with references to the shared rules of its own document. Data stays as it is."""
        name = reference(rule)
        if name is not None:
            return {REF: self._name(name, era)}
        if rule.__class__ is dict and len(rule) == 1:
            return {name: self._moved(value, era) for name, value in rule.items()}
        return [self._moved(item, era) for item in rule] if rule.__class__ is list else rule

    def _name(self, name: str, era: _Era) -> str:
        """Return the name of an earlier document's shared rule, whether it exists or not."""
        own = _KEPT.match(name) and name not in self._layer.setting.evaluators
        return name if own else f"kept:{era.digest}:{name}"


class _Era:
    """What the flags of one document share, compared with what those of the newest do."""

    def __init__(self, setting: Setting, newest: Setting) -> None:
        self.evaluators, self._newest = setting.evaluators, newest.evaluators
        self.same_metadata = _exact(setting.metadata, newest.metadata)

    @cached_property
    def same_evaluators(self) -> bool:
        return _exact(self.evaluators, self._newest)

    @cached_property
    def digest(self) -> str:
        return blake2b(_canonical(self.evaluators), digest_size=16).hexdigest()


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


def _exact(one: Json, other: Json) -> bool:
    """Tell whether two values are the same. To Python, 1 and true are."""
    if one is other:
        return True
    return other is not _ABSENT and bool(_canonical(one) == _canonical(other))
