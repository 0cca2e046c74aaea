"""Flags in force written as documents again: exactly, to compare them elsewhere, or as one that any agent can load.

Exactly means that the flags restored from a dump have the id of those that were dumped. So rules are copied byte by
byte, and a dump keeps source, hashing version and shared rules. Flags are an array, because several flag sets may have
the same key; the last one answers, so their order is kept.

The hard case is a flag that went bad and kept its last good definition: its metadata and shared rules are those of an
earlier version of the document. Metadata is written with the flag as far as it differs. If its shared rules differ,
`dump` writes the flag into a document of its own, below the rest of its source; the agent's state renames them.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from wigwag.errors import DocumentError
from wigwag.flags import store
from wigwag.flags.flag import LoadSettings
from wigwag.flags.model import Fractional, canonical
from wigwag.flags.rules import refs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from wigwag.flags.flag import DocumentDefaults, Flag
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Json
    from wigwag.flags.parse import Layer

_ABSENT = object()
write = msgspec.json.Encoder().encode


class Dumped(Struct, frozen=True):
    """One document of a dump. It stays unparsed, because a rule may be one that cannot be parsed."""

    source: str
    document: Raw
    fractional: Fractional = "v2"


def dump(flags: FlagSet) -> list[Dumped]:
    """Write the flags in force, lowest priority first.

    >>> import wigwag
    >>> new_ui = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}
    >>> flags = wigwag.load({"flags": {"new-ui": new_ui}}, source="a.json")
    >>> restore(dump(flags), flags.clock) == flags
    True
    """
    chosen = {id(flag) for flag in flags.flags()}
    return [dumped for layer in flags.layers for dumped in _layer(layer, chosen)]


def restore(dumped: Iterable[Dumped], clock: Callable[[], float]) -> FlagSet:
    """Return the flags of a dump. Raises `DocumentError` if it cannot be read."""
    sets = (
        store.load(bytes(each.document), source=each.source, options=LoadSettings(each.fractional), clock=clock)
        for each in dumped
    )
    return store.merge(sets, clock)


def document(flags: FlagSet) -> dict[str, Json]:
    """Return the flags as one document: shared rules inlined, metadata with each flag.

    Several flag sets may have a key; then the flags are an array, in the order they had, as the last set answers.
    """
    chosen = {id(flag) for flag in flags.flags()}
    in_order = (flag for layer in flags.layers for flag in layer.flags() if id(flag) in chosen)
    listed = [{"key": flag.key, **flag.to_dict()} for flag in in_order]
    for flag in listed:
        del flag["source"]  # that is where the document is loaded from
    if len({flag["key"] for flag in listed}) < len(listed):
        return {"flags": listed}
    return {"flags": {flag.pop("key"): flag for flag in listed}}


def _layer(layer: Layer, chosen: set[int]) -> Iterator[Dumped]:
    """Return the documents of one source: the flags kept from earlier versions, then the others."""
    own: list[Flag] = []
    kept: dict[bytes, list[Flag]] = {}
    version_of = document_versions(layer)
    for flag in layer.flags():
        if id(flag) in chosen:
            rules = _earlier_rules(flag, version_of(flag), layer)
            (own if rules is None else kept.setdefault(rules, [])).append(flag)
    for flags in kept.values():
        yield _dumped(layer, flags, {}, flags[0].setting.evaluators)
    yield _dumped(layer, own, layer.setting.metadata, layer.setting.evaluators)


def _earlier_rules(flag: Flag, version: DocumentVersion, layer: Layer) -> bytes | None:
    """Return the shared rules that a flag was defined with, if they differ from those of its layer and it uses any."""
    if not flag.targeted or version.same_evaluators:
        return None
    earlier, newest = version.evaluators, layer.setting.evaluators
    try:
        same = exact(refs.reachable(flag.rule, earlier), refs.reachable(flag.rule, newest))
    except DocumentError:
        return None
    return None if same else canonical(earlier)


def _dumped(layer: Layer, flags: list[Flag], metadata: dict[str, Any], evaluators: dict[str, Any]) -> Dumped:
    definitions = (definition_text(flag, metadata, flag.definition.targeting) for flag in flags)
    text = document_text(metadata, evaluators, definitions)
    return Dumped(layer.setting.source, Raw(text), layer.setting.options.fractional)


class DocumentVersion:
    """What the flags of one version of a document share, compared with the newest version."""

    def __init__(self, setting: DocumentDefaults, newest: DocumentDefaults) -> None:
        self.evaluators, self._newest = setting.evaluators, newest.evaluators
        self.same_metadata = exact(setting.metadata, newest.metadata)

    @cached_property
    def same_evaluators(self) -> bool:
        return exact(self.evaluators, self._newest)

    @cached_property
    def digest(self) -> str:
        return blake2b(canonical(self.evaluators), digest_size=16).hexdigest()


def document_versions(layer: Layer) -> Callable[[Flag], DocumentVersion]:
    """Return a function from a flag to the version of the document that it comes from; each is compared once."""
    known: dict[int, DocumentVersion] = {}

    def version_of(flag: Flag) -> DocumentVersion:
        if id(flag.setting) not in known:
            known[id(flag.setting)] = DocumentVersion(flag.setting, layer.setting)
        return known[id(flag.setting)]

    return version_of


def document_text(metadata: dict[str, Json], evaluators: dict[str, Json], flags: Iterable[bytes]) -> bytes:
    """Put together the text of a document.

    >>> document_text({"team": "a"}, {}, [b'{"key":"x"}'])
    b'{"metadata":{"team":"a"},"flags":[{"key":"x"}]}'
    """
    body = b",\n".join(flags)
    head = {"metadata": metadata, "$evaluators": evaluators}
    text = write({name: value for name, value in head.items() if value})[:-1]
    return text + (b"," if len(text) > 1 else b"") + b'"flags":[' + body + b"]}"


def definition_text(flag: Flag, inherited: dict[str, Json], targeting: Any) -> bytes:
    """Return the text of a flag, with this rule, where it inherits this metadata."""
    own = None if flag.metadata is inherited else _own(flag.metadata, inherited)
    return write(replace(flag.definition, key=flag.key, metadata=own or None, targeting=targeting))


def _own(metadata: dict[str, Json], inherited: dict[str, Json]) -> dict[str, Json]:
    """Return the metadata that a flag needs of its own to have this in all; null removes what it inherits."""
    own = {name: value for name, value in metadata.items() if not exact(value, inherited.get(name, _ABSENT))}
    return own | dict.fromkeys(name for name in inherited if name not in metadata)


def exact(one: Json, other: Json) -> bool:
    """Tell whether two values are the same. To Python, 1 and true are.

    >>> exact(1, True), exact({"a": 1, "b": 2}, {"b": 2, "a": 1})
    (False, True)
    """
    if one is other:
        return True
    return other is not _ABSENT and bool(canonical(one) == canonical(other))
