"""Flags in force as the text of a document again, of which each flag says itself what it does not inherit there.

Rules are copied as they were written, to the byte. Flags are an array, because the same key may be in several flag
sets; of those, the last one answers, so whoever writes keeps their order.

The hard case is a flag that went bad and kept its last good definition: it goes by metadata and shared rules of an
earlier document. Metadata is written with the flag, as far as it differs. Shared rules that differ are for others to
settle, who learn of them here: `dump` writes further documents, and has the same id; the agent's state is one document.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.flags.flag import DocumentDefaults, Flag
    from wigwag.flags.model import Json
    from wigwag.flags.parse import Layer

_ABSENT = object()
write = msgspec.json.Encoder().encode
canonical = msgspec.json.Encoder(order="deterministic").encode


class DocumentGenerations:
    """The documents that the flags of a layer come from, each compared once with the newest."""

    def __init__(self, layer: Layer) -> None:
        self._newest = layer.setting
        self._eras: dict[int, DocumentGeneration] = {}

    def of(self, flag: Flag) -> DocumentGeneration:
        """Return the document that a flag comes from."""
        setting = flag.setting
        if id(setting) not in self._eras:
            self._eras[id(setting)] = DocumentGeneration(setting, self._newest)
        return self._eras[id(setting)]


class DocumentGeneration:
    """What the flags of one document share, compared with what those of the newest do."""

    def __init__(self, setting: DocumentDefaults, newest: DocumentDefaults) -> None:
        self.evaluators, self._newest = setting.evaluators, newest.evaluators
        self.same_metadata = exact(setting.metadata, newest.metadata)

    @cached_property
    def same_evaluators(self) -> bool:
        return exact(self.evaluators, self._newest)

    @cached_property
    def digest(self) -> str:
        return blake2b(canonical(self.evaluators), digest_size=16).hexdigest()


def document(metadata: dict[str, Json], evaluators: dict[str, Json], flags: Iterable[bytes]) -> bytes:
    """Put together the text of a document.

    >>> document({"team": "a"}, {}, [b'{"key":"x"}'])
    b'{"metadata":{"team":"a"},"flags":[{"key":"x"}]}'
    """
    body = b",\n".join(flags)
    head = {"metadata": metadata, "$evaluators": evaluators}
    text = write({name: value for name, value in head.items() if value})[:-1]
    return text + (b"," if len(text) > 1 else b"") + b'"flags":[' + body + b"]}"


def definition(flag: Flag, inherited: dict[str, Json], targeting: Any) -> bytes:
    """Return the text of a flag, with this rule, where it inherits this metadata."""
    own = None if flag.metadata is inherited else _own(flag.metadata, inherited)
    return write(replace(flag.definition, key=flag.key, metadata=own or None, targeting=targeting))


def _own(metadata: dict[str, Json], inherited: dict[str, Json]) -> dict[str, Json]:
    """Return what a flag has to say for itself to have this metadata; null takes away."""
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
