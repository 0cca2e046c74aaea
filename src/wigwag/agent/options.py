"""The options of `wigwag start`: every one of `flagd start`, by the same name, and some of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wigwag.options import as_it_is, duration, file_mode, natural, option, port_option, positive

if TYPE_CHECKING:
    from wigwag.flags.model import Fractional


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """The options of the agent."""

    uri: tuple[str, ...] = option(
        (), "a source of flags, such as file:flags.json; may be repeated", short="-f", metavar="URI", group="flags"
    )
    sources: Any = option(
        "", "sources as a JSON array of objects with `uri` and `provider`", short="-s", metavar="JSON", convert=as_it_is
    )
    port: int = port_option(8013, "port for evaluation: gRPC, gRPC-Web and Connect", "-p", "ports")
    management_port: int = port_option(8014, "port for probes, metrics and debugging", "-m")
    sync_port: int = port_option(8015, "port for sync: flag documents for in-process providers", "-g")
    ofrep_port: int = port_option(8016, "port for OFREP: evaluation over HTTP and JSON", "-r")
    socket_path: str = option("", "serve evaluation on this Unix socket instead of a port", short="-d", metavar="PATH")
    sync_socket_path: str = option("", "serve sync on this Unix socket instead of a port", short="-e", metavar="PATH")
    socket_mode: int = option(0o660, "permissions of Unix sockets, in octal", metavar="MODE", convert=file_mode)
    bind: str = option("", "the address to listen on; all addresses by default", metavar="ADDRESS")
    server_cert_path: str = option(
        "",
        "certificate for evaluation and sync, in PEM; reloaded when it changes",
        short="-c",
        metavar="PATH",
        group="TLS",
    )
    server_key_path: str = option("", "private key of the certificate", short="-k", metavar="PATH")
    ofrep_tls: bool = option(False, "serve OFREP with TLS, with client certificates if --client-ca-path is set")
    management_tls: bool = option(False, "serve the management port with TLS, without client certificates")
    client_ca_path: str = option("", "require client certificates signed by this certificate authority", metavar="PATH")
    context_value: dict[str, str] = option(
        {},
        "an attribute that overrides the one in every evaluation context",
        short="-X",
        metavar="KEY=VALUE",
        group="evaluation context",
    )
    context_from_header: dict[str, str] = option(
        {}, "an attribute whose value is that of a request header", short="-H", metavar="HEADER=KEY"
    )
    context_from_pod: bool = option(
        False, "add the attribute `pod` with the name, namespace, node, labels, … of this pod"
    )
    pod_info: str = option(
        "/etc/podinfo", "directory where the downward API is mounted, for --context-from-pod", metavar="DIR"
    )
    context_from_consul: tuple[str, ...] = option(
        (), "add the attribute `consul.SERVICE` with the health of a Consul service; may be repeated", metavar="SERVICE"
    )
    cors_origin: tuple[str, ...] = option(
        (),
        "an origin that browsers may send requests from; * for all, none by default",
        short="-C",
        metavar="ORIGIN",
        group="clients and their limits",
    )
    require_selector: bool = option(False, "reject requests without a selector")
    auth_tokens: str = option(
        "", "a file with access rules: which token or client certificate may use which selectors", metavar="FILE"
    )
    rate_limit: int = option(0, "requests per second per client; 0 for no limit", metavar="N", convert=natural)
    rate_burst: int = option(
        0, "requests at once per client; 0 for as many as --rate-limit", metavar="N", convert=natural
    )
    max_connections: int = option(
        10_000,
        "connections per port; fewer if the limit of open files is too low",
        metavar="N",
        convert=positive,
    )
    max_connections_per_address: int = option(
        0,
        "connections per port from one address, except loopback; 0 for half of --max-connections",
        metavar="N",
        convert=natural,
    )
    max_streams_per_client: int = option(0, "open streams per client; 0 for no limit", metavar="N", convert=natural)
    strict: bool = option(
        False, "reject a document with a bad flag instead of quarantining the flag", group="documents and freshness"
    )
    fractional: Fractional = option("v2", "the hashing version of `fractional`", choices=("v2", "v3"))
    stale_after: float = option(
        0.0,
        "report flags as STALE if their source was not confirmed for this long; 0 for never",
        metavar="DURATION",
        convert=duration,
    )
    readiness: str = option(
        "served",
        "when /readyz reports ready: `served` once flags of every required source are served, the last good ones"
        " included; `fresh` only while no source is stale",
        choices=("served", "fresh"),
    )
    response_metadata: bool = option(False, "add the id and age of the snapshot to the metadata of every evaluation")
    state_dir: str = option("", "save the last good flags in this directory, and start with them", metavar="DIR")
    stream_deadline: float = option(
        0.0,
        "close event and sync streams after this long; 0 for never",
        metavar="DURATION",
        convert=duration,
        group="requests and streams",
    )
    disable_sync_metadata: bool = option(False, "do not serve GetMetadata on the sync port")
    max_request_body: int = option(
        1_000_000, "largest request body in bytes; 0 for 2 GiB", short="-B", metavar="BYTES", convert=natural
    )
    max_request_header: int = option(
        1_000_000, "largest request headers in bytes; 0 for 1 MiB", short="-R", metavar="BYTES"
    )
    keep_alive_min_time: float = option(
        30.0, "the shortest interval that clients may use for keep-alive pings", metavar="DURATION", convert=duration
    )
    keep_alive_permit_without_stream: bool = option(True, "allow keep-alive pings while no request is active")
    ofrep_sse_enabled: bool = option(True, "notify OFREP clients of changes by server-sent events")
    ofrep_sse_inactivity_delay: int = option(
        120, "seconds after which an inactive client fetches the flags again", metavar="SECONDS", convert=positive
    )
    ofrep_sse_public_url: str = option(
        "", "base URL of the event stream for clients, if it differs from this server", metavar="URL"
    )
    snapshots: int = option(
        10,
        "how many snapshots to keep, including the current one",
        metavar="N",
        convert=positive,
        group="diagnostics and configuration",
    )
    debug_endpoints: bool = option(False, "serve /debug on the management port to other machines as well")
    log_format: str = option("console", "the format of log lines", short="-z", choices=("console", "json"))
    debug: bool = option(False, "log at debug level", short="-x")
    config: str = option("", "a config file (YAML, JSON or TOML) with these names as keys", metavar="FILE")
    metrics_exporter: str = option(
        "",
        "`otel` to push metrics as well as to serve them on the management port",
        short="-t",
        metavar="NAME",
        group="telemetry",
    )
    otel_collector_uri: str = option(
        "", "push traces to this collector, and metrics with --metrics-exporter otel", short="-o", metavar="URI"
    )
    otel_cert_path: str = option("", "client certificate for the collector, in PEM", short="-D", metavar="PATH")
    otel_key_path: str = option("", "private key of the client certificate", short="-K", metavar="PATH")
    otel_ca_path: str = option("", "certificate authority of the collector", short="-A", metavar="PATH")
    otel_reload_interval: float = option(
        3600.0, "how often to reload these files", short="-I", metavar="DURATION", convert=duration
    )
