"""Counts every refused request, and logs them together, at most once a second."""

from __future__ import annotations

import logging
from collections import Counter as Tally
from typing import TYPE_CHECKING

from wigwag.observe import Counter

if TYPE_CHECKING:
    from wigwag.observe import Registry

QUIET_SECONDS = 1.0
log = logging.getLogger("wigwag.serve")


class Refusals:
    """How many requests were refused, by reason. Nothing that a client sent is kept or logged."""

    def __init__(self, registry: Registry) -> None:
        self._counter = Counter("wigwag_requests_refused", "Requests that were refused, by reason.", ("reason",))
        registry.add(self._counter)
        self._untold = Tally[str]()
        self._told = float("-inf")

    def note(self, reason: str, name: str, now: float) -> None:
        """Count one, of that caller or address."""
        self._counter.add((reason,))
        self._untold[reason] += 1
        if now - self._told >= QUIET_SECONDS:
            log.warning("requests refused", extra={"fields": {**self._untold, "last": name}})
            self._told = now
            self._untold.clear()
