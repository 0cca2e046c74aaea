"""The options of `wigwag proxy start`: every one of `flagd-proxy start`, by the same name, and some of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wigwag.options import duration, duration_or_seconds, natural, option, port_option, positional, positive
from wigwag.proxy.rights import POLICIES
from wigwag.sources.kinds import BUILT_IN

USUAL = ("kubernetes", "file")
"""What a selector may name in any case."""
KINDS = tuple(kind.name for kind in sorted(BUILT_IN, key=lambda kind: not kind.prefix) if not kind.internal)
"""What a selector may be allowed to name, Kubernetes first; plug-ins come on top."""
_FURTHER = [kind for kind in KINDS if kind not in USUAL]
MANAGEMENT_PORT = 8016


def review_seconds(value: Any) -> float:
    """Read how often open streams are reviewed: as often as docs/guides/proxy.md promises, and not all the time.

    >>> review_seconds("2m")
    120.0
    """
    number = duration_or_seconds(value)
    if not 1.0 <= number <= 300.0:
        raise ValueError(f"{value!r} is not between 1 and 300 seconds")
    return number


@dataclass(frozen=True, kw_only=True)
class ProxyOptions:
    """The options of the proxy."""

    action: str = positional("start", "start the proxy", default="start", choices=("start",))
    port: int = port_option(8015, "port for flag documents: flagd.sync.v1 and sync.v1", "-p", "ports")
    management_port: int = port_option(MANAGEMENT_PORT, "port for probes, metrics and debugging", "-m")
    metrics_port: int = port_option(MANAGEMENT_PORT, "deprecated name of --management-port")
    bind: str = option("", "the address to listen on; all addresses by default", metavar="ADDRESS")
    server_cert_path: str = option(
        "",
        "certificate for flag documents, in PEM; reloaded when it changes",
        short="-c",
        metavar="PATH",
        group="TLS",
    )
    server_key_path: str = option("", "private key of the certificate", short="-k", metavar="PATH")
    management_tls: bool = option(False, "serve the management port with TLS, without client certificates")
    client_ca_path: str = option("", "require client certificates signed by this certificate authority", metavar="PATH")
    auth: str = option(
        "none",
        "who may subscribe: everybody (`none`), or service accounts that may read the FeatureFlag (`kubernetes`)",
        choices=("none", "kubernetes"),
        group="subscribers and targets",
    )
    auth_audience: str = option(
        "",
        "with --auth=kubernetes: the audience of tokens; that of the API server by default",
        metavar="NAME",
    )
    auth_policy: str = option(
        "rbac",
        "with --auth=kubernetes: what an account may read: what it may `get` (`rbac`); the FeatureFlags of its own "
        "namespace (`deny`), and those of others that grant it (`grant`); everything (`allow`)",
        choices=POLICIES,
    )
    auth_review: float = option(
        240.0,
        "with --auth=kubernetes: how often the token of an open stream is reviewed, at least; 1 to 300",
        metavar="SECONDS",
        convert=review_seconds,
    )
    allow: tuple[str, ...] = option(
        (),
        f"a further kind of target: {', '.join(_FURTHER[:-1])} or {_FURTHER[-1]}; may be repeated",
        metavar="KIND",
    )
    file_root: str = option("", "the directory that file: targets must be in; without it, any file", metavar="DIR")
    linger: float = option(
        5.0,
        "how long to watch a target after its last subscriber has left",
        metavar="SECONDS",
        convert=duration_or_seconds,
    )
    max_targets: int = option(5_000, "how many targets to watch at most", metavar="N", convert=positive)
    max_subscribers: int = option(20_000, "how many open streams to allow", metavar="N", convert=positive)
    max_connections_per_address: int = option(
        0, "connections from one address, except loopback; 0 for half of all", metavar="N", convert=natural
    )
    max_document: int = option(16 << 20, "largest document in bytes", metavar="BYTES", convert=positive)
    keep_alive_min_time: float = option(
        30.0,
        "the shortest interval that clients may use for keep-alive pings",
        metavar="DURATION",
        convert=duration,
        group="connections",
    )
    keep_alive_permit_without_stream: bool = option(True, "allow keep-alive pings while no request is active")
    debug_endpoints: bool = option(
        False, "serve /debug on the management port to other machines as well", group="diagnostics and configuration"
    )
    log_format: str = option("console", "the format of log lines", short="-z", choices=("console", "json"))
    debug: bool = option(False, "log at debug level", short="-x")
    config: str = option("", "a config file (YAML, JSON or TOML) with these names as keys", metavar="FILE")

    @property
    def management(self) -> int:
        """The management port, by whichever name it was given."""
        return self.metrics_port if self.management_port == MANAGEMENT_PORT else self.management_port
