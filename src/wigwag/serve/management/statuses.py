"""How watches are doing, as metrics and as JSON, for every face: sources of an agent, targets of a proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wigwag.observe import Gauge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wigwag.observe import Samples
    from wigwag.pipeline.status import Status

    Labelled = Iterable[tuple[tuple[str, ...], Status[Any]]]


def status_gauges(
    prefix: str, noun: str, names: tuple[str, ...], statuses: Callable[[], Labelled], now: Callable[[], float]
) -> list[Gauge]:
    """Return the gauges of watches; `statuses` has the labels of each."""

    def samples(read: Callable[[Status[Any]], float | None]) -> Callable[[], Samples]:
        return lambda: [(labels, value) for labels, status in statuses() if (value := read(status)) is not None]

    up = samples(lambda status: float(status.state == "live"))
    age = samples(lambda status: status.age(now()))
    restarts = samples(lambda status: float(status.restarts))
    return [
        Gauge(f"{prefix}_up", f"Whether the watch of a {noun} is live.", up, names),
        Gauge(f"{prefix}_age_seconds", f"Seconds since the last value of a {noun} was known to hold.", age, names),
        Gauge(f"{prefix}_restarts", f"How often the watch of a {noun} was restarted.", restarts, names),
    ]


def status_fields(status: Status[Any], now: float) -> dict[str, Any]:
    """Return how a watch is doing as plain JSON."""
    age = status.age(now)
    return {
        "state": status.state,
        "ageSeconds": None if age is None else round(age, 3),
        "updates": status.values,
        "restarts": status.restarts,
        "error": status.error if status.state == "failing" else None,
        "lastError": status.error,
    }
