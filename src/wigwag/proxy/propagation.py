"""Which documents a proxy has sent to how many subscribers: how the operator counts clients that it cannot ask.

    GET /propagation ─▶ {"targets": [{"target": …, "provider": …, "digest": …, "subscribers": 12, "sent": 12}]}

`sent` are the streams on which the newest document has left. That is all a proxy knows: a client says nothing back. A
stream without room for it is not among them (`wire.server.broadcast`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.serve.management.propagation import PATH, DocumentDigests, ServedDocument, json_reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from wigwag.proxy.targets import SyncTarget, Targets
    from wigwag.serve.management.manage import Page
    from wigwag.sources.source import Source
    from wigwag.wire.http import Reply, Request


class TargetPropagation:
    """The page."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._digests: DocumentDigests[Source] = DocumentDigests()

    def pages(self) -> dict[bytes, Page]:
        """Return the page by its path."""
        return {PATH: self._page}

    def _page(self, _: Request) -> Reply | Awaitable[Reply]:
        served = {
            target.source: ServedDocument(target.document, target.document.text, "json")
            for target in self._targets
            if target.document is not None
        }
        return self._digests.reply(served, self._reply)

    def _reply(self, digests: Mapping[Source, str]) -> Reply:
        return json_reply({"targets": [_described(each, digests.get(each.source, "")) for each in self._targets]})


def _described(target: SyncTarget, digest: str) -> dict[str, str | int]:
    source = target.source
    numbers = {"subscribers": target.subscribers, "sent": target.sent}
    return {"target": source.name, "provider": source.provider, "digest": digest, **numbers}
