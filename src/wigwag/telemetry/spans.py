"""Spans around evaluations and loads, under flagd's names.

    resolveBoolean …, resolveAll     tracers flagd.evaluation.v2, flagd.evaluation.v1, flagEvaluationService
    resolveAnyValue, resolveAll      tracer flagd.ofrep.v1
    flagSync                         tracer jsonEvaluator: one document of one source

A handler runs from begin to end without awaiting, so what it evaluates belongs to the one span that is open. The
handler knows nothing of that: it tells its recorder about each evaluation, and the recorder is ours. A span tells which
flag, variant and reason, never anything of the context. Its parent is what the caller sent in W3C headers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from opentelemetry.trace import SpanKind, Status, StatusCode

from wigwag.serve.ofrep import BULK
from wigwag.telemetry.parent import ROOT, parent
from wigwag.wire.client.shown import shown
from wigwag.wire.rpc import RpcError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from opentelemetry.trace import Span, Tracer, TracerProvider

    from wigwag.flags.model import Resolution
    from wigwag.serve.management.metrics import Recorder
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
_TRACERS = {
    "flagd.evaluation.v2.Service": "flagd.evaluation.v2",
    "flagd.evaluation.v1.Service": "flagd.evaluation.v1",
    "schema.v1.Service": "flagEvaluationService",
}


class SpanEvaluations:
    """What was evaluated while a span was open: how many flags, and which one last."""

    __slots__ = ("count", "found", "key")

    def __init__(self) -> None:
        self.count, self.key = 0, ""
        self.found: Resolution | None = None

    def attributes(self, *, bulk: bool) -> Mapping[str, str | int]:
        """Return it as attributes of a span: of one flag, or of many together."""
        if bulk:
            return {"feature_flag.count": self.count}
        if self.found is None:
            return {}
        told = {
            "feature_flag.key": self.key[:LONGEST],
            "feature_flag.provider.name": PROVIDER,
            "feature_flag.reason": self.found.reason,
        }
        return told | ({} if self.found.variant is None else {"feature_flag.result.variant": self.found.variant})

    def fault(self, otherwise: str) -> str:
        """Return the code of what went wrong with the flag, if it was that."""
        return (self.found.error if self.found is not None else None) or otherwise


class Tracing:
    """Makes the spans of an agent; it is also the recorder that sees what is evaluated."""

    def __init__(self, provider: TracerProvider, recorder: Recorder) -> None:
        self._tracer = provider.get_tracer
        self._recorder = recorder
        self._noted = SpanEvaluations()

    def evaluated(self, key: str, found: Resolution) -> None:
        """Pass it on, and note it for the span that is open."""
        self._recorder.evaluated(key, found)
        noted = self._noted
        noted.count += 1
        noted.key, noted.found = key, found

    def evaluated_all(self, answers: Sequence[tuple[str, Resolution]]) -> None:
        """Pass all on, and note them for the span that is open."""
        self._recorder.evaluated_all(answers)
        if answers:
            self._noted.count += len(answers)
            self._noted.key, self._noted.found = answers[-1]

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
            noted, span = SpanEvaluations(), start(call.fields)
            self._noted = noted
            try:
                result = unary(call)
            except BaseException as error:
                _end(span, noted, bulk, noted.fault(_kind(error)))
                raise
            if isinstance(result, bytes):
                _end(span, noted, bulk)
                return result
            return _awaited(result, span, noted, bulk)

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
            noted, span = SpanEvaluations(), (many if bulk else single)(request.fields)
            self._noted = noted
            try:
                answer: Any = handler(request)
            except BaseException as error:
                _end(span, noted, bulk, _kind(error))
                raise
            status = getattr(answer, "status", 200)
            span.set_attribute("http.response.status_code", status)
            _end(span, noted, bulk, noted.fault(str(status)) if status >= 400 else "")
            return answer

        return handle

    def loading(self, load: Callable[[S, V], T]) -> Callable[[S, V], T]:
        """Return what loads a document with a span around it."""
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


def _starter(tracer: Tracer, name: str, attributes: Mapping[str, str]) -> Callable[[Mapping[bytes, bytes]], Span]:
    """Return what starts a server's span below whatever the headers of a request say."""
    start, kind = tracer.start_span, SpanKind.SERVER
    return lambda fields: start(name, parent(fields), kind, attributes)


async def _awaited(result: Awaitable[V], span: Span, noted: SpanEvaluations, bulk: bool) -> V:
    try:
        found = await result
    except BaseException as error:
        _end(span, noted, bulk, _kind(error))
        raise
    _end(span, noted, bulk)
    return found


def _end(span: Span, noted: SpanEvaluations, bulk: bool, fault: str = "") -> None:
    if span.is_recording():
        span.set_attributes(noted.attributes(bulk=bulk))
        if fault:
            _fail(span, fault)
    span.end()


def _fail(span: Span, fault: str) -> None:
    span.set_attribute("error.type", fault)
    span.set_status(Status(StatusCode.ERROR, fault))


def _kind(error: BaseException) -> str:
    """Return what kind of error it is; its text could quote a message."""
    return error.code.name if isinstance(error, RpcError) else error.__class__.__qualname__
