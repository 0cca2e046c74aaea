"""How watt is doing: for `/debug/watches`, for v2 documents, as metrics, and in the log.

Watches come from hooks and from objects of the cluster, so their number in metrics and log lines is bounded.
"""

from __future__ import annotations

import logging
from collections import Counter as Tally
from itertools import islice
from typing import TYPE_CHECKING, Any

from wigwag.loglimit import LogLimiter
from wigwag.observe import Gauge
from wigwag.pipeline.statuslog import log_statuses
from wigwag.serve.management.statuses import status_fields, status_gauges
from wigwag.watt.hooks.hook import HookStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from wigwag.observe import Registry
    from wigwag.pipeline.status import Status
    from wigwag.watt.watches.specs import Spec
    from wigwag.watt.watt import Watt

MOST_SHOWN = 500
"""Watches that metrics tell apart."""
MOST_LOGGED = 100
"""Lines about watches in ten seconds."""
MOST_NAMED = 5
"""Watches that a line names."""
log = logging.getLogger("wigwag.watt")


class WattReport:
    """What can be said about a running watt."""

    def __init__(self, watt: Watt, now: Callable[[], float]) -> None:
        self._watt, self._now = watt, now

    def page(self) -> dict[str, Any]:
        """Return everything, as plain JSON."""
        watt, report = self._watt, self._watt.pipeline.report()
        return {
            "complete": report.complete and not report.waiting,
            "waiting": [str(spec) for spec in report.waiting],
            "error": report.error or report.unsettled,
            "watches": [{"watch": str(status.spec)} | self._described(status) for status in report.statuses],
            "watch-hooks": [self._hook(status) for status in watt.watch_hooks.statuses()],
            "notify-hooks": [self._hook(status) for status in watt.notify_hooks.statuses()],
            "outputs": [{"directory": each.path, "writes": each.writes, "error": each.error} for each in watt.outputs],
            "resolvers": {} if watt.resolvers is None else watt.resolvers.problems,
        }

    def sources(self) -> dict[str, dict[str, Any]]:
        """Return how each watch is doing, for a v2 document."""
        return {str(status.spec): self._described(status) for status in self._watt.pipeline.statuses()}

    def register(self, registry: Registry) -> None:
        """Write it all out as metrics, too."""
        history = self._watt.history
        registry.add(
            Gauge("wigwag_watt_snapshot_id", "The number of the newest snapshot.", self._newest),
            Gauge("wigwag_watt_history_bytes", "What older snapshots cost.", lambda: [((), history.cost)]),
            Gauge("wigwag_watt_watches", "Watches, by state.", self._states, ("state",)),
            *status_gauges("wigwag_watt_watch", "source", ("watch",), self._shown, self._now),
            Gauge("wigwag_watt_hook_up", "Whether the last call of a hook worked.", self._up, ("hook", "type")),
            Gauge("wigwag_watt_hook_runs", "Calls of a hook.", self._runs, ("hook", "type")),
            Gauge("wigwag_watt_hook_failures", "Calls of a hook that failed.", self._failures, ("hook", "type")),
        )

    async def log_watches(self) -> None:
        """Log each watch when its state or its error changes, and when it is no longer watched."""
        limited = LogLimiter(log, MOST_LOGGED)

        def write(level: int, spec: Spec, text: str) -> None:
            waiting = level > logging.INFO and self._watt.history.latest is None
            limited.log(level, self._now(), "watch %s: %s%s", spec, text, "; there is no snapshot yet" * waiting)

        await log_statuses(self._watt.pipeline, write)

    async def log_snapshots(self) -> None:
        """Log each snapshot."""
        async for snapshot in self._watt.history.snapshots:
            state = "complete" if snapshot.complete else f"without {_listed(snapshot.unresolved)}"
            level = logging.INFO if snapshot.complete else logging.WARNING
            changes = f"{len(snapshot.deltas)} change{'s' * (len(snapshot.deltas) != 1)}"
            log.log(level, "snapshot %d: %s, %s", snapshot.id, changes, state)

    def _described(self, status: Status[Spec]) -> dict[str, Any]:
        fields = status_fields(status, self._now())
        return fields | {"stale": status.state == "failing" and bool(status.values)}

    def _hook(self, status: HookStatus) -> dict[str, Any]:
        running = None if status.running_since is None else self._now() - status.running_since
        return {
            "hook": status.name,
            "state": status.state,
            "error": status.error,
            "runs": status.runs,
            "failures": status.failures,
            "lastSnapshot": status.last_ok,
            "lastSeconds": status.seconds,
            "runningSeconds": running,
        }

    def _hooks(self) -> Iterator[tuple[tuple[str, str], HookStatus]]:
        for status in self._watt.watch_hooks.statuses():
            yield (status.name, "watch"), status
        for status in self._watt.notify_hooks.statuses():
            yield (status.name, "notify"), status

    def _up(self) -> Iterator[tuple[tuple[str, ...], float]]:
        return ((labels, float(status.state != "degraded")) for labels, status in self._hooks())

    def _runs(self) -> Iterator[tuple[tuple[str, ...], float]]:
        return ((labels, float(status.runs)) for labels, status in self._hooks())

    def _failures(self) -> Iterator[tuple[tuple[str, ...], float]]:
        return ((labels, float(status.failures)) for labels, status in self._hooks())

    def _newest(self) -> Iterator[tuple[tuple[str, ...], float]]:
        latest = self._watt.history.latest
        yield (), 0.0 if latest is None else float(latest.id)

    def _shown(self) -> Iterator[tuple[tuple[str, ...], Status[Spec]]]:
        known: dict[tuple[str, ...], Status[Spec]] = {}
        for status in self._watt.pipeline.statuses():
            known.setdefault((str(status.spec),), status)
        return islice(known.items(), MOST_SHOWN)

    def _states(self) -> Iterator[tuple[tuple[str, ...], float]]:
        counts = Tally(status.state for status in self._watt.pipeline.statuses())
        return (((state,), float(counts[state])) for state in ("starting", "live", "failing"))


def _listed(watches: Sequence[str]) -> str:
    """Return the watches that have not answered; of many, the first few.

    >>> _listed("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    more = len(watches) - MOST_NAMED
    return ", ".join(watches[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
