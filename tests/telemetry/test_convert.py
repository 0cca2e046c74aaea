"""Our instruments as OTLP has them."""

from __future__ import annotations

from typing import Any

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.resources import Resource

from tests.telemetry.collector import attributes
from wigwag.observe import Counter, Gauge, Histogram, Instrument, Registry
from wigwag.telemetry.convert import converted

CUMULATIVE = 2
START, NOW = 1_000, 2_000


def encoded(*instruments: Instrument) -> dict[str, Any]:
    data = converted(Registry(instruments).read(), Resource({"service.name": "flagd"}), START, NOW)
    (resource,) = encode_metrics(data).resource_metrics
    assert attributes(resource.resource.attributes) == {"service.name": "flagd"}
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "flagd"
    return {metric.name: metric for metric in scope.metrics}


def test_a_counter_is_a_growing_sum_since_the_start() -> None:
    counter = Counter("a.b", "Help.", ("x.y", "z"), "{thing}")
    counter.add(("one", ""), 2)
    metric = encoded(counter)["a.b"]
    assert (metric.description, metric.unit) == ("Help.", "{thing}")
    assert metric.sum.is_monotonic
    assert metric.sum.aggregation_temporality == CUMULATIVE
    (point,) = metric.sum.data_points
    assert (point.start_time_unix_nano, point.time_unix_nano, point.as_int) == (START, NOW, 2)
    assert attributes(point.attributes) == {"x.y": "one"}


def test_a_counter_of_fractions_keeps_them() -> None:
    counter = Counter("a", "")
    counter.add((), 0.5)
    (point,) = encoded(counter)["a"].sum.data_points
    assert point.as_double == 0.5


def test_what_adds_up_is_a_sum_that_may_fall_and_what_does_not_is_a_gauge() -> None:
    found = encoded(
        Gauge("adds", "", lambda: [((), 3)], adds=True), Gauge("stands", "", lambda: [(("a",), 1.5)], ("label",))
    )
    assert not found["adds"].sum.is_monotonic
    assert found["adds"].sum.data_points[0].as_int == 3
    (point,) = found["stands"].gauge.data_points
    assert (point.as_double, attributes(point.attributes)) == (1.5, {"label": "a"})


def test_a_histogram_has_its_bounds_and_a_bucket_more() -> None:
    histogram = Histogram("h", "", (1, 10), ("route",), "s")
    for value in (0.5, 1, 5, 100):
        histogram.observe(("/x",), value)
    (point,) = encoded(histogram)["h"].histogram.data_points
    assert list(point.explicit_bounds) == [1, 10]
    assert list(point.bucket_counts) == [2, 1, 1]
    assert (point.count, point.sum, point.start_time_unix_nano) == (4, 106.5, START)
    assert not point.HasField("min")
    assert attributes(point.attributes) == {"route": "/x"}


def test_an_instrument_without_samples_is_left_out() -> None:
    assert encoded(Counter("never", "")) == {}
