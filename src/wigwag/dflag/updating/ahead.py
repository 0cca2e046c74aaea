"""Large documents, read in a thread before they are needed, so that a loop with other things to do goes on meanwhile.

What a document says depends on nothing but its name and its content; so it does not matter when it is read, nor whether
it is needed in the end. Small ones are read when they are needed, because a thread would cost more than that.
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
"""The least size that is worth a thread, in bytes; the slowest format reads about 1 MiB in a second."""


class BackgroundParser:
    """What was read ahead; it is asked as `read_document` is."""

    def __init__(self, read: Callable[[str, bytes], ValuesDocument] = read_document) -> None:
        self._read = read
        self._found: Mapping[Text, ValuesDocument | DocumentError] = {}

    def __call__(self, key: str, content: bytes) -> ValuesDocument:
        """Return what a document says; `DocumentError` if it is none."""
        found = self._found.get((key, content)) if len(content) >= LARGE else None
        if isinstance(found, DocumentError):
            raise found.with_traceback(None)
        return self._read(key, content) if found is None else found

    async def prepare(self, picture: Picture, opened: Mapping[tuple[Place, str], Opened]) -> None:
        """Read all that is large and not known from the last time; what is no longer there is forgotten."""
        wanted = set(_large(picture, opened))
        known = {text: found for text, found in self._found.items() if text in wanted}
        fresh = wanted - known.keys()
        self._found = known | (await asyncio.to_thread(self._read_all, fresh) if fresh else {})

    def _read_all(self, texts: Collection[Text]) -> dict[Text, ValuesDocument | DocumentError]:
        return {text: self._try(*text) for text in texts}

    def _try(self, key: str, content: bytes) -> ValuesDocument | DocumentError:
        try:
            return self._read(key, content)
        except DocumentError as error:
            return error


def _large(picture: Picture, opened: Mapping[tuple[Place, str], Opened]) -> Iterator[Text]:
    """Yield the large documents of which it is not known what they say."""
    for place, contents in picture.items():
        for key, content in contents.items():
            if not isinstance(content, bytes) or len(content) < LARGE:
                continue
            before = opened.get((place, key))
            known = before is not None and before.document is not None and before.content == content
            if not known and rank(place.documents, key) < len(place.documents):
                yield key, content
