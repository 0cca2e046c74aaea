"""One document of several that make up a source: its flags, each with all that it inherits there.

Metadata and shared rules of a document apply to its own flags only. So metadata is written with each flag, and shared
rules are inlined: then flags of several parts can be in one document. Flags are not checked here. A bad one stays
unchanged, so that loading can put it in quarantine and keep its last good definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Raw

from wigwag import jsontext
from wigwag.errors import DocumentError
from wigwag.flags.critical import digest_flags
from wigwag.flags.document import UNDECODABLE, decode_object, duplicates, key_of, read
from wigwag.flags.rules import refs
from wigwag.flags.selector import set_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from wigwag.flags.document import FlagDocument, Format
    from wigwag.flags.model import Limits

Place: TypeAlias = tuple[str, str]
"""The flag set and the key of a flag."""
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.encode
_decode = jsontext.decoder()


class Part:
    """The flags of one document, as text. Immutable."""

    __slots__ = ("_critical", "_duplicates", "_members", "flags", "mended", "sets", "size", "text")

    def __init__(self, document: FlagDocument, flags: dict[Place, Raw]) -> None:
        self.text, self.mended = document.text, document.mended
        self.flags = flags
        self.sets = tuple(dict.fromkeys(set_id for set_id, _ in flags))
        self.size = sum(map(len, map(bytes, flags.values())))
        self._duplicates: tuple[str, ...] | None = None
        self._members: bytes | None = None
        self._critical: bytes | None = None

    def says(self, other: Part) -> bool:
        """Return whether another part has the same content."""
        same = self.flags == other.flags and self.mended == other.mended
        return self is other or (same and self.duplicates == other.duplicates)

    @property
    def duplicates(self) -> tuple[str, ...]:
        """The paths of members that appear twice in one object."""
        if self._duplicates is None:
            self._duplicates = tuple(duplicates(self.text))
        return self._duplicates

    @property
    def critical(self) -> bytes:
        """The digest of its critical flags (see `critical`)."""
        if self._critical is None:
            self._critical = digest_flags((key, text) for (_, key), text in self.flags.items())
        return self._critical

    @property
    def members(self) -> bytes:
        """The flags as members of a JSON object, without its braces; to be used if no key appears twice."""
        if self._members is None:
            self._members = _encode({key: text for (_, key), text in self.flags.items()})[1:-1]
        return self._members


def read_part(content: bytes, limits: Limits, format: Format | None) -> Part:
    """Read one document; `DocumentError` if it cannot be read, or its flags with what they inherit are too large."""
    document = read(content, limits, format, whole=False)
    flags, left = {}, limits.document_bytes
    for place, text in _flags(document):
        left -= len(bytes(text))
        if left < 0:
            raise DocumentError(
                f"the flags with their metadata and shared rules are larger than {limits.document_bytes} bytes; "
                "write less metadata for the whole document, or shorter shared rules"
            )
        flags[place] = text
    return Part(document, flags)


def written(parts: Iterable[Part]) -> bytes:
    """Write parts as one document, which loads to what they are on top of each other: the last one wins.

    An object, which is how errors can name flags; an array if two flag sets have the same key.
    """
    parts = tuple(parts)
    keys = {key for part in parts for _, key in part.flags}
    if len(keys) == sum(len(part.flags) for part in parts):
        return b'{"flags":{' + b",".join([part.members for part in parts if part.flags]) + b"}}"
    flags: dict[Place, Raw] = {}
    for part in parts:
        for place, text in part.flags.items():
            flags.pop(place, None)
            flags[place] = text
    if len(keys) == len(flags):
        return _encode({"flags": {key: text for (_, key), text in flags.items()}})
    return _encode({"flags": [_keyed(key, text) for (_, key), text in flags.items()]})


def _flags(document: FlagDocument) -> Iterator[tuple[Place, Raw]]:
    """Return the flags of a document, each with all that it inherits."""
    evaluators = decode_object(document.evaluators, "$.$evaluators")
    metadata = decode_object(document.metadata, "$.metadata")
    for place, text in document.texts().items():
        key = key_of(place, text) or (f"#{place}" if isinstance(place, int) else "")
        try:
            members: dict[str, Any] = dict(_object(text))
            own = _decode(members.get("metadata", Raw(b"null")))
        except UNDECODABLE:
            yield (set_id_of(metadata), key), Raw(bytes(text))  # no object: loading it will say so
            continue
        whole = metadata | own if own.__class__ is dict else metadata
        if own is None or own.__class__ is dict:
            members["metadata"] = whole
        if evaluators and b"$ref" in bytes(members.get("targeting", b"")).replace(b"\\u0024", b"$"):
            members["targeting"] = _inlined(members["targeting"], evaluators)
        yield (set_id_of(whole), key), Raw(_encode(members | {"key": key}))


def _inlined(rule: Raw, evaluators: dict[str, Any]) -> Any:
    """Return a rule with its references resolved; unchanged if that fails, so that it fails where it is used."""
    try:
        return refs.inline(_decode(rule), evaluators)
    except (DocumentError, *UNDECODABLE):
        return rule


def _keyed(key: str, text: Raw) -> Raw:
    return text if bytes(text).lstrip()[:1] == b"{" else Raw(_encode({"key": key, "variants": text}))
