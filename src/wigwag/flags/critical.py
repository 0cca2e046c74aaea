"""Critical flags: those that say `critical: true` in their metadata, or inherit it from the metadata of their document.

A change is critical if a flag that is critical before or after it differs. A digest of all critical flags decides that:
it differs exactly then, since a flag that becomes critical, or ceases to be, is in one of the two digests only. Shared
rules count if a critical flag may refer to one.

The flags are compared as text, so that those who pass documents on need not load them: proxy and operator ask as well
as the agent. Nearly all documents have no such flag; they are told by a search for the word.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from wigwag import jsontext
from wigwag.errors import DocumentError
from wigwag.flags.document import UNDECODABLE, decode_object, read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.flags.document import FlagDocument, Format
    from wigwag.flags.model import Limits

CRITICAL = "critical"
"""The member of a flag's metadata, or of a document's, that marks critical flags."""
NONE = b""
"""The digest where no flag is critical."""
_WORD = CRITICAL.encode()
_SIZE = 16


class _MarkedFlag(Struct):
    metadata: Any = None


_decode_marked = jsontext.decoder(_MarkedFlag)
_members = msgspec.json.Decoder(dict[str, Raw]).decode


def critical_digest(content: bytes, limits: Limits, format: Format | None = None) -> bytes:
    """Return the digest of the critical flags of a document; `NONE` if there are none, or it cannot be read.

    >>> from wigwag.flags.model import Limits
    >>> def of(text): return critical_digest(text, Limits()).hex()[:6]
    >>> of(b'{"flags": {"a": {"state": "ENABLED"}}}')
    ''
    >>> of(b'{"flags": {"a": {"metadata": {"critical": true}}, "b": {"state": "ENABLED"}}}')
    '9c0481'
    >>> of(b'{"flags": {"a": {"metadata": {"critical": true}}, "b": {"state": "DISABLED"}}}')
    '9c0481'
    """
    if _WORD not in content:
        return NONE
    try:
        document = read(content, limits, format, whole=False)
        return _digest(document)
    except DocumentError:  # which loading it will say
        return NONE


def digest_flags(flags: Iterable[tuple[str, Raw]]) -> bytes:
    """Return the digest of those flags that say themselves that they are critical."""
    return _combined([(name, bytes(text)) for name, text in flags if _mark(text)])


def combine(digests: Iterable[bytes]) -> bytes:
    """Return one digest for several documents; `NONE` if none of them has a critical flag."""
    return _combined([("", digest) for digest in digests if digest])


def marked(document: bytes) -> bytes:
    """Return a JSON document whose flags are all critical, unless they say that they are not.

    >>> marked(b'{"flags": {"a": {}}, "metadata": {"team": "shop"}}')
    b'{"flags":{"a": {}},"metadata":{"team":"shop","critical":true}}'
    """
    try:
        members = _members(document)
        metadata = msgspec.json.decode(members.get("metadata", Raw(b"{}")), type=dict[str, Raw])
    except UNDECODABLE:
        return document  # loading it will say why
    metadata.setdefault(CRITICAL, Raw(b"true"))
    return msgspec.json.encode({**members, "metadata": metadata})


def _digest(document: FlagDocument) -> bytes:
    inherited = decode_object(document.metadata, "$.metadata").get(CRITICAL) is True
    flags = [
        (str(place), bytes(text))
        for place, text in document.texts().items()
        if (inherited if (own := _mark(text)) is None else own)
    ]
    if any(b"$ref" in text for _, text in flags):
        flags.append(("$evaluators", bytes(document.evaluators)))
    return _combined(flags)


def _mark(text: Raw) -> bool | None:
    """Return what a flag says of itself; None: nothing."""
    if _WORD not in bytes(text):
        return None
    try:
        metadata = _decode_marked(text).metadata
    except UNDECODABLE:
        return None
    mark = metadata.get(CRITICAL) if metadata.__class__ is dict else None
    return mark if mark.__class__ is bool else None


def _combined(texts: list[tuple[str, bytes]]) -> bytes:
    if not texts:
        return NONE
    digest = blake2b(digest_size=_SIZE)
    for name, text in texts:
        for part in (name.encode("utf-8", "backslashreplace"), text):
            digest.update(b"%d:" % len(part))
            digest.update(part)
    return digest.digest()
