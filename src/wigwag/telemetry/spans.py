"""Spans around evaluations and loads, under flagd's names.

    resolveBoolean …, resolveAll     tracers flagd.evaluation.v2, flagd.evaluation.v1, flagEvaluationService
    resolveAnyValue, resolveAll      tracer flagd.ofrep.v1
    flagSync                         tracer jsonEvaluator: one document of one source

A handler evaluates without awaiting, so all evaluations between its start and its return belong to the one span that is
current. The handler knows nothing of spans: it reports each evaluation to its recorder, and `Tracing` is that recorder.
A span has the flag, variant and reason, never anything of the evaluation context. Its parent is in the W3C headers of
the request: `traceparent`, `tracestate` and `baggage`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import INVALID_SPAN, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from wigwag.serve.ofrep import BULK
from wigwag.wire.client.shown import shown
from wigwag.wire.rpc import RpcError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from opentelemetry.trace import Span, Tracer, TracerProvider

    from wigwag.flags.model import Resolution
    from wigwag.serve.management.metrics import Recorder, Tallies
    from wigwag.wire.http import Handler, Request
    from wigwag.wire.rpc import Call, Method, Methods, Unary

    class SpanSource(Protocol):
        """A source."""

        @property
        def name(self) -> str: ...


S = TypeVar("S", bound="SpanSource")
V = TypeVar("V")
T = TypeVar("T")
PROVIDER = "flagd"
LONGEST = 256
"""Characters of a value that comes from outside."""
LONGEST_HEADER = 8192
ROOT = Context()
_TRACE, _BAGGAGE = TraceContextTextMapPropagator(), W3CBaggagePropagator()
_TRACERS = {
    "flagd.evaluation.v2.Service": "flagd.evaluation.v2",
    "flagd.evaluation.v1.Service": "flagd.evaluation.v1",
    "schema.v1.Service": "flagEvaluationService",
}


class EvaluationSpan:
    """The span of a request, with what was evaluated while it was current: how many flags, and which one last."""

    __slots__ = ("_bulk", "_span", "count", "key", "resolution")

    def __init__(self, span: Span, bulk: bool) -> None:
        self._span = span
        self._bulk = bulk
        self.count = 0
        self.key = ""
        self.resolution: Resolution | None = None

    def fail(self, error: str) -> None:
        """End it with an error: the code of the last evaluation, or else this one."""
        _fail(self._span, (self.resolution.error if self.resolution is not None else None) or error)
        self.end()

    def end(self) -> None:
        """End it."""
        span = self._span
        if span.is_recording():
            span.set_attributes(self._attributes())
        span.end()

    def _attributes(self) -> Mapping[str, str | int]:
        if self._bulk:
            return {"feature_flag.count": self.count}
        if self.resolution is None:
            return {}
        attributes = {
            "feature_flag.key": self.key[:LONGEST],
            "feature_flag.provider.name": PROVIDER,
            "feature_flag.reason": self.resolution.reason,
        }
        if self.resolution.variant is not None:
            attributes["feature_flag.result.variant"] = self.resolution.variant
        return attributes


class Tracing:
    """Makes the spans of an agent; it is also the recorder of evaluations."""

    def __init__(self, provider: TracerProvider, recorder: Recorder) -> None:
        self._tracer = provider.get_tracer
        self._recorder = recorder
        self._current = EvaluationSpan(INVALID_SPAN, True)

    def evaluated(self, key: str, resolution: Resolution, tallies: Tallies) -> None:
        """Pass an evaluation on, and note it for the current span."""
        self._recorder.evaluated(key, resolution, tallies)
        current = self._current
        current.count += 1
        current.key, current.resolution = key, resolution

    def evaluated_all(self, keys: Sequence[str], resolutions: Sequence[Resolution], tallies: Tallies) -> None:
        """Pass evaluations on, and note them for the current span."""
        self._recorder.evaluated_all(keys, resolutions, tallies)
        if keys:
            self._current.count += len(keys)
            self._current.key, self._current.resolution = keys[-1], resolutions[-1]

    def methods(self, methods: Methods) -> dict[bytes, Method]:
        """Return the methods with spans around those that evaluate."""
        return {path: self._traced(path.decode(), method) for path, method in methods.items()}

    def _traced(self, path: str, method: Method) -> Method:
        _, service, name = path.split("/")
        if method.unary is None or service not in _TRACERS:
            return method
        attributes = {"rpc.service": service, "rpc.method": name}
        start = _starter(self._tracer(_TRACERS[service]), name[0].lower() + name[1:], attributes)
        return replace(method, unary=self._unary(method.unary, start, bulk=name == "ResolveAll"))

    def _unary(self, unary: Unary, start: Callable[[Mapping[bytes, bytes]], Span], *, bulk: bool) -> Unary:
        def handle(call: Call) -> bytes | Awaitable[bytes]:
            current = self._current = EvaluationSpan(start(call.fields), bulk)
            try:
                result = unary(call)
            except BaseException as error:
                current.fail(_kind(error))
                raise
            if isinstance(result, bytes):
                current.end()
                return result
            return _awaited(result, current)

        return handle

    def ofrep(self, handler: Handler) -> Handler:
        """Return the handler of OFREP with spans around its evaluations."""
        tracer, route = self._tracer("flagd.ofrep.v1"), BULK.decode()
        single = _starter(tracer, "resolveAnyValue", {"http.route": f"{route}/{{key}}"})
        many = _starter(tracer, "resolveAll", {"http.route": route})

        def handle(request: Request) -> Any:
            if request.method != b"POST" or not request.path.startswith(BULK):
                return handler(request)
            bulk = request.path[len(BULK) :] in (b"", b"/")
            span = (many if bulk else single)(request.fields)
            current = self._current = EvaluationSpan(span, bulk)
            try:
                response: Any = handler(request)
            except BaseException as error:
                current.fail(_kind(error))
                raise
            status = getattr(response, "status", 200)
            span.set_attribute("http.response.status_code", status)
            if status >= 400:
                current.fail(str(status))
            else:
                current.end()
            return response

        return handle

    def loading(self, load: Callable[[S, V], T]) -> Callable[[S, V], T]:
        """Return a function that loads a document, with a span around it."""
        tracer = self._tracer("jsonEvaluator")

        def traced(source: S, document: V) -> T:
            name = shown(source.name) if "://" in source.name else source.name
            span = tracer.start_span("flagSync", ROOT, attributes={"feature_flag.source": name[:LONGEST]})
            try:
                return load(source, document)
            except BaseException as error:
                _fail(span, _kind(error))
                raise
            finally:
                span.end()

        return traced


class _Headers(Getter["Mapping[bytes, bytes]"]):
    """Headers as propagators read them; one that is too long counts as absent."""

    def get(self, carrier: Mapping[bytes, bytes], key: str) -> list[str] | None:
        value = carrier.get(key.encode())
        return None if value is None or len(value) > LONGEST_HEADER else [value.decode("latin-1")]

    def keys(self, carrier: Mapping[bytes, bytes]) -> list[str]:
        return [key.decode("latin-1") for key in carrier]


_HEADERS = _Headers()


def parent(fields: Mapping[bytes, bytes]) -> Context:
    """Return the caller's context from the headers of its request; the root if there is none that can be read."""
    context = ROOT
    if b"traceparent" in fields:
        context = _TRACE.extract(fields, context, _HEADERS)
    if b"baggage" in fields:
        context = _BAGGAGE.extract(fields, context, _HEADERS)
    return context


def _starter(tracer: Tracer, name: str, attributes: Mapping[str, str]) -> Callable[[Mapping[bytes, bytes]], Span]:
    """Return a function that starts a server span, given the headers of a request."""
    start, kind = tracer.start_span, SpanKind.SERVER
    return lambda fields: start(name, parent(fields), kind, attributes)


async def _awaited(result: Awaitable[V], current: EvaluationSpan) -> V:
    try:
        value = await result
    except BaseException as error:
        current.fail(_kind(error))
        raise
    current.end()
    return value


def _fail(span: Span, error: str) -> None:
    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR, error))


def _kind(error: BaseException) -> str:
    """Return what kind of error it is; its text could quote a message."""
    return error.code.name if isinstance(error, RpcError) else error.__class__.__qualname__
