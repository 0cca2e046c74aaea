"""How the proxy is doing, for the management port and the log: targets, their subscribers, and their errors.

Subscribers choose the targets, so the number of targets in metrics and log lines is bounded.
"""

from __future__ import annotations

import logging
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.loglimit import LogLimiter
from wigwag.observe import Gauge
from wigwag.pipeline.statuslog import log_statuses
from wigwag.serve.access.local import LOCAL_ONLY, why_not_local
from wigwag.serve.management.statuses import status_fields, status_gauges
from wigwag.wire.http import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wigwag.observe import Registry
    from wigwag.pipeline.status import Status
    from wigwag.proxy.targets import Targets
    from wigwag.serve.management.manage import Page
    from wigwag.sources.source import Source
    from wigwag.wire.http import Headers, Request

MOST_SHOWN = 500
"""Targets that metrics tell apart."""
MOST_LOGGED = 100
"""Lines about targets in ten seconds: subscribers choose targets, and must not fill the log with them."""
_TARGET = ("target", "provider")
_JSON: Headers = ((b"content-type", b"application/json"),)
log = logging.getLogger("wigwag.proxy")


class ProxyReport:
    """What can be said about a running proxy."""

    def __init__(
        self, targets: Targets, now: Callable[[], float], *, everybody: bool = False, named: bool = True
    ) -> None:
        """With `everybody`, the debug page is not limited to clients on this machine.

        Without `named`, metrics do not tell targets apart: who may scrape them must not learn what tenants have.
        """
        self._targets, self._now, self._everybody, self._named = targets, now, everybody, named

    def pages(self) -> dict[bytes, Page]:
        """Return the debugging pages."""
        return {b"/debug/targets": self._page}

    def register(self, registry: Registry) -> None:
        """Write it all out as metrics, too."""
        registry.add(
            Gauge("sync_active_streams", "Open sync subscriptions.", lambda: [((), self._targets.subscribers)]),
            Gauge("wigwag_proxy_targets", "Targets that are watched, by state.", self._states, ("state",)),
            *status_gauges("wigwag_proxy_target", "target", _TARGET, self._shown, self._now),
            Gauge("wigwag_proxy_target_subscribers", "Open streams of a target.", self._subscribers, _TARGET),
            self._targets.refusals,
            self._targets.critical.changes,
        )

    async def log_targets(self) -> None:
        """Log each target when its state or its error changes, and when it is no longer watched."""
        limited = LogLimiter(log, MOST_LOGGED)

        def write(level: int, source: Source, text: str) -> None:
            limited.log(level, self._now(), "target %s: %s", source.name, text)

        await log_statuses(self._targets.pipeline, write)

    def _page(self, request: Request) -> Reply:
        if not self._everybody and (reason := why_not_local(request)):
            refused = {"error": f"{LOCAL_ONLY.format('proxy')}: {reason}"}
            return Reply(403, _JSON, msgspec.json.encode(refused) + b"\n")
        page = {"subscribers": self._targets.subscribers, "targets": self.targets()}
        return Reply(200, _JSON, msgspec.json.encode(page) + b"\n")

    def targets(self) -> list[dict[str, Any]]:
        """Return how each target is doing."""
        return [self._described(status) for status in self._statuses()]

    def _described(self, status: Status[Source]) -> dict[str, Any]:
        target = self._targets.get(status.spec)
        document = None if target is None else target.document
        return {
            "target": status.spec.name,
            "provider": status.spec.provider,
            "subscribers": 0 if target is None else target.subscribers,
            "sent": 0 if target is None else target.sent,
            "characters": None if document is None else len(document.text),
        } | status_fields(status, self._now())

    def _statuses(self) -> tuple[Status[Source], ...]:
        return self._targets.pipeline.statuses()

    def _shown(self) -> Iterator[tuple[tuple[str, ...], Status[Source]]]:
        """Targets that differ by something secret, or by how they are asked, have one name: the first is shown."""
        if not self._named:
            return islice((), 0)
        known = {(status.spec.name, status.spec.provider): status for status in reversed(self._statuses())}
        return islice(known.items(), MOST_SHOWN)

    def _states(self) -> Iterator[tuple[tuple[str, ...], float]]:
        counts = Counter(status.state for status in self._statuses())
        return (((state,), float(counts[state])) for state in ("starting", "live", "failing"))

    def _subscribers(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for labels, status in self._shown():
            target = self._targets.get(status.spec)
            if target is not None:
                yield labels, float(target.subscribers)
