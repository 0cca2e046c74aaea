"""Which signals are exported, where to and how: a pure function of flagd's options and the `OTEL_*` variables.

    OTEL_EXPORTER_OTLP_TRACES_X  >  OTEL_EXPORTER_OTLP_X  >  --otel-*  >  the specification's default

That order is flagd's: the environment wins over `--otel-collector-uri`. The certificate options, which flagd accepts
and ignores, are the exception: if you name files on the command line, you want those. Nothing is exported unless an
option asks for it, or `OTEL_*_EXPORTER=otlp`, or, for traces, an endpoint in the environment.

The SDK reads the variables of the sampler and of the resource by itself (`batches`). Those of its exporters and of its
batches are read here, because the Python SDK departs from the specification; a test shows how. It takes a timeout in
milliseconds for seconds, stops at an empty variable, and at a queue that is smaller than the default batch. Over gRPC
it refuses the compression `none` and knows no default port; over HTTP an endpoint needs a scheme. It logs a header that
it cannot read, which may be a secret. Here a wrong value is a `UsageError` that names the variable, without headers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from wigwag.errors import UsageError
from wigwag.wire.client.shown import shown
from wigwag.wire.client.tls import Trust

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Signal = Literal["traces", "metrics"]

OTLP = "OTEL_EXPORTER_OTLP"
_PORTS = {"grpc": 4317, "http/protobuf": 4318}
_COMPRESSIONS = {"grpc": ("none", "gzip"), "http/protobuf": ("none", "gzip", "deflate")}
_DAY = 24 * 3600 * 1000
_MOST_HEADERS, _MOST_SPANS = 128, 1 << 16
_NATURAL = re.compile(r"0*[1-9][0-9]{0,17}")


class TelemetryOptions(Struct, frozen=True, kw_only=True):
    """flagd's options about telemetry."""

    metrics_exporter: str = ""
    collector: str = ""
    certificate: str = ""
    key: str = ""
    authority: str = ""
    reload_seconds: float = 3600.0


class OtlpTarget(Struct, frozen=True, kw_only=True):
    """Where one signal is exported to, and how."""

    protocol: str
    endpoint: str
    """`host:port` for gRPC, a whole URL for HTTP."""
    secure: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    timeout: float = 10.0
    compression: str = "none"
    trust: Trust = Trust()

    @property
    def address(self) -> str:
        """The endpoint without what may be secret in a URL."""
        return shown(self.endpoint)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be logged, longest first: values of headers, and the user, password and query of a URL."""
        parts = _split(self.endpoint)
        values = {value for _, value in self.headers} | {parts.netloc.rpartition("@")[0], parts.query}
        return tuple(sorted(values - {""}, key=len, reverse=True))


class Batching(Struct, frozen=True):
    """How spans wait for the next export."""

    queue: int = 2048
    batch: int = 512
    seconds: float = 5.0


class TelemetrySettings(Struct, frozen=True, kw_only=True):
    """All of it. A signal without a target is not exported."""

    traces: OtlpTarget | None = None
    metrics: OtlpTarget | None = None
    interval: float = 60.0
    reload_seconds: float = 3600.0
    batching: Batching = Batching()
    by_option: bool = False
    """An option asks for telemetry, so it is an error if there can be none."""


class Environment:
    """Reads variables as the specification does: an empty one counts as absent. The first that is set wins."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def text(self, *names: str) -> str:
        """Return a text, or an empty one."""
        return self._first(names)[1]

    def choice(self, names: Sequence[str], known: Sequence[str], default: str) -> str:
        """Return one of the known words."""
        name, value = self._first(names)
        if value and value.lower() not in known:
            raise UsageError(f"{name}: {value!r} is not supported; use one of {', '.join(known)}")
        return value.lower() or default

    def truth(self, *names: str) -> bool | None:
        """Return true or false, None if none is set; everything but `true` is false, as the specification has it."""
        value = self.text(*names)
        return value.lower() == "true" if value else None

    def number(self, names: Sequence[str], default: int, largest: int, unit: str = "") -> int:
        """Return a whole number of at least 1; more than the largest is the largest."""
        name, value = self._first(names)
        if value and not _NATURAL.fullmatch(value):
            raise UsageError(f"{name}: {value!r} is not a whole number{unit} of at least 1")
        return min(int(value or default), largest)

    def seconds(self, names: Sequence[str], default: int) -> float:
        """Return seconds; the variable and the default are milliseconds."""
        return self.number(names, default, _DAY, " of milliseconds") / 1000

    def pairs(self, *names: str) -> tuple[tuple[str, str], ...]:
        """Return `key=value,key=value`, percent-decoded; the keys are names of headers."""
        name, value = self._first(names)
        items = [item.partition("=") for item in value.split(",") if item.strip()]
        if len(items) > _MOST_HEADERS or not all(key.strip() and separator for key, separator, _ in items):
            raise UsageError(f"{name}: write key=value,key=value, at most {_MOST_HEADERS} of them")
        return tuple((unquote(key.strip()).lower(), unquote(item.strip())) for key, _, item in items)

    def _first(self, names: Sequence[str]) -> tuple[str, str]:
        values = ((name, self._variables.get(name, "").strip()) for name in names)
        return next((each for each in values if each[1]), (names[-1], ""))


