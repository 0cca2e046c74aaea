"""A real agent that pushes to real OTLP receivers: over gRPC and HTTP, encrypted or not, there or away."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.process import AgentProcess
from tests.clients.certificates import Certificates, make_certificates
from tests.real.processes import claim_port
from tests.telemetry.collector import Collector, attributes, grpc_collector, http_collector
from wigwag.observe import Counter
from wigwag.telemetry.deliver import Delivery
from wigwag.telemetry.exporters import span_exporter
from wigwag.telemetry.settings import OtlpTarget
from wigwag.wire.client.tls import Trust

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
RESOLVE = "/flagd.evaluation.v1.Service/ResolveBoolean"
KEY = "new-welcome-banner"
Receiver = Callable[..., AbstractContextManager[Collector]]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Push often, and give up soon."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2000")


def evaluate(agent: AgentProcess, key: str = KEY, **headers: str) -> int:
    body = {"flagKey": key, "context": {"email": "secret@example.com"}}
    status, _ = agent.fetch("evaluation", RESOLVE, body, content_type="application/json", **headers)
    return status


def errors(collector: Collector) -> set[Any]:
    """Return the errors that results of evaluations were counted for."""
    reasons = collector.metrics().get("feature_flag.flagd.result.reason")
    return {attributes(point.attributes).get("error.type") for point in reasons.sum.data_points} if reasons else set()


def pushing(collector: Collector, *arguments: str) -> AgentProcess:
    return AgentProcess("--metrics-exporter=otel", f"--otel-collector-uri={collector.address}", *arguments)


def test_traces_and_metrics_arrive_under_the_names_that_flagd_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    with grpc_collector() as collector, pushing(collector) as agent:
        assert evaluate(agent, traceparent=f"00-{TRACE}-{SPAN}-01") == 200
        assert evaluate(agent, "nope") == 404
        scope, span = collector.wait_for_span("resolveBoolean")
        assert scope == "flagd.evaluation.v1"
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
        assert attributes(span.attributes)["feature_flag.key"] == KEY
        scope, span = collector.wait_for_span("flagSync")
        assert (scope, attributes(span.attributes)) == ("jsonEvaluator", {"feature_flag.source": "demo"})

        (point,) = collector.wait_for_metric("feature_flag.flagd.impression").sum.data_points
        assert point.as_int == 1
        assert attributes(point.attributes) == {
            "feature_flag.key": KEY,
            "feature_flag.provider.name": "flagd",
            "feature_flag.reason": "TARGETING_MATCH",
            "feature_flag.result.variant": "on",
        }
        collector.wait(lambda: "FLAG_NOT_FOUND" in errors(collector), "the error, which may come with a later push")
        duration = collector.wait_for_metric("http.server.request.duration")
        assert duration.unit == "s"
        assert attributes(duration.histogram.data_points[0].attributes) == {
            "service.name": "flagd.evaluation",
            "http.route": RESOLVE,
            "http.request.method": "POST",
            "http.response.status_code": "200",
            "url.scheme": "http",
        }
        assert collector.wait_for_metric("http.server.active_requests").unit == "{request}"
        calls = collector.wait_for_metric("rpc.server.duration")
        assert calls.unit == "ms"
        assert attributes(calls.histogram.data_points[0].attributes) == {
            "rpc.system": "connect_rpc",
            "rpc.service": "flagd.evaluation.v1.Service",
            "rpc.method": "ResolveBoolean",
            "rpc.grpc.status_code": "0",
        }

        assert b"feature_flag_flagd_impression_total" in agent.fetch("management", "/metrics")[1]
        told = attributes(collector.requests[0].ListFields()[0][1][0].resource.attributes)
        assert told["service.name"] == "flagd"
        assert told["deployment.environment"] == "test"
        assert "secret@example.com" not in str(collector.requests)


def test_the_end_delivers_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "600000")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    with grpc_collector() as collector, pushing(collector) as agent:
        evaluate(agent)
        assert collector.attempts == 0
        assert agent.stop() == 0
        assert collector.wait_for_span("resolveBoolean")
        assert collector.wait_for_metric("feature_flag.flagd.impression")


def test_the_environment_alone_is_enough_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{collector.address}")
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Tenant=a%20b")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        with AgentProcess() as agent:
            evaluate(agent)
            collector.wait_for_span("resolveBoolean")
            collector.wait_for_metric("feature_flag.flagd.impression")
            assert {headers["tenant"] for headers in collector.headers} == {"a b"}
            assert {headers["content-encoding"] for headers in collector.headers} == {"gzip"}
            assert agent.stop() == 0


def test_headers_and_compression_go_over_grpc_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Tenant=a%20b")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    with grpc_collector() as collector, pushing(collector):
        collector.wait_for_metric("wigwag_flags")
        assert collector.headers[0]["tenant"] == "a b"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


@pytest.mark.parametrize("receiver", [grpc_collector, http_collector], ids=["grpc", "http"])
def test_a_collector_may_be_encrypted_and_ask_who_is_there(
    receiver: Receiver, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if receiver is http_collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other").authority
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(other))  # which must not win over what the command line says
    files = (
        f"--otel-ca-path={certificates.authority}",
        f"--otel-cert-path={certificates.certificate}",
        f"--otel-key-path={certificates.key}",
    )
    with receiver(certificates) as collector, pushing(collector, files[0]) as agent:
        evaluate(agent)
        collector.wait_for_span("resolveBoolean")
        collector.wait_for_metric("feature_flag.flagd.impression")
    with receiver(certificates, clients=True) as collector, pushing(collector, *files):
        collector.wait_for_metric("wigwag_flags")
        collector.wait_for_span("flagSync")


@pytest.mark.parametrize("receiver", [grpc_collector, http_collector], ids=["grpc", "http"])
def test_a_collector_that_others_vouch_for_gets_nothing(
    receiver: Receiver, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if receiver is http_collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other").authority
    with receiver(certificates) as collector:
        with pushing(collector, f"--otel-ca-path={other}") as agent:
            agent.wait_for_log(lambda line: line["msg"].startswith("metrics cannot be pushed"))
            assert evaluate(agent) == 200
            assert all("logger" in line for line in agent.lines), "nothing but our own log goes to standard error"
        assert collector.attempts == 0


@pytest.mark.parametrize("receiver", [grpc_collector, http_collector], ids=["grpc", "http"])
def test_a_collector_that_fails_is_told_of_once_and_counted_while_the_agent_serves(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    if receiver is http_collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
    with receiver() as collector:
        collector.refuse = True
        with pushing(collector) as agent:
            line = agent.wait_for_log(lambda line: line["msg"].startswith("metrics cannot be pushed"))
            assert collector.address in line["msg"]
            attempts = collector.attempts
            collector.wait(lambda: collector.attempts >= attempts + 3, "more attempts")
            assert evaluate(agent) == 200
            said = [line["msg"] for line in agent.lines]
            assert sum(message.startswith("metrics cannot") for message in said) == 1
            failed = b'wigwag_telemetry_pushes_total{signal="metrics",outcome="failed"}'
            assert failed in agent.fetch("management", "/metrics")[1]
            collector.refuse = False
            agent.wait_for_log(lambda line: line["msg"].startswith("metrics are pushed"))
            assert collector.wait_for_metric("feature_flag.flagd.impression")


def test_a_collector_may_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
    port = claim_port()
    with grpc_collector(port=port) as gone:
        pass
    with pushing(gone) as agent:
        agent.wait_for_log(lambda line: line["msg"].startswith("metrics cannot be pushed"))
        assert evaluate(agent) == 200
        with grpc_collector(port=port) as collector:
            assert collector.wait_for_metric("feature_flag.flagd.impression")
            evaluate(agent)
            assert collector.wait_for_span("resolveBoolean")


@pytest.mark.parametrize("receiver", [grpc_collector, http_collector], ids=["grpc", "http"])
def test_of_each_signal_it_is_told_why_it_cannot_be_pushed_and_by_us_alone(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    if receiver is http_collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
    with receiver() as gone:
        pass
    with pushing(gone) as agent:
        for signal in ("metrics", "traces"):
            line = agent.wait_for_log(lambda line, signal=signal: line["msg"].startswith(f"{signal} cannot"))  # type: ignore[misc]
            assert gone.address.rpartition(":")[2] in line["msg"]
            assert "no reason given" not in line["msg"]
        assert evaluate(agent) == 200
        assert agent.stop() == 0
    agent.wait_for_log(lambda line: line["msg"] == "(ended)")
    assert [line for line in agent.lines if not line.get("logger", "wigwag").startswith("wigwag")] == []
    assert [line["msg"] for line in agent.lines if "logger" not in line] == ["(ended)"]


@pytest.mark.parametrize("receiver", [grpc_collector, http_collector], ids=["grpc", "http"])
def test_a_collector_that_hangs_holds_up_neither_requests_nor_the_end(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    if receiver is http_collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")
    with receiver() as collector:
        collector.hang = True
        with pushing(collector) as agent:
            collector.wait(lambda: collector.attempts >= 2, "two attempts")
            assert evaluate(agent) == 200
            assert agent.stop() == 0
        agent.wait_for_log(lambda line: line["msg"] == "(ended)")
        assert [line for line in agent.lines if not line.get("logger", "wigwag").startswith("wigwag")] == []


def test_new_certificates_are_used_without_a_restart(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new").mkdir()
    new = make_certificates(tmp_path / "new")
    monkeypatch.setattr(logging.getLogger("opentelemetry"), "propagate", False)
    port = claim_port()
    with grpc_collector(certificates, port=port) as collector:
        target = OtlpTarget(
            protocol="grpc",
            endpoint=collector.address,
            secure=True,
            timeout=4.0,
            trust=Trust(str(certificates.authority)),
        )
        delivery = Delivery("traces", target, span_exporter, Counter("c", "", ("s", "o")), lambda: 0.0, 3600.0)
        assert delivery.deliver([])
    with grpc_collector(new, port=port):
        assert not delivery.deliver([])
        shutil.copy(new.authority, certificates.authority)
        assert delivery.deliver([])
    delivery.close()


WITHOUT = "import sys; sys.modules['opentelemetry'] = None; from wigwag.cli.main import main; sys.exit(main({!r}))"


def without_the_extra(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    ports = ["--port=0", "--management-port=0", "--sync-port=0", "--ofrep-port=0"]
    command = [sys.executable, "-c", WITHOUT.format(["start", *ports, *arguments])]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **options)


def test_without_the_extra_asking_for_it_is_an_error_that_says_what_to_install() -> None:
    with without_the_extra("--otel-collector-uri=x:1") as process:
        _, said = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "install wigwag[otel]" in said


def test_without_the_extra_an_agent_whose_environment_asks_for_it_starts_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    with without_the_extra() as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "is serving" in line:
                break
        process.terminate()
        process.communicate(timeout=20)
    assert any("install wigwag[otel]" in line for line in said)
    assert process.returncode == 0
