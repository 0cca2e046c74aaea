"""Which documents an agent serves, each as a digest: how the operator knows that a change has arrived.

    GET /propagation ─▶ {"sources": [{"priority": 0, "source": …, "provider": …, "state": "live", "digest": …}]}

The digest is that of the document from which the flags in force were loaded (`document_digest`), so whoever has the
document can tell whether this agent has it, too: the way it took and its priority do not matter. A document that could
not be loaded is not served, and the digest stays that of the last one. Before the first snapshot, and for flags that
were restored from disk, there is none.

The hard case is a thousand agents that are asked again and again: the answer is made when it has changed, and digests
only when somebody asks, those of large documents in a thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from wigwag import jsontext
from wigwag.agent.assemble import LARGE
from wigwag.errors import WigwagError
from wigwag.flags.digests import document_digest
from wigwag.flags.document import UNDECODABLE, to_json
from wigwag.flags.model import Limits
from wigwag.sources.document import Document
from wigwag.wire.http import Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from wigwag.agent.facts import Value
    from wigwag.pipeline.run import Pipeline
    from wigwag.serve.management.manage import Page
    from wigwag.serve.snapshot import Snapshot
    from wigwag.sources.document import AnyDocument
    from wigwag.sources.source import Source
    from wigwag.wire.http import Headers, Request

PATH = b"/propagation"
_JSON: Headers = ((b"content-type", b"application/json"),)
_decode = jsontext.decoder()


class Propagation:
    """The page. `documents` has what the flags of each source were loaded from."""

    def __init__(
        self, pipeline: Pipeline[Source, Value, Snapshot], documents: Callable[[], Mapping[Source, AnyDocument]]
    ) -> None:
        self._pipeline, self._documents = pipeline, documents
        self._digests: dict[Source, tuple[AnyDocument, str]] = {}
        self._written: tuple[object, Reply] | None = None

    def pages(self) -> dict[bytes, Page]:
        """Return the page by its path."""
        return {PATH: self._page}

    def _page(self, _: Request) -> Reply | Awaitable[Reply]:
        served = dict(self._documents()) if self._pipeline.published.serial else {}
        new = {source: each for source, each in served.items() if not self._is_known(source, each)}
        if sum(len(each.content) for each in new.values() if isinstance(each, Document)) > LARGE:
            return self._digested_in_thread(new, served)
        for source, document in new.items():
            self._digests[source] = document, _digest(document)
        return self._reply(served)

    def _is_known(self, source: Source, document: AnyDocument) -> bool:
        known = self._digests.get(source)
        return known is not None and known[0] is document

    async def _digested_in_thread(
        self, new: Mapping[Source, AnyDocument], served: Mapping[Source, AnyDocument]
    ) -> Reply:
        for source, document in new.items():
            self._digests[source] = document, await asyncio.to_thread(_digest, document)
        return self._reply(served)

    def _reply(self, served: Mapping[Source, AnyDocument]) -> Reply:
        said = tuple(
            (status.spec, status.state, self._digests[status.spec][1] if status.spec in served else "")
            for status in self._pipeline.statuses()
        )
        if self._written is None or self._written[0] != said:
            sources = [
                {
                    "priority": source.position,
                    "source": source.name,
                    "provider": source.provider,
                    "state": state,
                    "digest": digest,
                }
                for source, state, digest in said
            ]
            self._written = said, Reply(200, _JSON, msgspec.json.encode({"sources": sources}) + b"\n")
        return self._written[1]


def _digest(document: AnyDocument) -> str:
    """Return the digest of one document; several that were merged have none."""
    if not isinstance(document, Document):
        return ""
    try:
        return document_digest(_decode(to_json(document.content, Limits(), document.format)))
    except (WigwagError, *UNDECODABLE):  # flags that were mended, or that nobody could write again
        return ""
