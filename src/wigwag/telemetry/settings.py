"""What is to be pushed where, decided purely from flagd's options and the environment.

    OTEL_EXPORTER_OTLP_TRACES_X  >  OTEL_EXPORTER_OTLP_X  >  --otel-*  >  the specification's default

That order is flagd's: the environment wins over `--otel-collector-uri`. The certificate options, which flagd accepts
and ignores, are the one exception: who names files on the command line wants those. Nothing is pushed unless somebody
asks: by an option, by `OTEL_*_EXPORTER=otlp`, or, for traces, by naming an endpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from wigwag.errors import UsageError
from wigwag.telemetry import endpoints
from wigwag.telemetry.environment import Environment
from wigwag.wire.client.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Signal = Literal["traces", "metrics"]

OTLP = "OTEL_EXPORTER_OTLP"
SAMPLERS = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)
_PROTOCOLS = ("grpc", "http/protobuf")
_MOST_SPANS = 1 << 16


class TelemetryOptions(Struct, frozen=True, kw_only=True):
    """flagd's options about telemetry."""

    metrics_exporter: str = ""
    collector: str = ""
    certificate: str = ""
    key: str = ""
    authority: str = ""
    reload_seconds: float = 3600.0


class OtlpTarget(Struct, frozen=True, kw_only=True):
    """Where one signal goes, and how."""

    protocol: str
    endpoint: str
    """`host:port` for gRPC, a whole URL for HTTP."""
    secure: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    timeout: float = 10.0
    compression: str = "none"
    authority: str = ""
    certificate: str = ""
    key: str = ""

    @property
    def place(self) -> str:
        """Where, without what may be secret in a URL."""
        return shown(self.endpoint)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be told, longest first: values of headers, and what a URL has besides the place."""
        login, query = endpoints.hidden(self.endpoint)
        values = {value for _, value in self.headers} | {login, query}
        return tuple(sorted(values - {""}, key=len, reverse=True))


class Batching(Struct, frozen=True):
    """How spans wait for the next delivery."""

    queue: int = 2048
    batch: int = 512
    seconds: float = 5.0


class TelemetrySettings(Struct, frozen=True, kw_only=True):
    """All of it. A signal without a target is not pushed."""

    traces: OtlpTarget | None = None
    metrics: OtlpTarget | None = None
    resource: dict[str, str] = {}
    sampler: str = "always_on"
    ratio: float = 1.0
    interval: float = 60.0
    reload_seconds: float = 3600.0
    batching: Batching = Batching()
    by_option: bool = False
    """Somebody asked on the command line, so that it is an error if it cannot be."""


def decide(asked: TelemetryOptions, variables: Mapping[str, str]) -> TelemetrySettings:
    """Return the settings; what cannot be meant is a `UsageError`."""
    environment = Environment(variables)
    _check(asked)
    if environment.truth("OTEL_SDK_DISABLED"):
        return TelemetrySettings()
    traces = _target("traces", asked, environment) if _traces_wanted(asked, environment) else None
    metrics = _target("metrics", asked, environment) if _metrics_wanted(asked, environment) else None
    return TelemetrySettings(
        traces=traces,
        metrics=metrics,
        resource=dict(environment.pairs("OTEL_RESOURCE_ATTRIBUTES")) | _named(environment),
        sampler=environment.choice(("OTEL_TRACES_SAMPLER",), SAMPLERS, "always_on"),
        ratio=environment.ratio("OTEL_TRACES_SAMPLER_ARG", 1.0),
        interval=environment.seconds(("OTEL_METRIC_EXPORT_INTERVAL",), 60.0),
        reload_seconds=asked.reload_seconds,
        batching=_batching(environment),
        by_option=bool(asked.metrics_exporter or asked.collector),
    )


def _check(asked: TelemetryOptions) -> None:
    if asked.metrics_exporter not in ("", "otel"):
        raise UsageError(f"--metrics-exporter: {asked.metrics_exporter!r} is unknown; say otel, or leave it out")
    if bool(asked.certificate) != bool(asked.key):
        raise UsageError("a client certificate needs both --otel-cert-path and --otel-key-path")
    if asked.reload_seconds <= 0:
        raise UsageError("--otel-reload-interval must be more than nothing, such as 1h")


def _traces_wanted(asked: TelemetryOptions, environment: Environment) -> bool:
    named = asked.collector or environment.text(f"{OTLP}_TRACES_ENDPOINT", f"{OTLP}_ENDPOINT")
    return environment.choice(("OTEL_TRACES_EXPORTER",), ("otlp", "none"), "otlp" if named else "none") == "otlp"


def _metrics_wanted(asked: TelemetryOptions, environment: Environment) -> bool:
    default = "otlp" if asked.metrics_exporter else "prometheus"
    wanted = environment.choice(("OTEL_METRICS_EXPORTER",), ("otlp", "prometheus", "none"), default) == "otlp"
    named = asked.collector or environment.text("OTEL_METRICS_EXPORTER", f"{OTLP}_METRICS_ENDPOINT", f"{OTLP}_ENDPOINT")
    if wanted and not named:
        raise UsageError(f"--metrics-exporter otel: where to? give --otel-collector-uri, or {OTLP}_ENDPOINT")
    return wanted


def _named(environment: Environment) -> dict[str, str]:
    name = environment.text("OTEL_SERVICE_NAME")
    return {"service.name": name} if name else {}


def _batching(environment: Environment) -> Batching:
    queue = environment.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048, _MOST_SPANS)
    batch = environment.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", min(512, queue), queue)
    return Batching(queue, batch, environment.seconds(("OTEL_BSP_SCHEDULE_DELAY",), 5.0))


def _target(signal: Signal, asked: TelemetryOptions, environment: Environment) -> OtlpTarget:
    def both(name: str) -> tuple[str, str]:
        return f"{OTLP}_{signal.upper()}_{name}", f"{OTLP}_{name}"

    protocol = environment.choice(both("PROTOCOL"), _PROTOCOLS, "grpc" if asked.collector else "http/protobuf")
    files = _files(asked, environment, both)
    own, shared = (environment.text(name) for name in both("ENDPOINT"))
    endpoint = own or shared or asked.collector
    secure = endpoints.is_secure(endpoint, any(files.values()), environment.truth(*both("INSECURE")))
    if not secure and (asked.authority or asked.certificate):
        place = shown(endpoint)
        raise UsageError(f"{place} is not encrypted, so that the --otel-*-path files are of no use; write https://")
    compressions = ("none", "gzip") if protocol == "grpc" else ("none", "gzip", "deflate")
    return OtlpTarget(
        protocol=protocol,
        endpoint=endpoints.address(endpoint)
        if protocol == "grpc"
        else endpoints.url(endpoint, "" if own else f"v1/{signal}", secure=secure),
        secure=secure,
        headers=tuple((name.lower(), value) for name, value in environment.pairs(*both("HEADERS"))),
        timeout=environment.seconds(both("TIMEOUT"), 10.0),
        compression=environment.choice(both("COMPRESSION"), compressions, "none"),
        **files,
    )


def _files(asked: TelemetryOptions, environment: Environment, both: Callable[[str], tuple[str, str]]) -> dict[str, str]:
    found = {
        "authority": asked.authority or environment.text(*both("CERTIFICATE")),
        "certificate": asked.certificate or environment.text(*both("CLIENT_CERTIFICATE")),
        "key": asked.key or environment.text(*both("CLIENT_KEY")),
    }
    if bool(found["certificate"]) != bool(found["key"]):
        raise UsageError(f"a client certificate needs both {both('CLIENT_CERTIFICATE')[1]} and {both('CLIENT_KEY')[1]}")
    return found
