"""Which sources are stale: their flags were restored from a file, or have not been confirmed for too long.

Stale flags are evaluated as before, but with the reason STALE. Evaluations read one attribute; `run` keeps it up to
date. It waits for a status to change, or for the time at which the next source becomes stale.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from wigwag.agent.facts import FACTS
from wigwag.pipeline.clock import wait_event
from wigwag.sources.kinds import heartbeat

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from wigwag.agent.facts import Value
    from wigwag.pipeline.clock import Clock
    from wigwag.pipeline.run import Pipeline
    from wigwag.pipeline.status import Status
    from wigwag.serve.snapshot import Snapshot
    from wigwag.sources.source import Source

LOOK_SECONDS = 0.5
"""How soon it is noticed that a stale source is fresh again."""
_NEVER = 86400.0
log = logging.getLogger("wigwag.agent")


def stale(statuses: Iterable[Status[Source]], now: float, limit: float) -> tuple[frozenset[Source], float]:
    """Return which sources are stale, and how many seconds that surely stays so; a limit of 0 is none."""
    too_old, pause = set(), _NEVER
    for status in statuses:
        age = None if status.spec.provider in FACTS else status.age(now)  # what facts say is not marked with it
        if status.restored or (limit and age is not None and age > limit):
            too_old.add(status.spec)
            pause = min(pause, LOOK_SECONDS)
        elif limit and age is not None:
            pause = min(pause, max(limit - age, LOOK_SECONDS / 10))
    return frozenset(too_old), pause


def too_strict(sources: Iterable[Source], limit: float) -> Iterator[str]:
    """Return warnings about sources that would be stale though nothing is wrong with them."""
    for source in sources:
        if limit and heartbeat(source) >= limit:
            yield (
                f"source {source.name}: its flags are known to hold every {heartbeat(source):g} s at best,"
                f" so --stale-after={limit:g}s calls them stale in between; make that longer"
            )


class Freshness:
    """What is stale now."""

    def __init__(self, pipeline: Pipeline[Source, Value, Snapshot], clock: Clock, limit: float) -> None:
        self._pipeline, self._clock, self._limit = pipeline, clock, limit
        self._news = asyncio.Event()
        self._stale: frozenset[Source] = frozenset()
        self.stale: frozenset[Hashable] = frozenset()

    def age(self, origin: Hashable) -> float | None:
        """Return how long ago the flags of a source were known to hold, in seconds."""
        ages = (status.age(self._clock.now()) for status in self._pipeline.statuses() if status.spec == origin)
        return next(ages, None)

    async def run(self) -> None:
        """Keep it true until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            while True:
                await wait_event(self._clock, self._news, self._clock.now() + self.look())

    def look(self) -> float:
        """Update what is stale; return how many seconds that holds."""
        before, (now_stale, pause) = self._stale, stale(self._pipeline.statuses(), self._clock.now(), self._limit)
        if now_stale != before:
            self._stale, self.stale = now_stale, frozenset(now_stale)
            for source in now_stale - before:
                log.warning("source %s: its flags are stale; evaluations report STALE", source.name)
            for source in before - now_stale:
                log.info("source %s: its flags are fresh again", source.name)
        return pause

    async def _listen(self) -> None:
        async for _ in self._pipeline.status_changes:
            self._news.set()
