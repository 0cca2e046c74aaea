"""Which signals are exported where: flagd's options, the environment, and which of them wins."""

from __future__ import annotations

from typing import Any

import pytest

from wigwag.errors import UsageError
from wigwag.telemetry.settings import OtlpTarget, TelemetryOptions, TelemetrySettings, decide
from wigwag.wire.client.tls import Trust


def traces(variables: dict[str, str] | None = None, **asked: Any) -> OtlpTarget:
    found = decide(TelemetryOptions(**asked), variables or {}).traces
    assert found is not None
    return found


def metrics(variables: dict[str, str] | None = None, **asked: Any) -> OtlpTarget:
    found = decide(TelemetryOptions(**asked), variables or {}).metrics
    assert found is not None
    return found


def test_nothing_is_pushed_unless_somebody_asks() -> None:
    assert decide(TelemetryOptions(), {}) == TelemetrySettings()


def test_the_collector_option_asks_for_traces_alone_in_plain_grpc() -> None:
    found = decide(TelemetryOptions(collector="collector:4317"), {})
    assert found.metrics is None
    assert found.by_option
    assert found.traces == OtlpTarget(protocol="grpc", endpoint="collector:4317", secure=False)


def test_metrics_follow_when_the_exporter_is_otel() -> None:
    found = decide(TelemetryOptions(collector="collector:4317", metrics_exporter="otel"), {})
    assert found.metrics == found.traces == OtlpTarget(protocol="grpc", endpoint="collector:4317")


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1"}, (True, False)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x:1/t"}, (True, False)),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x:1/m"}, (False, False)),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, (True, False)),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, (False, True)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1", "OTEL_TRACES_EXPORTER": "none"}, (False, False)),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, (False, False)),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "TRUE"},
            (False, False),
        ),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "no"}, (True, False)),
        ({"OTEL_TRACES_EXPORTER": ""}, (False, False)),
    ],
)
def test_the_environment_asks_too(variables: dict[str, str], wanted: tuple[bool, bool]) -> None:
    found = decide(TelemetryOptions(), variables)
    assert (found.traces is not None, found.metrics is not None) == wanted
    assert not found.by_option


def test_the_environment_wins_over_the_collector_option() -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://general:1",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://special:2/m",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc",
    }
    asked: dict[str, Any] = {"collector": "collector:4317", "metrics_exporter": "otel"}
    assert traces(variables, **asked).endpoint == "http://general:1/v1/traces"
    assert metrics(variables, **asked).endpoint == "special:2"
    assert decide(TelemetryOptions(**asked), {"OTEL_METRICS_EXPORTER": "none"}).metrics is None


