"""Instruments: what they read, and how Prometheus spells it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from wigwag.observe import MOST_LABEL_SETS, Counter, Gauge, Histogram, HistogramView, Reading, Registry


def test_a_name_in_prometheus_form_follows_from_the_name_and_the_unit() -> None:
    counter = Counter("feature_flag.flagd.impression", "Evaluations.", ("feature_flag.key",), "{impression}")
    counter.add(('a"b',))
    histogram = Histogram("http.server.request.duration", "Duration.", (0.5, 1), ("http.route",), "s")
    histogram.observe(("/x",), 0.75)
    gauge = Gauge("http.server.active_requests", "Requests.", lambda: [((), 2)], unit="{request}", adds=True)
    assert Registry([counter, histogram, gauge]).render().splitlines() == [
        "# HELP feature_flag_flagd_impression_total Evaluations.",
        "# TYPE feature_flag_flagd_impression_total counter",
        'feature_flag_flagd_impression_total{feature_flag_key="a\\"b"} 1',
        "# HELP http_server_request_duration_seconds Duration.",
        "# TYPE http_server_request_duration_seconds histogram",
        'http_server_request_duration_seconds_bucket{http_route="/x",le="0.5"} 0',
        'http_server_request_duration_seconds_bucket{http_route="/x",le="1"} 1',
        'http_server_request_duration_seconds_bucket{http_route="/x",le="+Inf"} 1',
        'http_server_request_duration_seconds_sum{http_route="/x"} 0.75',
        'http_server_request_duration_seconds_count{http_route="/x"} 1',
        "# HELP http_server_active_requests Requests.",
        "# TYPE http_server_active_requests gauge",
        "http_server_active_requests 2",
    ]


def test_a_reading_does_not_change_afterwards() -> None:
    counter, histogram = Counter("c", ""), Histogram("h", "", (1,))
    counter.add()
    histogram.observe((), 2)
    readings = Registry([counter, histogram]).read()
    counter.add()
    histogram.observe((), 3)
    assert readings == [
        Reading("counter", "c", "", "", (), [((), 1)]),
        Reading("histogram", "h", "", "", (), [((), (0.0, 1.0, 2.0))], (1,)),
    ]


def test_a_view_adds_up_what_its_labels_do_not_tell_apart() -> None:
    histogram = Histogram("h", "", (1, 2), ("a", "b"))
    for labels, value in ((("x", "1"), 0.5), (("x", "2"), 1.5), (("y", "1"), 3), (("", "1"), 1)):
        histogram.observe(labels, value)
    assert HistogramView(histogram, "v", "Help.", ("a",), "ms", 1000).read() == Reading(
        "histogram",
        "v",
        "Help.",
        "ms",
        ("a",),
        [(("x",), (1.0, 1.0, 0.0, 2000.0)), (("y",), (0.0, 0.0, 1.0, 3000.0))],
        (1000, 2000),
    )


def test_label_sets_are_bounded() -> None:
    counter = Counter("c", "", ("name",))
    for number in range(MOST_LABEL_SETS + 10):
        counter.add((str(number),))
    samples = dict(counter.read().samples)
    assert len(samples) == MOST_LABEL_SETS + 1
    assert samples["otel_metric_overflow",] == 10


LOG = """
import logging, sys
from wigwag.observe import set_up_logging
set_up_logging(sys.argv[1], debug=False)
logging.getLogger("wigwag.x").warning("no answer", extra={"fields": {"source": "a"}})
"""


def logged(format: str, **environment: str) -> str:
    """Return what a process logs when its standard error is a terminal."""
    terminal, end = pty.openpty()
    try:
        variables = {"PATH": os.environ["PATH"], "TERM": "xterm"} | environment
        subprocess.run([sys.executable, "-c", LOG, format], stderr=end, env=variables, check=True)
        return os.read(terminal, 10_000).decode()
    finally:
        os.close(terminal)
        os.close(end)


def test_a_log_is_coloured_in_a_terminal() -> None:
    assert logged("console").partition(" ")[2] == (
        "\x1b[33mWARNING\x1b[0m \x1b[2mwigwag.x:\x1b[0m no answer \x1b[36msource=\x1b[0ma\r\n"
    )


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_log_has_no_colours_for_those_who_want_none(environment: dict[str, str]) -> None:
    assert logged("console", **environment).partition(" ")[2] == "WARNING wigwag.x: no answer source=a\r\n"


def test_a_log_in_json_has_no_colours_in_a_terminal_either() -> None:
    assert json.loads(logged("json"))["source"] == "a"


def test_a_log_has_no_colours_in_a_pipe() -> None:
    done = subprocess.run([sys.executable, "-c", LOG, "console"], capture_output=True, text=True, check=True)
    assert done.stderr.partition(" ")[2] == "WARNING wigwag.x: no answer source=a\n"
