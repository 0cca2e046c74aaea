"""The spans of evaluations and loads, made with the real SDK and looked at without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.baggage import get_baggage
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from opentelemetry.trace import SpanKind, StatusCode

import wigwag
from tests.pipeline.fakes import run
from wigwag.pipeline.broadcast import Broadcast
from wigwag.serve.context import Enrichment
from wigwag.serve.evaluation import Evaluation
from wigwag.serve.events import ChangeStreams
from wigwag.serve.management.metrics import Metrics
from wigwag.serve.ofrep import Ofrep
from wigwag.serve.resolve import Resolver
from wigwag.serve.snapshot import Snapshot
from wigwag.telemetry.batches import tracer_provider
from wigwag.telemetry.spans import LONGEST, ROOT, Tracing, parent
from wigwag.wire.http import Reply, Request
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpc import Call, Code, Method, RpcError
from wigwag.wire.rpcs.dispatch import rpc_handler

FLAGS = {
    "flags": {
        "flag": {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"},
        "none": {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": None},
    }
}
TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
SAMPLED = (b"traceparent", b"00-%032x-%016x-01" % (TRACE, SPAN))
UNSAMPLED = (b"traceparent", b"00-%032x-%016x-00" % (TRACE, SPAN))
V1 = b"/flagd.evaluation.v1.Service"


class Bench:
    """Evaluation and OFREP with tracing, in memory."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._memory, self.metrics = InMemorySpanExporter(), Metrics()
        provider = TracerProvider(sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.tracing = Tracing(provider, self.metrics)
        snapshot = Snapshot(wigwag.load(FLAGS))
        common: tuple[Any, ...] = (
            lambda: snapshot,
            Enrichment({}),
            Resolver(self.tracing),
            ChangeStreams(Broadcast(snapshot)),
        )
        self.rpc = rpc_handler(self.tracing.methods(Evaluation(*common).methods()), WireLimits())
        self.ofrep = self.tracing.ofrep(Ofrep(*common).handler())

    def call(self, path: bytes, key: str, *headers: tuple[bytes, bytes]) -> Reply:
        body = json.dumps({"flagKey": key, "context": {"email": "secret@example.com"}}).encode()
        answer = self.rpc(Request(b"POST", path, headers=((b"content-type", b"application/json"), *headers), body=body))
        assert isinstance(answer, Reply)
        return answer

    def post(self, path: bytes) -> Reply:
        answer = self.ofrep(Request(b"POST", path, body=b'{"context": {"email": "secret@example.com"}}'))
        assert isinstance(answer, Reply)
        return answer

    def spans(self) -> list[Any]:
        return list(self._memory.get_finished_spans())

    def span(self) -> Any:
        (found,) = self.spans()
        return found


@pytest.mark.parametrize(
    ("service", "tracer"),
    [
        ("flagd.evaluation.v2.Service", "flagd.evaluation.v2"),
        ("flagd.evaluation.v1.Service", "flagd.evaluation.v1"),
        ("schema.v1.Service", "flagEvaluationService"),
    ],
)
@pytest.mark.parametrize("kind", ["Boolean", "String", "Int", "Float", "Object"])
def test_every_method_has_the_name_that_flagd_gives_it(service: str, tracer: str, kind: str) -> None:
    bench = Bench()
    bench.call(f"/{service}/Resolve{kind}".encode(), "flag")
    assert bench.span().name == f"resolve{kind}"
    assert bench.span().instrumentation_scope.name == tracer
    assert bench.span().kind is SpanKind.SERVER


def test_an_evaluation_tells_flag_variant_and_reason_and_nothing_of_the_context() -> None:
    bench = Bench()
    assert bench.call(V1 + b"/ResolveBoolean", "flag").status == 200
    assert dict(bench.span().attributes) == {
        "rpc.service": "flagd.evaluation.v1.Service",
        "rpc.method": "ResolveBoolean",
        "feature_flag.key": "flag",
        "feature_flag.provider.name": "flagd",
        "feature_flag.reason": "STATIC",
        "feature_flag.result.variant": "on",
    }
    assert bench.span().status.status_code is StatusCode.UNSET
    assert "secret" not in bench.span().to_json()


def test_a_failed_evaluation_is_an_error_with_the_code_of_the_flag() -> None:
    bench = Bench()
    assert bench.call(V1 + b"/ResolveBoolean", "x" * 1000).status == 404
    assert bench.span().attributes["error.type"] == "FLAG_NOT_FOUND"
    assert bench.span().attributes["feature_flag.key"] == "x" * LONGEST
    assert "feature_flag.result.variant" not in bench.span().attributes
    assert bench.span().status.status_code is StatusCode.ERROR


def test_a_call_that_never_evaluates_is_an_error_with_the_code_of_the_call() -> None:
    bench = Bench()
    assert bench.call(V1 + b"/ResolveBoolean", "flag", (b"flagd-selector", b"nonsense=1")).status == 400
    assert bench.span().attributes["error.type"] == "INVALID_ARGUMENT"
    assert "feature_flag.key" not in bench.span().attributes


def test_resolving_all_tells_how_many() -> None:
    bench = Bench()
    bench.call(V1 + b"/ResolveAll", "")
    bench.post(b"/ofrep/v1/evaluate/flags")
    rpc, ofrep = bench.spans()
    assert (rpc.name, rpc.attributes["feature_flag.count"]) == ("resolveAll", 1)
    assert (ofrep.name, ofrep.attributes["feature_flag.count"]) == ("resolveAll", 2)
    assert ofrep.instrumentation_scope.name == "flagd.ofrep.v1"
    assert not any(name == "feature_flag.key" for span in (rpc, ofrep) for name in span.attributes)


def test_ofrep_tells_its_flag_and_its_status() -> None:
    bench = Bench()
    bench.post(b"/ofrep/v1/evaluate/flags/flag")
    bench.post(b"/ofrep/v1/evaluate/flags/nope")
    good, bad = bench.spans()
    assert good.name == bad.name == "resolveAnyValue"
    assert dict(good.attributes) == {
        "http.route": "/ofrep/v1/evaluate/flags/{key}",
        "http.response.status_code": 200,
        "feature_flag.key": "flag",
        "feature_flag.provider.name": "flagd",
        "feature_flag.reason": "STATIC",
        "feature_flag.result.variant": "on",
    }
    assert (bad.attributes["error.type"], bad.status.status_code) == ("FLAG_NOT_FOUND", StatusCode.ERROR)
    bench.ofrep(Request(b"GET", b"/ofrep/v1/nowhere"))
    assert len(bench.spans()) == 2


def test_evaluations_are_counted_as_without_tracing() -> None:
    bench = Bench()
    bench.call(V1 + b"/ResolveBoolean", "flag")
    assert 'feature_flag_key="flag"' in bench.metrics.registry.render()


def test_the_caller_is_the_parent() -> None:
    bench = Bench()
    bench.call(V1 + b"/ResolveBoolean", "flag", SAMPLED, (b"tracestate", b"vendor=value"))
    assert bench.span().context.trace_id == TRACE
    assert bench.span().parent.span_id == SPAN
    assert bench.span().parent.is_remote
    assert bench.span().context.trace_state == {"vendor": "value"}


@pytest.mark.parametrize("header", [b"", b"00-zz", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01", b"0" * 100_000])
def test_a_parent_that_cannot_be_read_is_none(header: bytes) -> None:
    bench = Bench()
    assert bench.call(V1 + b"/ResolveBoolean", "flag", (b"traceparent", header)).status == 200
    assert bench.span().parent is None


def test_baggage_is_in_the_context() -> None:
    assert get_baggage("tenant", parent({b"baggage": b"tenant=a%20b"})) == "a b"
    assert parent({b"baggage": b"tenant=" + b"a" * 10_000}) == ROOT


@pytest.mark.parametrize(
    ("name", "ratio", "header", "count"),
    [
        ("always_on", 1.0, UNSAMPLED, 1),
        ("always_off", 1.0, SAMPLED, 0),
        ("traceidratio", 0.0, SAMPLED, 0),
        ("traceidratio", 1.0, UNSAMPLED, 1),
        ("parentbased_always_on", 1.0, UNSAMPLED, 0),
        ("parentbased_always_off", 1.0, SAMPLED, 1),
        ("parentbased_traceidratio", 0.0, SAMPLED, 1),
    ],
)
def test_the_sampler_decides(
    name: str, ratio: float, header: tuple[bytes, bytes], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", name)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", str(ratio))
    bench = Bench(tracer_provider(Resource({})).sampler)
    assert bench.call(V1 + b"/ResolveBoolean", "flag", header).status == 200
    assert len(bench.spans()) == count


def test_a_handler_that_waits_is_traced_until_it_is_done() -> None:
    bench = Bench()

    async def scenario(error: RpcError | None) -> None:
        opened = asyncio.Event()

        async def slow(call: Call) -> bytes:
            await opened.wait()
            if error is not None:
                raise error
            return b"done"

        path = V1 + b"/ResolveBoolean"
        unary = bench.tracing.methods({path: Method(unary=slow)})[path].unary
        assert unary is not None
        waiting: Any = unary(Call(b"", False, Request(b"POST", path), {}))
        before = len(bench.spans())
        opened.set()
        if error is None:
            assert await waiting == b"done"
        else:
            with pytest.raises(RpcError):
                await waiting
        assert len(bench.spans()) == before + 1

    run(lambda: scenario(None))
    run(lambda: scenario(RpcError(Code.UNAVAILABLE)))
    assert [span.status.status_code for span in bench.spans()] == [StatusCode.UNSET, StatusCode.ERROR]


def test_other_methods_are_left_alone() -> None:
    stream = Method(stream=lambda call: pytest.fail("not called"))
    other = Method(unary=lambda call: b"")
    methods: Mapping[bytes, Method] = {V1 + b"/EventStream": stream, b"/flagd.sync.v1.FlagSyncService/X": other}
    assert Bench().tracing.methods(methods) == methods


class Source:
    name = "https://user:secret@example.com/flags.json?token=secret"


def test_a_load_is_a_span_that_tells_the_source_without_its_secrets() -> None:
    bench = Bench()

    def good(source: Source, document: int) -> int:
        return document * 2

    assert bench.tracing.loading(good)(Source(), 4) == 8

    def bad(source: Source, document: int) -> int:
        raise ValueError("the document says secret")

    with pytest.raises(ValueError, match="the document"):
        bench.tracing.loading(bad)(Source(), 1)
    loaded, failed = bench.spans()
    assert loaded.name == failed.name == "flagSync"
    assert loaded.instrumentation_scope.name == "jsonEvaluator"
    assert dict(loaded.attributes) == {"feature_flag.source": "https://example.com/flags.json?token=***"}
    assert failed.status.status_code is StatusCode.ERROR
    assert "secret" not in failed.to_json()
