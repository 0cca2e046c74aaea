"""Flags in force, written down: exactly, to be compared elsewhere, or as one document that any agent can load.

Exactly means that what is restored has the id of what was dumped. So the documents of a dump keep what a digest counts:
source, hashing version, rules as they stand and the shared rules they refer to. The hard case is a flag that kept its
last good definition: it goes by the metadata and the shared rules of an earlier document. Its metadata is written out;
if its shared rules are others, it stands in a document of its own, below the rest of its source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from wigwag.errors import DocumentError
from wigwag.flags import store, written
from wigwag.flags.flag import LoadSettings
from wigwag.flags.model import Fractional
from wigwag.flags.rules import refs
from wigwag.flags.written import DocumentGenerations, canonical, exact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from wigwag.flags.flag import Flag
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Json
    from wigwag.flags.parse import Layer
    from wigwag.flags.written import DocumentGeneration


class Dumped(Struct, frozen=True):
    """One document of a dump. It is left unparsed: rules may be such that nobody can parse them."""

    source: str
    document: Raw
    fractional: Fractional = "v2"


def dump(flags: FlagSet) -> list[Dumped]:
    """Write down the flags in force, lowest priority first.

    >>> import wigwag
    >>> new_ui = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}
    >>> flags = wigwag.load({"flags": {"new-ui": new_ui}}, source="a.json")
    >>> restore(dump(flags), flags.clock) == flags
    True
    """
    chosen = {id(flag) for flag in flags.flags()}
    return [dumped for layer in flags.layers for dumped in _layer(layer, chosen)]


def restore(dumped: Iterable[Dumped], clock: Callable[[], float]) -> FlagSet:
    """Return the flags that were dumped. Raises `DocumentError` if that is not what they are."""
    sets = [
        store.load(
            bytes(one.document),
            source=one.source,
            options=LoadSettings(one.fractional),
            strict=False,
            format="json",
            previous=None,
            clock=clock,
        )
        for one in dumped
    ]
    return store.merge(sets, clock)


def document(flags: FlagSet) -> dict[str, Json]:
    """Return the flags as one document: shared rules put where they are used, metadata with each flag.

    Several flag sets may have a key; then the flags are an array, in the order they had, as the last set answers.
    """
    chosen = {id(flag) for flag in flags.flags()}
    in_order = (flag for layer in flags.layers for flag in layer.flags() if id(flag) in chosen)
    listed = [{"key": flag.key, **flag.to_dict()} for flag in in_order]
    for flag in listed:
        del flag["source"]  # whoever loads it is another source
    if len({flag["key"] for flag in listed}) < len(listed):
        return {"flags": listed}
    return {"flags": {flag.pop("key"): flag for flag in listed}}


def _layer(layer: Layer, chosen: set[int]) -> Iterator[Dumped]:
    """Return the documents of one source: what is left of earlier ones, then its own."""
    own: list[Flag] = []
    others: dict[bytes, list[Flag]] = {}
    eras = DocumentGenerations(layer)
    for flag in layer.flags():
        if id(flag) in chosen:
            strange = _strange(flag, eras.of(flag), layer)
            (own if strange is None else others.setdefault(strange, [])).append(flag)
    for kept in others.values():
        yield _document(layer, kept, {}, kept[0].setting.evaluators)
    yield _document(layer, own, layer.setting.metadata, layer.setting.evaluators)


def _strange(flag: Flag, era: DocumentGeneration, layer: Layer) -> bytes | None:
    """Return the shared rules that a flag was defined with, if they are not those of its layer and it uses any."""
    if not flag.targeted or era.same_evaluators:
        return None
    ours, theirs = era.evaluators, layer.setting.evaluators
    try:
        same = exact(refs.reachable(flag.rule, ours), refs.reachable(flag.rule, theirs))
    except DocumentError:
        return None
    return None if same else canonical(ours)


def _document(layer: Layer, flags: list[Flag], metadata: dict[str, Any], evaluators: dict[str, Any]) -> Dumped:
    listed = (written.definition(flag, metadata, flag.definition.targeting) for flag in flags)
    text = written.document(metadata, evaluators, listed)
    return Dumped(layer.setting.source, Raw(text), layer.setting.options.fractional)
