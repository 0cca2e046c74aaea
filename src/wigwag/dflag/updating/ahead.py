"""Parsing large documents in a thread before they are needed, so that it does not block an event loop.

The result depends on nothing but the name and content of a document; so it does not matter when it is parsed, nor
whether it is needed in the end. Small ones are parsed when they are needed, because a thread would cost more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from wigwag.dflag.updating.documents import ValuesDocument, read_document
from wigwag.dflag.updating.places import rank
from wigwag.errors import DocumentError

if TYPE_CHECKING:
    from wigwag.dflag.updating.places import Place
    from wigwag.dflag.updating.plan import Opened, Picture

    Text: TypeAlias = tuple[str, bytes]
LARGE = 16 << 10
"""The least size that is worth a thread, in bytes; the slowest parser takes about a second for 1 MiB."""


class BackgroundParser:
    """Documents that were parsed ahead; it is called like `read_document`."""

    def __init__(self, read: Callable[[str, bytes], ValuesDocument] = read_document) -> None:
        self._read = read
        self._parsed: Mapping[Text, ValuesDocument | DocumentError] = {}

    def __call__(self, key: str, content: bytes) -> ValuesDocument:
        """Parse a document, or return what was parsed; `DocumentError` if it is not valid."""
        parsed = self._parsed.get((key, content)) if len(content) >= LARGE else None
        if isinstance(parsed, DocumentError):
            raise parsed.with_traceback(None)
        return self._read(key, content) if parsed is None else parsed

    async def prepare(self, picture: Picture, opened: Mapping[tuple[Place, str], Opened]) -> None:
        """Parse the large documents that are new, and forget those that are gone."""
        wanted = set(_large(picture, opened))
        known = {text: parsed for text, parsed in self._parsed.items() if text in wanted}
        fresh = wanted - known.keys()
        self._parsed = known | (await asyncio.to_thread(self._read_all, fresh) if fresh else {})

    def _read_all(self, texts: Collection[Text]) -> dict[Text, ValuesDocument | DocumentError]:
        return {text: self._try(*text) for text in texts}

    def _try(self, key: str, content: bytes) -> ValuesDocument | DocumentError:
        try:
            return self._read(key, content)
        except DocumentError as error:
            return error


def _large(picture: Picture, opened: Mapping[tuple[Place, str], Opened]) -> Iterator[Text]:
    """Yield the large documents that were not parsed before."""
    for place, contents in picture.items():
        for key, content in contents.items():
            if not isinstance(content, bytes) or len(content) < LARGE:
                continue
            before = opened.get((place, key))
            known = before is not None and before.document is not None and before.content == content
            if not known and rank(place.documents, key) < len(place.documents):
                yield key, content
