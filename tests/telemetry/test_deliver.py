"""Deliveries that fail, recover and get new certificates; pushes on a timer; an end that does not wait for ever."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult

from tests.clients.certificates import Certificates, make_certificates
from tests.pipeline.fakes import FakeClock, run, settle
from tests.telemetry.collector import grpc_collector
from wigwag.background import BackgroundWorker
from wigwag.errors import StartError
from wigwag.observe import Counter, Registry
from wigwag.serve.management.metrics import Metrics
from wigwag.telemetry.batches import Batches, tracer_provider
from wigwag.telemetry.deliver import Delivery, silence_sdk
from wigwag.telemetry.exporters import LARGEST, PemFiles, metric_exporter, span_exporter
from wigwag.telemetry.push import Push
from wigwag.telemetry.settings import Batching, OtlpTarget, TelemetrySettings
from wigwag.telemetry.start import start
from wigwag.wire.client.tls import Trust

PLAIN = OtlpTarget(
    protocol="grpc", endpoint="user:hunter2@collector:1", headers=(("authorization", "Bearer swordfish"),)
)
SDK = logging.getLogger("opentelemetry.test")


class Script:
    """An exporter that does as it is told, and remembers the files of each exporter that was made."""

    def __init__(self) -> None:
        self.made: list[PemFiles] = []
        self.closed = 0
        self.works = True
        self.says = ""
        self.raises: Exception | None = None

    def make(self, target: OtlpTarget, files: PemFiles) -> Script:
        self.made.append(files)
        return self

    def export(self, batch: Any) -> SpanExportResult:
        if self.raises is not None:
            raise self.raises
        if self.says:
            SDK.error("%s", self.says)
        return SpanExportResult.SUCCESS if self.works else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def _aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silencing the SDK lasts for one test."""
    monkeypatch.setattr(logging.getLogger("opentelemetry"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("opentelemetry"), "handlers", [])


def delivery(script: Script, target: OtlpTarget = PLAIN, clock: FakeClock | None = None) -> tuple[Delivery, Counter]:
    counter = Counter("pushes", "", ("signal", "outcome"))
    return Delivery("metrics", target, script.make, counter, (clock or FakeClock()).now, 60.0), counter


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "wigwag.telemetry"]


def test_an_outage_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    script = Script()
    deliver, counter = delivery(script)
    assert deliver.deliver(None)
    script.works, script.says = False, "no route\nto user:hunter2@collector:1 with Bearer swordfish"
    silence_sdk()
    assert not any(deliver.deliver(None) for _ in range(5))
    script.works, script.says = True, ""
    assert deliver.deliver(None)
    assert ours(caplog) == [
        "metrics cannot be pushed to collector:1: no route to …@collector:1 with …",
        "metrics are pushed to collector:1 again",
    ]
    assert len(caplog.records) == 2, "what the SDK says stays out of the log"
    assert counter.values == {("metrics", "ok"): 2, ("metrics", "failed"): 5}


def test_two_signals_that_fail_alike_are_both_told_why(caplog: pytest.LogCaptureFixture) -> None:
    nowhere = OtlpTarget(protocol="grpc", endpoint="127.0.0.1:1", timeout=0.1)
    counter = Counter("pushes", "", ("signal", "outcome"))
    silence_sdk()
    for signal in ("traces", "metrics"):
        deliver = Delivery(signal, nowhere, span_exporter, counter, FakeClock().now, 60.0)
        assert not deliver.deliver([])
        deliver.close()
    assert len(ours(caplog)) == 2
    assert all("StatusCode.UNAVAILABLE" in told or "DEADLINE" in told for told in ours(caplog)), ours(caplog)


def test_what_the_sdk_says_after_the_last_push_stays_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    settings = TelemetrySettings(traces=OtlpTarget(protocol="grpc", endpoint="127.0.0.1:1", timeout=0.1))
    telemetry = start(settings, Registry(), Metrics())
    run(lambda: telemetry.finish(0.1))
    SDK.warning("Shutdown in progress")
    assert [record.name for record in caplog.records if not record.name.startswith("wigwag")] == []


def test_an_exporter_that_breaks_is_a_failure_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    script = Script()
    deliver, _ = delivery(script)
    script.raises = RuntimeError("hunter2")
    assert not deliver.deliver(None)
    assert ours(caplog) == ["metrics cannot be pushed to collector:1: RuntimeError"]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


def secure(files: Certificates) -> OtlpTarget:
    return OtlpTarget(
        protocol="grpc",
        endpoint="collector:1",
        secure=True,
        trust=Trust(str(files.authority), str(files.certificate), str(files.key)),
    )


