"""The exporters of the OpenTelemetry SDK for a target, and the certificates that they use.

Everything is given to the exporters, so they read no variables (`settings` says why). gRPC notices a broken certificate
only at the handshake, and then keeps failing; so the files are tried with the standard library first, and a
half-written pair never replaces one that works.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpc import Compression as GrpcCompression
from grpc import ssl_channel_credentials
from msgspec import Struct
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression as HttpCompression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from requests import Session
from requests.utils import get_environ_proxies

from wigwag.errors import StartError
from wigwag.wire.client.tls import Trust

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

    from wigwag.telemetry.settings import OtlpTarget

MOST_POINTS = 4000
"""Points in one message: a collector takes 4 MiB of gRPC by default."""
LARGEST = 1 << 20
_SEE = "see --otel-ca-path, --otel-cert-path and --otel-key-path, or their OTEL_EXPORTER_OTLP_* variables"


class PemFiles(Struct, frozen=True):
    """The content of the files; empty where none is named."""

    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""


def metric_exporter(target: OtlpTarget, files: PemFiles) -> MetricExporter:
    """Return an exporter of metrics."""
    if target.protocol == "grpc":
        return GrpcMetrics(**_grpc(target, files), max_export_batch_size=MOST_POINTS)
    return HttpMetrics(**_http(target), max_export_batch_size=MOST_POINTS)


def span_exporter(target: OtlpTarget, files: PemFiles) -> SpanExporter:
    """Return an exporter of spans."""
    return GrpcSpans(**_grpc(target, files)) if target.protocol == "grpc" else HttpSpans(**_http(target))


def read_files(target: OtlpTarget) -> PemFiles:
    """Return what is in the files of an encrypted target now; `StartError` if it cannot be used."""
    if not target.secure:
        return PemFiles()
    trust = target.trust
    files = PemFiles(_read(trust.authority), _read(trust.certificate), _read(trust.key))
    for path, part in ((trust.authority, Trust(trust.authority)), (trust.certificate, trust)):
        try:
            if path:
                part.context()
        except (ssl.SSLError, OSError, ValueError):
            raise StartError(f"{path} is not a certificate in PEM, or its key does not belong to it; {_SEE}") from None
    return files


def _read(path: str) -> bytes:
    if not path:
        return b""
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise StartError(f"cannot read {path}, a file for the collector: {error.strerror}; {_SEE}") from None
    if len(content) > LARGEST:
        raise StartError(f"{path} is too large to be a certificate; {_SEE}")
    return content


def _grpc(target: OtlpTarget, files: PemFiles) -> dict[str, Any]:
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
        "certificate_file": target.trust.authority or None,
        "client_certificate_file": target.trust.certificate or None,
        "client_key_file": target.trust.key or None,
        "headers": dict(target.headers),
        "timeout": target.timeout,
        "compression": HttpCompression(target.compression),
        "session": _session(target),
    }


def _session(target: OtlpTarget) -> Session | None:
    """Return a session that trusts the authority of the target: by default REQUESTS_CA_BUNDLE would win over it."""
    if not target.trust.authority:
        return None
    session = Session()
    session.trust_env = False
    session.proxies = get_environ_proxies(target.endpoint)
    return session
