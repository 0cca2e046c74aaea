"""The options of `wigwag start`: every one of `flagd start`, by the same name, and some of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wigwag.options import as_it_is, duration, file_mode, natural, option, port_number, positive

if TYPE_CHECKING:
    from wigwag.flags.model import Fractional


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """The options of the agent."""

    uri: tuple[str, ...] = option(
        (), "a source of flags, such as file:flags.json; may be repeated", short="-f", metavar="URI", group="flags"
    )
    sources: Any = option(
        "", "sources as a JSON array of objects with uri and provider", short="-s", metavar="JSON", convert=as_it_is
    )
    port: int = option(
        8013, "evaluation: gRPC, gRPC-Web and Connect", short="-p", metavar="PORT", convert=port_number, group="ports"
    )
    management_port: int = option(
        8014, "probes, metrics and debugging", short="-m", metavar="PORT", convert=port_number
    )
    sync_port: int = option(
        8015, "flag documents for in-process providers", short="-g", metavar="PORT", convert=port_number
    )
    ofrep_port: int = option(8016, "OFREP: evaluation over plain HTTP", short="-r", metavar="PORT", convert=port_number)
    socket_path: str = option("", "evaluation on this unix socket instead of a port", short="-d", metavar="PATH")
    sync_socket_path: str = option("", "sync on this unix socket instead of a port", short="-e", metavar="PATH")
    socket_mode: int = option(0o660, "permissions of unix sockets, in octal", metavar="MODE", convert=file_mode)
    bind: str = option("", "the address to listen on; without it, all of them", metavar="ADDRESS")
    server_cert_path: str = option(
        "",
        "certificate of evaluation and sync, in PEM; read again when it changes",
        short="-c",
        metavar="PATH",
        group="TLS",
    )
    server_key_path: str = option("", "its private key", short="-k", metavar="PATH")
    ofrep_tls: bool = option(False, "serve OFREP with TLS, too, and ask for client certificates as on the others")
    management_tls: bool = option(False, "serve the management port with TLS, too; it asks for no client certificate")
    client_ca_path: str = option("", "ask clients for certificates signed by this authority", metavar="PATH")
    context_value: dict[str, str] = option(
        {},
        "an attribute laid over every evaluation context",
        short="-X",
        metavar="KEY=VALUE",
        group="evaluation context",
    )
    context_from_header: dict[str, str] = option(
        {}, "an attribute taken from a request header", short="-H", metavar="HEADER=KEY"
    )
    context_from_pod: bool = option(False, "what is known about this pod, as `pod`: name, namespace, node, labels, …")
    pod_info: str = option("/etc/podinfo", "where the downward API is mounted, for --context-from-pod", metavar="DIR")
    context_from_consul: tuple[str, ...] = option(
        (), "how a service of Consul is doing, as `consul.SERVICE`; may be repeated", metavar="SERVICE"
    )
    cors_origin: tuple[str, ...] = option(
        (),
        "an origin that browsers may call from; * for all, none by default",
        short="-C",
        metavar="ORIGIN",
        group="clients and their limits",
    )
    require_selector: bool = option(False, "refuse requests that do not select flags")
    auth_tokens: str = option(
        "", "a file of rules: which token or client certificate may use which selectors", metavar="FILE"
    )
    rate_limit: int = option(0, "requests per second of one client; 0 for no limit", metavar="N", convert=natural)
    rate_burst: int = option(
        0, "requests at once of one client; 0 for as many as --rate-limit", metavar="N", convert=natural
    )
    max_connections: int = option(
        10_000,
        "connections to one port; fewer if the limit of open files does not allow them",
        metavar="N",
        convert=positive,
    )
    max_connections_per_address: int = option(
        0,
        "of them, from one address that is not this machine; 0 for half",
        metavar="N",
        convert=natural,
    )
    max_streams_per_client: int = option(0, "open streams of one client; 0 for no limit", metavar="N", convert=natural)
    strict: bool = option(
        False, "reject a document with a bad flag instead of quarantining the flag", group="documents and freshness"
    )
    fractional: Fractional = option("v2", "the hashing version of `fractional`", choices=("v2", "v3"))
    stale_after: float = option(
        0.0,
        "call flags STALE whose source was not heard of for this long; 0 for never",
        metavar="DURATION",
        convert=duration,
    )
    readiness: str = option(
        "served",
        "when /readyz says so: once every required source has answered or its last good flags are `served`,"
        " or only while none is stale (`fresh`)",
        choices=("served", "fresh"),
    )
    response_metadata: bool = option(False, "tell the snapshot's id and age with every evaluation")
    state_dir: str = option("", "keep the last good flags here, and start with them", metavar="DIR")
    stream_deadline: float = option(
        0.0,
        "end event and sync streams after this long; 0 for never",
        metavar="DURATION",
        convert=duration,
        group="requests and streams",
    )
    disable_sync_metadata: bool = option(False, "do not serve GetMetadata on the sync port")
    max_request_body: int = option(
        1_000_000, "bytes in a request; 0 for no limit", short="-B", metavar="BYTES", convert=natural
    )
    max_request_header: int = option(
        1_000_000, "bytes in a request's headers; 0 for 1 MiB", short="-R", metavar="BYTES"
    )
    keep_alive_min_time: float = option(
        30.0, "the shortest interval of a client's keep-alive pings", metavar="DURATION", convert=duration
    )
    keep_alive_permit_without_stream: bool = option(True, "allow such pings without a request under way")
    ofrep_sse_enabled: bool = option(True, "tell OFREP clients about changes by server-sent events")
    ofrep_sse_inactivity_delay: int = option(
        120, "seconds after which an inactive client refetches", metavar="SECONDS", convert=positive
    )
    ofrep_sse_public_url: str = option("", "where clients reach the event stream, if not here", metavar="URL")
    snapshots: int = option(
        10,
        "how many snapshots to keep, the current one among them",
        metavar="N",
        convert=positive,
        group="diagnostics and configuration",
    )
    debug_endpoints: bool = option(False, "serve /debug on the management port to other machines, too")
    log_format: str = option("console", "how to log", short="-z", choices=("console", "json"))
    debug: bool = option(False, "log more", short="-x")
    config: str = option("", "a config file with these names as keys (YAML, JSON or TOML)", metavar="FILE")
    metrics_exporter: str = option(
        "",
        "otel to push metrics, too, and not only serve them on the management port",
        short="-t",
        metavar="NAME",
        group="telemetry",
    )
    otel_collector_uri: str = option("", "push traces there, and metrics if so told", short="-o", metavar="URI")
    otel_cert_path: str = option("", "certificate to show to the collector, in PEM", short="-D", metavar="PATH")
    otel_key_path: str = option("", "its private key", short="-K", metavar="PATH")
    otel_ca_path: str = option("", "the authority of the collector's certificate", short="-A", metavar="PATH")
    otel_reload_interval: float = option(
        3600.0, "how often to read these files again", short="-I", metavar="DURATION", convert=duration
    )
