"""Objects become a document: one as it is, several on top of each other, the last by name wins.

What is not there is a state, not an empty document. It is told, and what it held stays in force; or, if the source says
`onDelete: remove`, it counts as a document without flags, and is told all the same. Of several, one that goes takes its
flags with it, because the others say that the answer is whole; it is their absence altogether that is meant here.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw, Struct, field

from wigwag.flags.document import format_of
from wigwag.kube.kinds import CONFIG_MAP
from wigwag.pipeline.spec import UNCHANGED, Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.sources.document import Document
from wigwag.sources.merge import Merger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from wigwag.kube.hub import Follow
    from wigwag.kube.watch.decode import Decode, Key
    from wigwag.sources.document import AnyDocument
    from wigwag.sources.kubernetes.place import ObjectsAddress

MOST_OBJECTS = 10_000
NOTHING = Document(b'{"flags":{}}', "json")
Contents: TypeAlias = "dict[str, bytes]"
"""What one object holds: documents by key."""


@dataclass(frozen=True, slots=True)
class ObjectsWatch:
    """The document that some objects make."""

    place: ObjectsAddress
    remove: bool = False
    """Whether objects that are not there count as a document without flags."""
    most: int = 64 << 20
    """The largest size of all documents together, in bytes."""


class _FlagSpec(Struct, rename="camel"):
    flag_spec: Raw = Raw(b"")
    """The document, as the server sent it; empty if there is none."""


class _Flag(Struct):
    spec: _FlagSpec | None = None


class _ConfigMap(Struct):
    data: dict[str, str] | None = None
    binary: dict[str, str] | None = field(default=None, name="binaryData")


_flag = msgspec.json.Decoder(_Flag).decode
_config_map = msgspec.json.Decoder(_ConfigMap).decode


def decode_flag(raw: Raw) -> Contents:
    """Return what a FeatureFlag holds, as the server wrote it. Nothing else about it matters.

    >>> decode_flag(Raw(b'{"metadata": {"name": "a"}, "spec": {"flagSpec": {"flags": {}}}}'))
    {'': b'{"flags": {}}'}
    """
    found = _flag(raw).spec
    return {"": bytes(found.flag_spec)} if found is not None else {"": b""}


def decode_config_map(raw: Raw) -> Contents:
    """Return what a ConfigMap holds, in the order of its keys.

    >>> decode_config_map(Raw(b'{"data": {"b": "1"}, "binaryData": {"a": "Mg=="}}'))
    {'a': b'2', 'b': b'1'}
    """
    found = _config_map(raw)
    held = {key: text.encode() for key, text in (found.data or {}).items()}
    try:
        held |= {key: b64decode(text, validate=True) for key, text in (found.binary or {}).items()}
    except Base64Error as error:
        raise msgspec.ValidationError("binaryData is not base64") from error
    return dict(sorted(held.items()))


class ObjectsResult(NamedTuple):
    """What objects come to: a document, what is wrong, or both."""

    document: AnyDocument | None = None
    trouble: Unavailable | None = None


class ObjectsReader:
    """Makes a document of the objects of a watch; remembers the last good part of each."""

    def __init__(self, spec: ObjectsWatch, merger: Merger) -> None:
        self._spec, self._merger, self._seen = spec, merger, False

    async def __call__(self, objects: Mapping[Key, Contents]) -> ObjectsResult:
        spec, place = self._spec, self._spec.place
        if len(objects) > MOST_OBJECTS:
            return ObjectsResult(
                trouble=Unavailable(f"{place}: there are more than {MOST_OBJECTS}; narrow the selector down")
            )
        parts = _parts(place, objects)
        if not parts:
            return self._missing(place, objects)
        self._seen = True
        if sum(map(len, parts.values())) > spec.most:
            return ObjectsResult(
                trouble=Unavailable(f"{place}: larger than the limit of {spec.most} bytes; raise maxBytes")
            )
        if place.several:
            merged, problem = await self._merger.merge_in_turns(parts, None if place.kind == CONFIG_MAP else "json")
            return ObjectsResult(merged, Unavailable(f"{place}: {problem}") if problem else None)
        ((key, content),) = parts.items()
        if not content:
            return ObjectsResult(trouble=Unavailable(f"{place} holds no document; write its flags into it"))
        return ObjectsResult(Document(content, format_of(key) if place.key else "json"))

    def _missing(self, place: ObjectsAddress, objects: Mapping[Key, Contents]) -> ObjectsResult:
        what = f"key {place.key} in {place}" if objects and place.key else str(place)
        if self._spec.remove:
            return ObjectsResult(
                NOTHING, Unavailable(f"there is no {what}; by onDelete=remove that counts as no flags")
            )
        if self._seen:
            return ObjectsResult(
                trouble=Unavailable(f"there is no {what} any more; its last flags stay in force until it is back")
            )
        return ObjectsResult(trouble=Unavailable(f"there is no {what} yet; create it, or check the name"))


def _parts(place: ObjectsAddress, objects: Mapping[Key, Contents]) -> dict[str, bytes]:
    """Return the documents by name, in order."""
    if not place.name:
        return {name: held[""] for (_, name), held in sorted(objects.items())}
    held = next(iter(objects.values()), {})
    if place.kind != CONFIG_MAP:
        return held
    return {place.key: held[place.key]} if place.key in held else {} if place.key else held


async def watch_objects(
    spec: ObjectsWatch, follow: Follow, merger: Merger | None = None
) -> AsyncIterator[AnyDocument | Unavailable | Unchanged]:
    """Yield the document when it changes, that it has not, or why that cannot be told at present."""
    judge, found = ObjectsReader(spec, merger or Merger()), ObjectsResult()
    decode: Decode[Contents] = decode_config_map if spec.place.kind == CONFIG_MAP else decode_flag
    async with closing(follow(spec.place.watch(), decode)) as items:
        async for item in items:
            if isinstance(item, Unavailable):
                yield item
            elif isinstance(item, Unchanged):
                yield found.trouble or item
            else:
                last, found = found.document, await judge(item)
                found = found._replace(document=found.document or last)
                for told in _told(found, last):
                    yield told


def _told(found: ObjectsResult, last: AnyDocument | None) -> list[AnyDocument | Unavailable | Unchanged]:
    """Return what is to be reported. Where something is wrong, what is right counts all the same."""
    told: list[AnyDocument | Unavailable | Unchanged] = []
    if found.document is not None and found.document != last:
        told.append(found.document)
    if found.trouble is not None:
        told.append(found.trouble)
    elif not told:
        told.append(UNCHANGED)
    return told
