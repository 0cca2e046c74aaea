"""Which documents are passed on: flag documents, as they came.

Flags are not looked at: what a client does not understand is between it and who wrote it. But a document must be one,
an object with `flags` in it, and text. One that was cut short is trouble with its target, and the last good one stays;
and a file that is no flag document (a token, a key, some other program's configuration) is never sent to a client.
YAML becomes JSON, because that is what clients read; flagd-proxy does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from wigwag.errors import DocumentError
from wigwag.flags.document import to_json
from wigwag.flags.model import Limits
from wigwag.sources.critical import digest_of
from wigwag.sources.document import Merged

if TYPE_CHECKING:
    from wigwag.sources.document import AnyDocument
    from wigwag.sources.source import Source

NOT_ONE = "it is no flag document: that is a JSON or YAML object with the member flags"


class RelayedDocument(Struct, frozen=True, eq=False):
    """A document to be passed on. Documents are compared by identity: the same text again is a new document."""

    text: str
    critical: bool = False
    """Whether it has critical flags, so that it is sent before others."""


class _Shape(Struct):
    flags: Raw


_shape = msgspec.json.Decoder(_Shape).decode


def check(source: Source, document: AnyDocument) -> RelayedDocument:
    """Return a document as it is passed on; `DocumentError` if it is none. Nothing of its text is in the message."""
    try:
        limits = Limits(document_bytes=source.settings.most)
        text = to_json(document.content, limits, document.format)
        if not isinstance(document, Merged):  # which was put together here: reading it again would tell nothing
            _shape(text)
        return RelayedDocument(text if isinstance(text, str) else text.decode(), bool(digest_of(source, document)))
    except msgspec.MsgspecError as error:
        raise DocumentError(f"{NOT_ONE} ({error})") from None  # which tells a place, and quotes nothing
    except (ValueError, RecursionError):
        raise DocumentError(NOT_ONE) from None