def decide(options: TelemetryOptions, variables: Mapping[str, str]) -> TelemetrySettings:
    """Return the settings; a wrong option or variable is a `UsageError`."""
    _check(options)
    environment = Environment(variables)
    if environment.truth("OTEL_SDK_DISABLED"):
        return TelemetrySettings()
    queue = environment.number(["OTEL_BSP_MAX_QUEUE_SIZE"], 2048, _MOST_SPANS)
    batch = environment.number(["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"], 512, queue)
    return TelemetrySettings(
        traces=_target("traces", options, environment) if _traces_wanted(options, environment) else None,
        metrics=_target("metrics", options, environment) if _metrics_wanted(options, environment) else None,
        interval=environment.seconds(["OTEL_METRIC_EXPORT_INTERVAL"], 60_000),
        reload_seconds=options.reload_seconds,
        batching=Batching(queue, batch, environment.seconds(["OTEL_BSP_SCHEDULE_DELAY"], 5000)),
        by_option=bool(options.metrics_exporter or options.collector),
    )


def _check(options: TelemetryOptions) -> None:
    if options.metrics_exporter not in ("", "otel"):
        raise UsageError(f"--metrics-exporter: {options.metrics_exporter!r} is unknown; say otel, or leave it out")
    if bool(options.certificate) != bool(options.key):
        raise UsageError("a client certificate needs both --otel-cert-path and --otel-key-path")
    if options.reload_seconds <= 0:
        raise UsageError("--otel-reload-interval must be more than 0, such as 1h")


def _traces_wanted(options: TelemetryOptions, environment: Environment) -> bool:
    endpoint = options.collector or environment.text(f"{OTLP}_TRACES_ENDPOINT", f"{OTLP}_ENDPOINT")
    return environment.choice(["OTEL_TRACES_EXPORTER"], ("otlp", "none"), "otlp" if endpoint else "none") == "otlp"


def _metrics_wanted(options: TelemetryOptions, environment: Environment) -> bool:
    default = "otlp" if options.metrics_exporter else "prometheus"
    wanted = environment.choice(["OTEL_METRICS_EXPORTER"], ("otlp", "prometheus", "none"), default) == "otlp"
    names = ("OTEL_METRICS_EXPORTER", f"{OTLP}_METRICS_ENDPOINT", f"{OTLP}_ENDPOINT")
    if wanted and not options.collector and not environment.text(*names):
        raise UsageError(f"--metrics-exporter otel: where to? give --otel-collector-uri, or {OTLP}_ENDPOINT")
    return wanted


