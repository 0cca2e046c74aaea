"""Real OTLP receivers on loopback, over gRPC and over HTTP, that do as the test says: answer, refuse, or hang."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

from tests.clients.certificates import Certificates

TIMEOUT = 60.0
KINDS: dict[str, Any] = {
    "/v1/traces": trace_pb.ExportTraceServiceRequest,
    "/v1/metrics": metrics_pb.ExportMetricsServiceRequest,
}


class Collector:
    """What arrived, and how the next request is answered."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.attempts = 0
        self.refuse = False
        self.hang = False
        self.address = ""
        self._news = threading.Condition()
        self._freed = threading.Event()

    def take(self, request: Any, headers: dict[str, str]) -> bool:
        """Take a request in; tell whether it is accepted."""
        with self._news:
            self.attempts += 1
            hang, refuse = self.hang, self.refuse
            self._news.notify_all()
        if hang:
            self._freed.wait(TIMEOUT)
            return False
        if refuse:
            return False
        with self._news:
            self.requests.append(request)
            self.headers.append(headers)
            self._news.notify_all()
        return True

    def free(self) -> None:
        """Let go of what hangs."""
        self._freed.set()

    def wait(self, wanted: Callable[[], Any], what: str) -> Any:
        """Wait until the test sees what it wants to see."""
        with self._news:
            found = self._news.wait_for(wanted, TIMEOUT)
        assert found, f"the collector saw no {what}; it saw {self.attempts} requests: {self.requests}"
        return found

    def spans(self) -> list[tuple[str, Any]]:
        """Return (scope, span) of everything that arrived."""
        traces = [request for request in self.requests if isinstance(request, trace_pb.ExportTraceServiceRequest)]
        groups = [group for request in traces for resource in request.resource_spans for group in resource.scope_spans]
        return [(group.scope.name, span) for group in groups for span in group.spans]

    def wait_for_span(self, name: str) -> tuple[str, Any]:
        """Return the first span of a name, and its scope."""
        found: tuple[str, Any] = self.wait(
            lambda: next((item for item in self.spans() if item[1].name == name), None), f"span {name}"
        )
        return found

    def metrics(self) -> dict[str, Any]:
        """Return the last metric of each name."""
        found: dict[str, Any] = {}
        for request in self.requests:
            if isinstance(request, metrics_pb.ExportMetricsServiceRequest):
                for resource in request.resource_metrics:
                    for group in resource.scope_metrics:
                        found |= {metric.name: metric for metric in group.metrics}
        return found

    def wait_for_metric(self, name: str) -> Any:
        """Return a metric by name."""
        return self.wait(lambda: self.metrics().get(name), f"metric {name}")


def attributes(pairs: Any) -> dict[str, Any]:
    """Return the attributes of anything in OTLP as a dict."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


class _Metrics(metrics_grpc.MetricsServiceServicer):
    def __init__(self, take: Callable[[Any, Any], None]) -> None:
        self._take = take

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._take(request, context)
        return metrics_pb.ExportMetricsServiceResponse()


class _Traces(trace_grpc.TraceServiceServicer):
    def __init__(self, take: Callable[[Any, Any], None]) -> None:
        self._take = take

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._take(request, context)
        return trace_pb.ExportTraceServiceResponse()


@contextmanager
def grpc_collector(
    certificates: Certificates | None = None, *, clients: bool = False, port: int = 0
) -> Iterator[Collector]:
    """Serve OTLP over gRPC; with certificates over TLS, and for `clients` that show one only."""
    collector = Collector()

    def take(request: Any, context: Any) -> None:
        if not collector.take(request, dict(context.invocation_metadata())):
            context.abort(grpc.StatusCode.UNAVAILABLE, "the collector is out of sorts")

    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    metrics_grpc.add_MetricsServiceServicer_to_server(_Metrics(take), server)  # type: ignore[no-untyped-call]
    trace_grpc.add_TraceServiceServicer_to_server(_Traces(take), server)  # type: ignore[no-untyped-call]
    place = f"127.0.0.1:{port}"
    if certificates is None:
        bound = server.add_insecure_port(place)
    else:
        authority = certificates.authority.read_bytes() if clients else None
        pair = (certificates.key.read_bytes(), certificates.certificate.read_bytes())
        bound = server.add_secure_port(place, grpc.ssl_server_credentials([pair], authority, clients))
    collector.address = f"127.0.0.1:{bound}"
    server.start()
    try:
        yield collector
    finally:
        collector.free()
        server.stop(0).wait()


@contextmanager
def http_collector(certificates: Certificates | None = None, *, clients: bool = False) -> Iterator[Collector]:
    """Serve OTLP over HTTP, likewise."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
            kind = KINDS.get(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            accepted = kind is not None and collector.take(kind.FromString(body), headers)
            self.send_response(200 if accepted else 503 if kind else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificates is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.certificate, certificates.key)
        if clients:
            context.load_verify_locations(certificates.authority)
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
    collector.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        collector.free()
        server.shutdown()
        server.server_close()
        thread.join()