def test_certificates_are_read_again_at_their_interval(certificates: Certificates, tmp_path: Path) -> None:
    script, clock = Script(), FakeClock()
    deliver, _ = delivery(script, secure(certificates), clock)
    run(lambda: clock.advance(61))
    deliver.deliver(None)
    assert len(script.made) == 1, "the same files need no new exporter"
    replace(certificates, tmp_path)
    run(lambda: clock.advance(59))
    deliver.deliver(None)
    assert len(script.made) == 1, "it is not time yet"
    run(lambda: clock.advance(1))
    deliver.deliver(None)
    assert len(script.made) == 2
    assert script.made[1].certificate == certificates.certificate.read_bytes()
    assert script.closed == 1


def test_certificates_are_read_again_after_a_failure(certificates: Certificates, tmp_path: Path) -> None:
    script = Script()
    deliver, _ = delivery(script, secure(certificates))
    script.works = False
    deliver.deliver(None)
    replace(certificates, tmp_path)
    deliver.deliver(None)
    assert len(script.made) == 2


def replace(certificates: Certificates, folder: Path) -> None:
    fresh = folder / "fresh"
    fresh.mkdir()
    for new, old in zip(make_certificates(fresh), certificates, strict=True):
        shutil.move(new, old)


def test_a_half_written_pair_changes_nothing(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script, clock = Script(), FakeClock()
    deliver, _ = delivery(script, secure(certificates), clock)
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(make_certificates(other).key, certificates.key)
    run(lambda: clock.advance(60))
    assert deliver.deliver(None)
    assert len(script.made) == 1
    assert "the last ones stay" in ours(caplog)[0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("authority", None, "cannot read .*ca.pem"),
        ("authority", b"nonsense", "ca.pem is not a certificate in PEM"),
        ("authority", b"\xff", "ca.pem is not a certificate in PEM"),
        ("key", b"nonsense", "tls.crt is not a certificate in PEM, or its key does not belong to it"),
        ("certificate", b"x" * (LARGEST + 1), "tls.crt is too large"),
    ],
)
def test_files_that_cannot_be_used_are_told_at_the_start(
    certificates: Certificates, name: str, content: bytes | None, message: str
) -> None:
    path: Path = getattr(certificates, name)
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(StartError, match=message):
        delivery(Script(), secure(certificates))


def test_metrics_are_read_at_each_interval_and_never_while_a_delivery_is_under_way() -> None:
    registry, clock = Registry(), FakeClock()
    counter = Counter("c", "")
    counter.add()
    registry.add(counter)

    async def scenario() -> None:
        with grpc_collector() as collector:
            target = OtlpTarget(protocol="grpc", endpoint=collector.address)
            deliver = Delivery("metrics", target, metric_exporter, Counter("p", "", ("s", "o")), clock.now, 60.0)
            push = Push(registry, Resource({}), deliver, BackgroundWorker("test"), 10.0, lambda: 5)
            task = asyncio.ensure_future(push.run(clock))
            await clock.advance(9.9)
            assert collector.attempts == 0
            await clock.advance(0.1)
            await asyncio.to_thread(collector.wait, lambda: len(collector.requests) == 1, "first push")
            counter.add()
            while not clock.pending():  # the delivery is told of in the loop, and then the timer is set again
                await settle(1)
            await clock.advance(10)
            await asyncio.to_thread(collector.wait, lambda: len(collector.requests) == 2, "second push")
            task.cancel()
            await asyncio.wait([task])
            counter.add()
            await push.finish(10.0)
            assert [request_value(request) for request in collector.requests] == [1, 2, 3]

    run(scenario)


def request_value(request: Any) -> int:
    value: int = request.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points[0].as_int
    return value


def test_the_end_waits_for_a_collector_that_hangs_only_so_long() -> None:
    async def scenario() -> None:
        with grpc_collector() as collector:
            collector.hang = True
            target = OtlpTarget(protocol="grpc", endpoint=collector.address)
            counter, clock = Counter("p", "", ("s", "o")), FakeClock()
            push = Push(
                Registry([counter]),
                Resource({}),
                Delivery("metrics", target, metric_exporter, counter, clock.now, 60.0),
                BackgroundWorker("test"),
                10.0,
                lambda: 5,
            )
            delivery = Delivery("traces", target, span_exporter, counter, clock.now, 60.0)
            batches = Batches(tracer_provider(Resource({})), Batching(), delivery)
            batches.provider.get_tracer("test").start_span("a").end()
            await push.finish(0.1)
            await batches.finish(0.1)
            assert collector.requests == []

    silence_sdk()
    run(scenario, timeout=40.0)