def _target(signal: Signal, options: TelemetryOptions, environment: Environment) -> OtlpTarget:
    def both(name: str) -> tuple[str, str]:
        return f"{OTLP}_{signal.upper()}_{name}", f"{OTLP}_{name}"

    protocol = environment.choice(both("PROTOCOL"), [*_PORTS], "grpc" if options.collector else "http/protobuf")
    trust = Trust(
        options.authority or environment.text(*both("CERTIFICATE")),
        options.certificate or environment.text(*both("CLIENT_CERTIFICATE")),
        options.key or environment.text(*both("CLIENT_KEY")),
    )
    if bool(trust.certificate) != bool(trust.key):
        raise UsageError(f"a client certificate needs both {both('CLIENT_CERTIFICATE')[1]} and {both('CLIENT_KEY')[1]}")
    endpoint = environment.text(*both("ENDPOINT")) or options.collector or f"localhost:{_PORTS[protocol]}"
    secure = _is_secure(endpoint, environment.truth(*both("INSECURE")), trust)
    if not secure and (options.authority or options.certificate):
        raise UsageError(f"{shown(endpoint)} is not encrypted, so the --otel-*-path files have no use; write https://")
    if protocol == "grpc":
        endpoint = _grpc_endpoint(endpoint)
    else:
        endpoint = _url(endpoint, "" if environment.text(both("ENDPOINT")[0]) else f"/v1/{signal}", secure)
    return OtlpTarget(
        protocol=protocol,
        endpoint=endpoint,
        secure=secure,
        headers=environment.pairs(*both("HEADERS")),
        timeout=environment.seconds(both("TIMEOUT"), 10_000),
        compression=environment.choice(both("COMPRESSION"), _COMPRESSIONS[protocol], "none"),
        trust=trust,
    )


def _is_secure(endpoint: str, insecure: bool | None, trust: Trust) -> bool:
    """Tell whether to encrypt: the scheme decides; without one the variable does, or that there are certificates."""
    scheme = _split(endpoint).scheme
    if scheme in ("http", "https"):
        return scheme == "https"
    return bool(trust.files()) if insecure is None else not insecure


def _grpc_endpoint(endpoint: str) -> str:
    """Return what gRPC connects to: a host and a port, or a target with a scheme of gRPC's own.

    >>> _grpc_endpoint("http://collector"), _grpc_endpoint("collector:1"), _grpc_endpoint("unix:///run/otel.sock")
    ('collector:4317', 'collector:1', 'unix:///run/otel.sock')
    """
    if _split(endpoint).scheme not in ("http", "https"):
        return endpoint
    host, port = _host(endpoint)
    return host if port else f"{host}:{_PORTS['grpc']}"


def _url(endpoint: str, path: str, secure: bool) -> str:
    """Return the URL of a signal below an endpoint.

    >>> _url("collector:4318", "/v1/traces", False)
    'http://collector:4318/v1/traces'
    """
    url = endpoint if "://" in endpoint else f"{'https' if secure else 'http'}://{endpoint}"
    _host(url)
    return f"{url.rstrip('/')}{path}" if path else url


def _host(endpoint: str) -> tuple[str, int | None]:
    """Return the host of a URL, with its port if it has one, and the port."""
    parts = _split(endpoint)
    try:
        host, port = parts.netloc.rpartition("@")[2], parts.port
    except ValueError:
        host, port = "", None
    if not host or parts.scheme not in ("http", "https"):
        raise UsageError(f"{shown(endpoint)!r} is not an endpoint for telemetry; write HOST:PORT or http://HOST:PORT")
    return host, port


def _split(endpoint: str) -> SplitResult:
    """Split an endpoint, which may have no scheme: `localhost:4317` is a host and a port."""
    try:
        return urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    except ValueError:  # brackets that do not belong to an address
        return SplitResult("", "", "", "", "")
