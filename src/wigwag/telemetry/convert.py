"""Readings of our instruments as the metrics data of the OpenTelemetry SDK: cumulative since the agent started.

Our instruments are already sums, so nothing is recorded twice and requests pay nothing for the export. A label without
a value is left out, as flagd does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.resources import Resource

    from wigwag.observe import Labels, Reading

SCOPE = "flagd"
_CUMULATIVE = AggregationTemporality.CUMULATIVE


def converted(readings: Sequence[Reading], resource: Resource, start: int, now: int) -> MetricsData:
    """Return readings taken `now`, of instruments that were zero at `start`; both in nanoseconds of the epoch."""
    metrics = [_metric(reading, start, now) for reading in readings if reading.samples]
    scope = ScopeMetrics(InstrumentationScope(SCOPE), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(reading: Reading, start: int, now: int) -> Metric:
    data: Any
    if reading.kind == "histogram":
        data = Histogram(
            [_spread(reading, values, cells, start, now) for values, cells in reading.samples], _CUMULATIVE
        )
    elif reading.kind == "gauge":
        data = Gauge(_numbers(reading, float, 0, now))
    else:
        whole = all(float(number).is_integer() for _, number in reading.samples)
        data = Sum(_numbers(reading, int if whole else float, start, now), _CUMULATIVE, reading.kind == "counter")
    return Metric(reading.name, reading.help, reading.unit, data)


def _numbers(reading: Reading, kind: type[int | float], start: int, now: int) -> list[NumberDataPoint]:
    return [
        NumberDataPoint(_attributes(reading.labels, values), start, now, kind(number))
        for values, number in reading.samples
    ]


def _spread(reading: Reading, values: Labels, cells: tuple[float, ...], start: int, now: int) -> HistogramDataPoint:
    counts = [int(count) for count in cells[:-1]]
    unknown: Any = None  # we keep neither the least nor the greatest, and the protocol does not insist
    return HistogramDataPoint(
        _attributes(reading.labels, values),
        start,
        now,
        sum(counts),
        cells[-1],
        counts,
        reading.bounds,
        unknown,
        unknown,
    )


def _attributes(labels: Labels, values: Labels) -> dict[str, str]:
    return {name: value for name, value in zip(labels, values, strict=True) if value}
