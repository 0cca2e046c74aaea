"""The exporters of the OpenTelemetry SDK for a target. Everything is told to them, so that they look up nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpc import Compression as GrpcCompression
from grpc import ssl_channel_credentials
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression as HttpCompression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from requests import Session
from requests.utils import get_environ_proxies

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

    from wigwag.telemetry.files import Files
    from wigwag.telemetry.settings import OtlpTarget

MOST_POINTS = 4000
"""Points in one message: a collector takes 4 MiB of gRPC by default."""


def metric_exporter(target: OtlpTarget, files: Files) -> MetricExporter:
    """Return what sends metrics."""
    if target.protocol == "grpc":
        return GrpcMetrics(**_grpc(target, files), max_export_batch_size=MOST_POINTS)
    return HttpMetrics(**_http(target), max_export_batch_size=MOST_POINTS)


def span_exporter(target: OtlpTarget, files: Files) -> SpanExporter:
    """Return what sends spans."""
    return GrpcSpans(**_grpc(target, files)) if target.protocol == "grpc" else HttpSpans(**_http(target))


def _grpc(target: OtlpTarget, files: Files) -> dict[str, Any]:
    credentials = None
    if target.secure:
        credentials = ssl_channel_credentials(files.authority or None, files.key or None, files.certificate or None)
    return {
        "endpoint": target.endpoint,
        "insecure": not target.secure,
        "credentials": credentials,
        "headers": target.headers,
        "timeout": target.timeout,
        "compression": GrpcCompression.Gzip if target.compression == "gzip" else GrpcCompression.NoCompression,
    }


def _http(target: OtlpTarget) -> dict[str, Any]:
    return {
        "endpoint": target.endpoint,
        "certificate_file": target.authority or None,
        "client_certificate_file": target.certificate or None,
        "client_key_file": target.key or None,
        "headers": dict(target.headers),
        "timeout": target.timeout,
        "compression": HttpCompression(target.compression),
        "session": _session(target),
    }


def _session(target: OtlpTarget) -> Session | None:
    """Return a session that believes the authority we name: by default REQUESTS_CA_BUNDLE would win over it."""
    if not target.authority:
        return None
    session = Session()
    session.trust_env = False
    session.proxies = get_environ_proxies(target.endpoint)
    return session