@pytest.mark.parametrize(
    ("protocol", "endpoint", "expected"),
    [
        ("grpc", "collector:1", "collector:1"),
        ("grpc", "http://collector", "collector:4317"),
        ("grpc", "https://user:secret@collector:1", "collector:1"),
        ("grpc", "http://[::1]:1", "[::1]:1"),
        ("grpc", "unix:///run/otel.sock", "unix:///run/otel.sock"),
        ("http/protobuf", "collector:1", "http://collector:1/v1/traces"),
        ("http/protobuf", "https://collector/base/", "https://collector/base/v1/traces"),
    ],
)
def test_an_endpoint_is_a_host_or_a_url(protocol: str, endpoint: str, expected: str) -> None:
    variables = {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    assert traces(variables).endpoint == expected


def test_without_an_endpoint_it_is_this_machine() -> None:
    assert traces({"OTEL_TRACES_EXPORTER": "otlp"}).endpoint == "http://localhost:4318/v1/traces"
    variables = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert traces(variables).endpoint == "localhost:4317"


@pytest.mark.parametrize(
    ("collector", "variables", "asked", "secure"),
    [
        ("x:1", {}, {}, False),
        ("x:1", {}, {"authority": "ca"}, True),
        ("x:1", {}, {"certificate": "c", "key": "k"}, True),
        ("x:1", {"OTEL_EXPORTER_OTLP_CERTIFICATE": "ca"}, {}, True),
        ("x:1", {"OTEL_EXPORTER_OTLP_INSECURE": "false"}, {}, True),
        ("x:1", {"OTEL_EXPORTER_OTLP_CERTIFICATE": "ca", "OTEL_EXPORTER_OTLP_TRACES_INSECURE": "true"}, {}, False),
        ("https://x:1", {}, {}, True),
        ("http://x:1", {"OTEL_EXPORTER_OTLP_CERTIFICATE": "ca"}, {}, False),
    ],
)
def test_the_scheme_says_whether_to_encrypt_else_the_files_do(
    collector: str, variables: dict[str, str], asked: dict[str, str], secure: bool
) -> None:
    assert traces(variables, collector=collector, **asked).secure is secure


def test_everything_else_comes_from_the_environment() -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20x, tenant = a%2Cb",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
        "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "500",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "c",
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": "k",
        "OTEL_METRIC_EXPORT_INTERVAL": "1500",
        "OTEL_BSP_MAX_QUEUE_SIZE": "100",
    }
    found = decide(TelemetryOptions(collector="x:1", metrics_exporter="otel", reload_seconds=5), variables)
    assert found.traces == OtlpTarget(
        protocol="grpc",
        endpoint="x:1",
        secure=True,
        headers=(("authorization", "Bearer x"), ("tenant", "a,b")),
        timeout=2.5,
        compression="gzip",
        trust=Trust(certificate="c", key="k"),
    )
    assert found.metrics is not None
    assert found.metrics.timeout == 0.5
    assert found.interval == 1.5
    assert (found.batching.queue, found.batching.batch, found.reload_seconds) == (100, 100, 5)


@pytest.mark.parametrize(
    ("asked", "variables", "message"),
    [
        ({"metrics_exporter": "statsd"}, {}, "--metrics-exporter: 'statsd' is unknown; say otel"),
        ({"metrics_exporter": "otel"}, {}, "give --otel-collector-uri, or OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({"certificate": "c"}, {}, "both --otel-cert-path and --otel-key-path"),
        ({"reload_seconds": 0}, {}, "--otel-reload-interval"),
        ({"collector": "http://x:1", "authority": "ca"}, {}, "not encrypted.*https"),
        ({"collector": "http://:x"}, {}, "is not an endpoint for telemetry"),
        ({"collector": "http://x:port"}, {}, "is not an endpoint for telemetry"),
        (
            {"collector": "ftp://x"},
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            "is not an endpoint for telemetry",
        ),
        ({"collector": "x"}, {"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: 'zipkin'.*otlp, none"),
        ({"collector": "x"}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json'"),
        ({"collector": "x"}, {"OTEL_EXPORTER_OTLP_COMPRESSION": "deflate"}, "OTEL_EXPORTER_OTLP_COMPRESSION"),
        ({"collector": "x"}, {"OTEL_EXPORTER_OTLP_TIMEOUT": "10s"}, "'10s' is not a whole number of milliseconds"),
        ({"collector": "x"}, {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "0"}, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"),
        ({"collector": "x"}, {"OTEL_BSP_MAX_QUEUE_SIZE": "0"}, "at least 1"),
        ({"collector": "x"}, {"OTEL_EXPORTER_OTLP_CLIENT_KEY": "k"}, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
    ],
)
def test_what_cannot_be_meant_says_where_and_what_to_do(
    asked: dict[str, Any], variables: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        decide(TelemetryOptions(**asked), variables)


def test_secrets_stay_out_of_errors_and_of_what_is_shown() -> None:
    with pytest.raises(UsageError) as caught:
        traces({"OTEL_EXPORTER_OTLP_HEADERS": "a=b,hunter2"}, collector="x:1")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(UsageError) as caught:
        traces(collector="http://user:hunter2@x:port")
    assert "hunter2" not in str(caught.value)
    found = traces({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://user:hunter2@x:1/t?key=hunter2"})
    assert found.address == "https://x:1/t?key=***"
