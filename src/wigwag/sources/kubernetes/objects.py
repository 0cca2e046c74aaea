"""The document of FeatureFlags or a ConfigMap: of one object as it is; of several, merged, the last by name wins.

A missing object is not an empty document. It is reported as `Unavailable`, and its last flags stay in force; with
`onDelete: remove` it counts as a document without flags, and is reported all the same. Of several objects, a deleted
one takes its flags with it, because the others show that the list is complete; missing means that there are none.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Raw, Struct, field

from wigwag.flags.critical import marked
from wigwag.flags.document import format_of
from wigwag.kube.kinds import CONFIG_MAP
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.sources.document import AnyDocument, Document, ReadResult
from wigwag.sources.kubernetes.names import CRITICAL
from wigwag.sources.merge import Merger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from wigwag.kube.hub import Follow
    from wigwag.kube.watch.decode import Decode, Key
    from wigwag.sources.kubernetes.address import ObjectsAddress

MOST_OBJECTS = 10_000
NOTHING = Document(b'{"flags":{}}', "json")
Contents: TypeAlias = "dict[str, bytes]"
"""The documents of one object, by key."""


@dataclass(frozen=True, slots=True)
class ObjectsWatch:
    """The document that some objects hold."""

    address: ObjectsAddress
    remove: bool = False
    """Whether missing objects count as a document without flags."""
    most: int = 64 << 20
    """The largest size of all documents together, in bytes."""


class _FlagSpec(Struct, rename="camel"):
    flag_spec: Raw = Raw(b"")
    """The document, as the server sent it; empty if there is none."""
    remote_flag_provider: Raw = Raw(b"")


class _FlagMeta(Struct):
    annotations: dict[str, str] | None = None


class _Flag(Struct):
    metadata: _FlagMeta | None = None
    spec: _FlagSpec | None = None


class _ConfigMap(Struct):
    data: dict[str, str] | None = None
    binary: dict[str, str] | None = field(default=None, name="binaryData")


_flag = msgspec.json.Decoder(_Flag).decode
_config_map = msgspec.json.Decoder(_ConfigMap).decode


def decode_flag(raw: Raw) -> Contents:
    """Return the document of a FeatureFlag, as the server wrote it; its metadata are marked if the object is.

    One that only names a remote has no flags itself.

    >>> decode_flag(Raw(b'{"metadata": {"name": "a"}, "spec": {"flagSpec": {"flags": {}}}}'))
    {'': b'{"flags": {}}'}
    >>> decode_flag(Raw(b'{"spec": {"remoteFlagProvider": {"type": "http"}}}')), decode_flag(Raw(b'{"spec": {}}'))
    ({'': b'{"flags":{}}'}, {'': b''})
    >>> critical = b'{"annotations": {"openfeature.dev/critical": "true"}}'
    >>> decode_flag(Raw(b'{"metadata": %b, "spec": {"flagSpec": {"flags": {}}}}' % critical))
    {'': b'{"flags":{},"metadata":{"critical":true}}'}
    """
    flag = _flag(raw)
    if flag.spec is None:
        return {"": b""}
    document = bytes(flag.spec.flag_spec) or (NOTHING.content if bytes(flag.spec.remote_flag_provider) else b"")
    annotations = (flag.metadata and flag.metadata.annotations) or {}
    return {"": marked(document) if document and annotations.get(CRITICAL) == "true" else document}


def decode_config_map(raw: Raw) -> Contents:
    """Return the documents of a ConfigMap, in the order of its keys.

    >>> decode_config_map(Raw(b'{"data": {"b": "1"}, "binaryData": {"a": "Mg=="}}'))
    {'a': b'2', 'b': b'1'}
    """
    config_map = _config_map(raw)
    contents = {key: text.encode() for key, text in (config_map.data or {}).items()}
    try:
        contents |= {key: b64decode(text, validate=True) for key, text in (config_map.binary or {}).items()}
    except Base64Error as error:
        raise msgspec.ValidationError("binaryData is not base64") from error
    return dict(sorted(contents.items()))


class ObjectsReader:
    """Makes a document of the objects of a watch; remembers the last good part of each."""

    def __init__(self, spec: ObjectsWatch, merger: Merger) -> None:
        self._spec, self._merger, self._seen = spec, merger, False

    async def __call__(self, objects: Mapping[Key, Contents]) -> ReadResult[AnyDocument]:
        spec, address = self._spec, self._spec.address
        if len(objects) > MOST_OBJECTS:
            return _unavailable(f"{address}: there are more than {MOST_OBJECTS}; narrow the selector")
        parts = _parts(address, objects)
        if not parts:
            return self._missing(f"key {address.key} in {address}" if objects and address.key else str(address))
        self._seen = True
        if sum(map(len, parts.values())) > spec.most:
            return _unavailable(f"{address}: larger than the limit of {spec.most} bytes; raise maxBytes")
        if address.several:
            merged, problem = await self._merger.merge_in_turns(parts, None if address.kind == CONFIG_MAP else "json")
            return _unavailable(f"{address}: {problem}", merged) if problem else ReadResult(merged)
        ((key, content),) = parts.items()
        if not content:
            return _unavailable(f"{address} holds no document; write its flags into it")
        return ReadResult(Document(content, format_of(key) if address.key else "json"))

    def _missing(self, what: str) -> ReadResult[AnyDocument]:
        if self._spec.remove:
            return _unavailable(f"there is no {what}; with onDelete=remove it has no flags", NOTHING)
        if self._seen:
            return _unavailable(f"there is no {what} any more; its last flags stay in force until it is back")
        return _unavailable(f"there is no {what} yet; create it, or check the name")


def _unavailable(reason: str, document: AnyDocument | None = None) -> ReadResult[AnyDocument]:
    return ReadResult(document, Unavailable(reason))


def _parts(address: ObjectsAddress, objects: Mapping[Key, Contents]) -> dict[str, bytes]:
    """Return the documents by name, in order."""
    if not address.name:
        return {name: contents[""] for (_, name), contents in sorted(objects.items())}
    contents: Contents = next(iter(objects.values()), {})
    if address.kind != CONFIG_MAP or not address.key:
        return contents
    return {address.key: contents[address.key]} if address.key in contents else {}


async def watch_objects(
    spec: ObjectsWatch, follow: Follow, merger: Merger | None = None
) -> AsyncIterator[AnyDocument | Unavailable | Unchanged]:
    """Yield the document when it changes, `UNCHANGED` when it has not, or `Unavailable`."""
    read, result = ObjectsReader(spec, merger or Merger()), ReadResult[AnyDocument]()
    decode: Decode[Contents] = decode_config_map if spec.address.kind == CONFIG_MAP else decode_flag
    async with closing(follow(spec.address.watch(), decode)) as items:
        async for item in items:
            if isinstance(item, Unavailable):
                yield item
            elif isinstance(item, Unchanged):
                yield result.trouble or item
            else:
                last, result = result.value, await read(item)
                result = result._replace(value=result.value or last)
                for each in result.items(last):
                    yield each
