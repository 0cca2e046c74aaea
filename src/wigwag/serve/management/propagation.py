"""Digests of the documents that a process serves, for its page /propagation: made when somebody asks, once for each.

The digest is `document_digest`: of what a document says, and of nothing else. So whoever has a document can tell
whether an agent or a proxy has it, too. It stays with its document, because agents are asked again and again; and
nobody pays for digests that nobody asks for. Those of large documents are made in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from wigwag import jsontext
from wigwag.errors import WigwagError
from wigwag.flags.digests import document_digest
from wigwag.flags.document import UNDECODABLE, to_json
from wigwag.flags.model import Limits
from wigwag.wire.http import Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from wigwag.flags.document import Format
    from wigwag.wire.http import Headers

K = TypeVar("K", bound=Hashable)
PATH = b"/propagation"
LARGE = 16 << 10
"""Bytes of documents whose digests are made in a thread: for so many it takes half a millisecond."""
_JSON: Headers = ((b"content-type", b"application/json"),)
_decode = jsontext.decoder()


class ServedDocument(NamedTuple):
    """A document as it is kept."""

    owner: object
    """The object that holds the text: the same as long as the document is."""
    content: bytes | str
    format: Format | None = None


ServedDocuments: TypeAlias = "Mapping[K, ServedDocument]"


class DocumentDigests(Generic[K]):
    """The digests of documents, by what they are documents of."""

    def __init__(self) -> None:
        self._known: dict[K, tuple[object, str]] = {}

    def reply(
        self, documents: ServedDocuments[K], write: Callable[[Mapping[K, str]], Reply]
    ) -> Reply | Awaitable[Reply]:
        """Return what `write` makes of the digests of these documents."""
        new = {key: each for key, each in documents.items() if not self._is_known(key, each)}
        if sum(len(each.content) for each in new.values()) > LARGE:
            return self._reply_later(documents, new, write)
        self._known |= {key: (each.owner, _digest(each)) for key, each in new.items()}
        return write(self._of(documents))

    async def _reply_later(
        self, documents: ServedDocuments[K], new: ServedDocuments[K], write: Callable[[Mapping[K, str]], Reply]
    ) -> Reply:
        for key, each in new.items():
            self._known[key] = each.owner, await asyncio.to_thread(_digest, each)
        return write(self._of(documents))

    def _is_known(self, key: K, document: ServedDocument) -> bool:
        known = self._known.get(key)
        return known is not None and known[0] is document.owner

    def _of(self, documents: ServedDocuments[K]) -> dict[K, str]:
        """Return the digests, and forget those of what is served no longer."""
        self._known = {key: self._known[key] for key in documents if key in self._known}
        return {key: digest for key, (_, digest) in self._known.items()}


def json_reply(value: object) -> Reply:
    """Return a page in JSON."""
    return Reply(200, _JSON, msgspec.json.encode(value) + b"\n")


def _digest(document: ServedDocument) -> str:
    try:
        return document_digest(_decode(to_json(document.content, Limits(), document.format)))
    except (WigwagError, *UNDECODABLE):  # flags that were mended, or that nobody could write again
        return ""
