"""Simulated sources: a document on the other side, and a link to it that delivers, fails, hangs or lies low.

A link is what the agent watches in the place of a file or a server. It tells the model what it delivers at the moment
it does, so the model never has to guess in which order things came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.sources.document import Document

if TYPE_CHECKING:
    from tests.simulation.flags import Doc
    from tests.simulation.model import Upstream

LONGEST_PAUSE = 30.0
FAULTS = ("trouble", "raise", "refuse", "end", "cancel", "hang")
_DELIVER, _CONFIRM = "deliver", "confirm"
_ERRORS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "raise": (lambda: RuntimeError("out of order"), "RuntimeError: out of order"),
    "refuse": (lambda: ConnectionRefusedError(111, "Connection refused"), "ConnectionRefusedError: "),
    "cancel": (lambda: asyncio.CancelledError("by an inner task"), "CancelledError"),
}


class Link:
    """The way to one source. `mode` is what becomes of it when it is used: up, or one of the faults."""

    def __init__(self, upstream: Upstream, doc: Doc, now: Callable[[], float], limit: float, *, strict: bool) -> None:
        self.upstream, self.doc, self.mode = upstream, doc, "up"
        self._now, self._limit, self._strict = now, limit, strict
        self._inbox: asyncio.Queue[Any] | None = None
        self._sent: Doc | None = None
        self.away_since: float | None = None
        self.begun: float = 0.0
        self.accepted: Callable[[], None] = lambda: None

    @property
    def connected(self) -> bool:
        return self._inbox is not None

    def begin(self) -> None:
        """Note that another life of the agent begins."""
        self.away_since = self.begun = self._now()

    def deliver(self) -> None:
        """Deliver the document, be it new or not."""
        self._put(_DELIVER)

    def confirm(self) -> None:
        """Say that the document is still the same, if it is."""
        self._put(_CONFIRM)

    def fail(self, how: str) -> None:
        """Fail in one way, and go on failing in that way."""
        self.mode = how
        self._put(how)

    def restore(self) -> None:
        """Be well again."""
        self.mode = "up"
        self._put(_DELIVER)

    def _put(self, what: str) -> None:
        if self._inbox is not None:
            self._inbox.put_nowait(what)

    async def documents(self) -> AsyncIterator[Document | Unavailable | Any]:
        """Be watched."""
        inbox = self._inbox = asyncio.Queue()
        self._sent, self.away_since = None, None
        self.upstream.starts += 1
        self._put(_DELIVER if self.mode == "up" else self.mode)
        try:
            while (what := await inbox.get()) != "end":
                item = self._act(what)
                if item is not None:
                    yield item
            self.upstream.failed("the watch ended")
        finally:
            if self._inbox is inbox:
                self._inbox, self.away_since = None, self._now()

    def _act(self, what: str) -> Any:
        """Return what to yield, if anything; or raise."""
        upstream, now = self.upstream, self._now()
        if what == "hang":
            return None
        if what == "trouble":
            upstream.failed("away")
            return Unavailable("away")
        if what in _ERRORS:
            error, told = _ERRORS[what]
            upstream.failed(told)
            raise error()
        if what == _CONFIRM and self._sent is self.doc:
            upstream.unchanged(now, self._limit)
            return UNCHANGED
        self._sent = self.doc
        if upstream.delivered(self.doc, now, self._limit, strict=self._strict):
            self.accepted()
        return Document(self.doc.text, "json" if len(self.doc.text) % 2 else None)
