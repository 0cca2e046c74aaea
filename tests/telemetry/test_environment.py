"""What the SDK reads from the environment: the resource and the sampler, with an error for what it cannot use."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.util.re import parse_env_headers

from wigwag.errors import UsageError
from wigwag.serve.management.metrics import Metrics
from wigwag.telemetry.batches import read_resource, tracer_provider
from wigwag.telemetry.settings import TelemetryOptions, decide
from wigwag.telemetry.start import problems, start


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("opentelemetry"), "propagate", False)
    monkeypatch.setattr(logging.getLogger("opentelemetry"), "handlers", [logging.NullHandler()])


def test_the_environment_wins_over_the_attributes_of_flagd(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_resource().attributes["service.name"] == "flagd"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,deployment.environment=test%201,host.name=h")
    attributes = read_resource().attributes
    assert (attributes["service.name"], attributes["deployment.environment"]) == ("a", "test 1")
    assert (attributes["host.name"], attributes["telemetry.sdk.language"]) == ("h", "python")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "b")
    assert read_resource().attributes["service.name"] == "b"


@pytest.mark.parametrize(
    ("sampler", "ratio", "expected"),
    [
        (None, None, "AlwaysOnSampler"),
        ("", "", "AlwaysOnSampler"),
        ("always_off", None, "AlwaysOffSampler"),
        ("ALWAYS_OFF", "x", "AlwaysOffSampler"),
        ("parentbased_always_on", None, "ParentBased{root:AlwaysOnSampler"),
        ("traceidratio", "0.25", "TraceIdRatioBased{0.25}"),
        ("traceidratio", None, "TraceIdRatioBased{1.0}"),
        ("traceidratio", "", "TraceIdRatioBased{1.0}"),
        ("parentbased_traceidratio", "0.5", "ParentBased{root:TraceIdRatioBased{0.5}"),
    ],
)
def test_the_sampler_is_that_of_the_environment_and_without_one_always_on(
    monkeypatch: pytest.MonkeyPatch, sampler: str | None, ratio: str | None, expected: str
) -> None:
    for name, value in (("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", ratio)):
        monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name, raising=False)
    assert tracer_provider(Resource({})).sampler.get_description().startswith(expected)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"OTEL_TRACES_SAMPLER": "x"}, "^OTEL_TRACES_SAMPLER, .*: Couldn't recognize sampler x"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"}, "OTEL_TRACES_SAMPLER_ARG: "),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "x"}, "OTEL_TRACES_SAMPLER_ARG: "),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b,x"}, "^OTEL_RESOURCE_ATTRIBUTES: Invalid key value resource attribute"),
    ],
)
def test_a_wrong_value_ends_the_start_and_the_check_with_a_line_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    settings = decide(TelemetryOptions(collector="127.0.0.1:1"), {})
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    metrics = Metrics()
    calls: list[Any] = [
        lambda: start(settings, metrics.registry, metrics),
        lambda: list(problems(settings, lambda text: None)),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=message) as error:
            call()
        assert "\n" not in str(error.value)


OTLP = "OTEL_EXPORTER_OTLP"


class TestWhyTheExportersDoNotReadTheEnvironmentThemselves:
    """If the SDK learns one of these, `wigwag.telemetry.settings` may become smaller."""

    @pytest.mark.parametrize("exporter", [GrpcSpans, HttpSpans])
    def test_they_take_milliseconds_for_seconds(self, exporter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(f"{OTLP}_TIMEOUT", "2500")
        made = exporter()
        assert getattr(made, "_timeout", None) == 2500.0 or made._client._timeout == 2500.0
        made.shutdown()

    @pytest.mark.parametrize(("name", "value"), [("TIMEOUT", ""), ("TIMEOUT", "10s"), ("COMPRESSION", "none")])
    def test_over_grpc_they_refuse_these_without_the_name_or_against_the_specification(
        self, name: str, value: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(f"{OTLP}_{name}", value)
        with pytest.raises(Exception, match=r"could not convert string to float|Invalid value"):
            GrpcSpans()

    def test_over_grpc_they_know_no_default_port_and_over_http_no_default_scheme(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(f"{OTLP}_ENDPOINT", "http://collector")
        assert GrpcSpans()._endpoint == "collector"
        monkeypatch.setenv(f"{OTLP}_ENDPOINT", "collector:4318")
        assert HttpSpans()._endpoint == "collector:4318/v1/traces"

    def test_the_default_batch_does_not_fit_into_a_smaller_queue(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
        with pytest.raises(ValueError, match="max_export_batch_size"):
            BatchSpanProcessor(ConsoleSpanExporter())

    def test_a_header_that_cannot_be_read_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        logging.getLogger("opentelemetry").propagate = True
        assert parse_env_headers("a=b,hunter2", liberal=True) == {"a": "b"}
        assert "hunter2" in caplog.text
