"""Which documents an agent serves, each as a digest: how the operator knows that a change has arrived.

    GET /propagation ─▶ {"sources": [{"priority": 0, "source": …, "provider": …, "state": "live", "digest": …}]}

The digest is that of the document from which the flags in force were loaded; the way it took and its priority do not
matter. A document that could not be loaded is not served, and the digest stays that of the last one. Before the first
snapshot, for flags that were restored from disk, and for several documents that were merged, there is none.

The answer is made again only when it has changed: it is asked for more often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.serve.management.propagation import PATH, DocumentDigests, ServedDocument, json_reply
from wigwag.sources.document import Document

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from wigwag.agent.facts import Value
    from wigwag.pipeline.run import Pipeline
    from wigwag.serve.management.manage import Page
    from wigwag.serve.snapshot import Snapshot
    from wigwag.sources.document import AnyDocument
    from wigwag.sources.source import Source
    from wigwag.wire.http import Reply, Request


class Propagation:
    """The page. `documents` has what the flags of each source were loaded from."""

    def __init__(
        self, pipeline: Pipeline[Source, Value, Snapshot], documents: Callable[[], Mapping[Source, AnyDocument]]
    ) -> None:
        self._pipeline, self._documents = pipeline, documents
        self._digests: DocumentDigests[Source] = DocumentDigests()
        self._written: tuple[object, Reply] | None = None

    def pages(self) -> dict[bytes, Page]:
        """Return the page by its path."""
        return {PATH: self._page}

    def _page(self, _: Request) -> Reply | Awaitable[Reply]:
        loaded = self._documents().items() if self._pipeline.published.serial else ()
        served = {source: ServedDocument(each, *each) for source, each in loaded if isinstance(each, Document)}
        return self._digests.reply(served, self._reply)

    def _reply(self, digests: Mapping[Source, str]) -> Reply:
        said = tuple((each.spec, each.state, digests.get(each.spec, "")) for each in self._pipeline.statuses())
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
            self._written = said, json_reply({"sources": sources})
        return self._written[1]
