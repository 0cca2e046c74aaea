"""Several documents become one, which loads to what they would be on top of each other: the last one wins.

Each is a whole document: its metadata and its shared rules are for its own flags. So metadata is written with each
flag, and shared rules are put where they are referred to. Flags are not judged here. A bad one is carried along as it
is, so that whoever loads the result can put it in quarantine and keep its last good definition.

A document that cannot be read at all is the trouble of its own: what it said last stays, and the others load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wigwag.errors import DocumentError
from wigwag.flags import refs
from wigwag.flags.document import format_of, read
from wigwag.flags.model import Limits
from wigwag.flags.selector import FLAG_SET

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wigwag.flags.document import Document, Format

    Flags = dict[tuple[str, str], Raw]
    """The text of each flag by flag set and key."""

_UNDECODABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.encode
_LIMITS = Limits()


class Merger:
    """Merges documents by name, and remembers the last that could be read of each."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, Flags]] = {}

    def merge(self, documents: Mapping[str, bytes], format: Format | None = None) -> tuple[bytes, str]:
        """Return the documents as one, and what is wrong with those that cannot be read; empty if all can.

        `format`: what they all are; without it, names and texts tell.
        """
        known: dict[str, tuple[bytes, Flags]] = {}
        flags: Flags = {}
        problems = []
        for name, content in documents.items():
            try:
                known[name] = self._read(name, content, format)
            except DocumentError as error:
                problems.append(f"{name}: {error}")
                if name in self._known:
                    known[name] = self._known[name]
            for place, flag in known.get(name, (b"", {}))[1].items():
                flags.pop(place, None)
                flags[place] = flag
        self._known = known
        return _written(flags), _few(problems)

    def _read(self, name: str, content: bytes, format: Format | None) -> tuple[bytes, Flags]:
        before = self._known.get(name)
        if before is not None and before[0] == content:
            return before
        return content, dict(_flags(read(content, _LIMITS, format or format_of(name), whole=False)))


def _flags(document: Document) -> Iterator[tuple[tuple[str, str], Raw]]:
    """Return the flags of a document, each with all that it inherits."""
    evaluators, metadata = _inherited(document.evaluators, "$evaluators"), _inherited(document.metadata, "metadata")
    for key, text in _texts(document):
        try:
            members: dict[str, Any] = dict(_object(text))
            own = msgspec.json.decode(members.get("metadata", Raw(b"null")))
        except _UNDECODABLE:
            yield ("", key), text  # no object: whoever loads it will say so
            continue
        whole = metadata | own if own.__class__ is dict else metadata
        if own is None or own.__class__ is dict:
            members["metadata"] = whole
        if evaluators and b"$ref" in bytes(members.get("targeting", b"")).replace(b"\\u0024", b"$"):
            members["targeting"] = _inlined(members["targeting"], evaluators)
        set_id = whole.get(FLAG_SET)
        yield (set_id if set_id.__class__ is str else "", key), Raw(_encode(members | {"key": key}))


def _texts(document: Document) -> Iterator[tuple[str, Raw]]:
    """Return the text of each flag with its key; in an array, a flag without one cannot be meant."""
    raw = document.flags
    start = bytes(raw)[:1]
    try:
        if start == b"{":
            yield from _object(raw).items()
        elif start == b"[":
            for number, text in enumerate(_array(raw)):
                yield _key(text) or f"#{number}", text
        elif start != b"n":
            raise DocumentError('no `flags`; a document without flags says {"flags": {}}')
    except _UNDECODABLE as error:
        raise DocumentError("$.flags: cannot be read") from error


def _key(text: Raw) -> str:
    try:
        key = msgspec.json.decode(_object(text).get("key", Raw(b"null")))
    except _UNDECODABLE:
        return ""
    return key if key.__class__ is str else ""


def _inherited(raw: Raw, member: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except _UNDECODABLE as error:
        raise DocumentError(f"$.{member}: cannot be read") from error
    if value is not None and value.__class__ is not dict:
        raise DocumentError(f"$.{member}: must be an object")
    return value or {}


def _inlined(rule: Raw, evaluators: dict[str, Any]) -> Any:
    """Return a rule with its references resolved; one that cannot be, as it is, so that it fails where it is used."""
    try:
        return refs.inline(msgspec.json.decode(rule), evaluators)
    except (DocumentError, *_UNDECODABLE):
        return rule


def _written(flags: Flags) -> bytes:
    """Write the flags as an object, which is how errors can name them; as an array if two sets have the same key."""
    if len({key for _, key in flags}) == len(flags):
        return _encode({"flags": {key: text for (_, key), text in flags.items()}})
    return _encode({"flags": [_keyed(key, text) for (_, key), text in flags.items()]})


def _keyed(key: str, text: Raw) -> Raw:
    return text if bytes(text).lstrip()[:1] == b"{" else Raw(_encode({"key": key, "variants": text}))


def _few(problems: list[str]) -> str:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}" if problems else ""
