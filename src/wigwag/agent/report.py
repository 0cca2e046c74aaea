"""How the agent is doing, for the management port and the log: sources, snapshots, problems of documents, readiness."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from wigwag.flags.checks.findings import layer_problems
from wigwag.observe import Gauge
from wigwag.serve.management.statuses import status_fields, status_gauges

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from wigwag.agent.facts import Value
    from wigwag.agent.freshness import Freshness
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Finding
    from wigwag.flags.parse import Layer
    from wigwag.observe import Registry
    from wigwag.pipeline.run import Pipeline
    from wigwag.pipeline.status import Status
    from wigwag.serve.snapshot import Snapshot
    from wigwag.sources.source import Source

log = logging.getLogger("wigwag.agent")
MANY = 500
"""More flags than this are checked in a thread."""
TURNS = 3
"""Turns of the event loop that the log and the search for problems wait, so that clients get a change first."""
_SOURCE = ("source", "priority")
"""The same file may be a source twice; its place in the order tells which."""


class AgentReport:
    """What can be said about a running agent."""

    def __init__(
        self,
        pipeline: Pipeline[Source, Value, Snapshot],
        now: Callable[[], float],
        freshness: Freshness,
        *,
        required: frozenset[Source],
        only_fresh: bool = False,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        """`only_fresh`: not ready while a required source is stale. `settled` is called after the first snapshot."""
        self._pipeline, self._now = pipeline, now
        self._freshness, self._required, self._only_fresh = freshness, required, only_fresh
        self._ready = self._logged_ready = False
        self._waiting: list[str] = []
        self._settled = settled

    @property
    def _snapshot(self) -> Snapshot:
        return self._pipeline.published.value

    def ready(self) -> bool:
        """Return whether every required source has answered once, or its restored flags are served.

        Once ready, it stays ready, unless readiness requires fresh flags.
        """
        statuses = [status for status in self._pipeline.statuses() if status.spec in self._required]
        answered = self._pipeline.published.serial > 0 and all(status.confirmed is not None for status in statuses)
        self._ready = self._ready or answered
        stale = self._only_fresh and not self._required.isdisjoint(self._freshness.stale)
        return self._ready and not stale

    def sources(self) -> list[dict[str, Any]]:
        """Return the state of each source as plain JSON."""
        snapshot = self._snapshot
        # what is wrong with the document of each source; two of the same name have each their own
        problems: dict[Hashable, tuple[Finding, ...]] = snapshot.keep(
            "", "problems", lambda: {origin: layer_problems(layer) for origin, layer in snapshot.layers()}
        )
        return [
            {
                "source": status.spec.name,
                "provider": status.spec.provider,
                "selector": status.spec.settings.selector,
                "priority": status.spec.position,
                "restored": status.restored,
                "stale": status.spec in self._freshness.stale,
                "required": status.spec in self._required,
                "problems": [problem.to_dict() for problem in problems.get(status.spec, ())],
            }
            | status_fields(status, self._now())
            for status in self._pipeline.statuses()
        ]

    def register(self, registry: Registry) -> None:
        """Write it all out as metrics, too."""
        registry.add(
            *status_gauges("wigwag_source", "source", _SOURCE, self._labelled, self._now),
            Gauge("wigwag_source_stale", "Whether the flags of a source are stale.", self._stale, _SOURCE),
            Gauge("wigwag_snapshot_info", "The published snapshot.", lambda: [((self._snapshot.id,), 1)], ("id",)),
            Gauge("wigwag_snapshot_number", "Its number.", lambda: [((), self._snapshot.number)]),
            Gauge("wigwag_flags", "Flags in force.", lambda: [((), len(self._snapshot.flags))]),
            Gauge("wigwag_flags_quarantined", "Flags that could not be loaded.", self._quarantined, _SOURCE),
            Gauge("wigwag_findings", "What is wrong with the documents.", self._findings, (*_SOURCE, "severity")),
        )

    def _labelled(self) -> Iterator[tuple[tuple[str, str], Status[Source]]]:
        return (((status.spec.name, str(status.spec.position)), status) for status in self._pipeline.statuses())

    def _stale(self) -> Iterator[tuple[tuple[str, ...], float]]:
        return ((labels, float(status.spec in self._freshness.stale)) for labels, status in self._labelled())

    def _quarantined(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for labels, layer in self._layers():
            yield labels, float(sum(problem.severity == "error" for problem in layer.problems))

    def _findings(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Count the findings. `log_snapshots` makes them, soon after a snapshot is published."""
        for labels, layer in self._layers():
            if layer.findings is not None:
                counts = Counter(finding.severity for finding in layer.findings)
                yield from (((*labels, each), float(counts[each])) for each in ("error", "warning"))

    def _layers(self) -> Iterator[tuple[tuple[str, str], Layer]]:
        """Yield the labels and the published flags of each source that has any."""
        layers = dict(self._snapshot.layers())
        return ((labels, layers[status.spec]) for labels, status in self._labelled() if status.spec in layers)

    def _log_readiness(self) -> None:
        """Log what readiness waits for, if a required source fails before its first answer, and when it is ready."""
        if self._logged_ready:
            return
        if self.ready():
            self._logged_ready = True
            log.info("ready: every required source has answered")
            return
        waiting = [
            status.spec.name
            for status in self._pipeline.statuses()
            if status.spec in self._required and status.state == "failing" and status.confirmed is None
        ]
        if waiting and waiting != self._waiting:
            log.warning("not ready: waiting for the first flags of %s", ", ".join(waiting))
        self._waiting = waiting

    async def log_readiness(self) -> None:
        """Log when the agent is ready, and before that what it waits for."""
        async for _ in self._pipeline.status_changes:
            self._log_readiness()

    async def log_snapshots(self) -> None:
        """Log each snapshot, and what is wrong with it."""
        known: set[str] = set()
        async for snapshot in self._pipeline.published:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            fields = {"number": snapshot.number, "id": snapshot.id[:12], "flags": len(snapshot.flags)}
            log.info("snapshot published", extra={"fields": fields})
            self._log_readiness()
            findings = await _findings(snapshot.flags)
            quarantined = {problem for layer in snapshot.flags.layers for problem in layer.problems}
            problems = {_message(problem, served=problem not in quarantined) for problem in findings}
            for problem in sorted(problems - known):
                log.warning("%s", problem)
            known = problems
            self._settled, settled = (lambda: None), self._settled
            settled()


async def _findings(flags: FlagSet) -> tuple[Finding, ...]:
    """Check every new flag; many of them in a thread, because checking a rule costs more than loading it."""
    return await asyncio.to_thread(lambda: flags.problems) if len(flags) > MANY else flags.problems


def _message(problem: Finding, *, served: bool) -> str:
    """Return a problem with what to do about it, and what the agent does; one of a flag in quarantine says that."""
    hint = f"; {problem.hint}" if problem.hint else ""
    if served and problem.severity == "error":
        hint += "; there is no last good definition, so the flag is served as it is"
    return f"{problem}{hint}"
