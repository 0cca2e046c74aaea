"""The options of `wigwag watt`: every one of the original, by the same name, and some of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wigwag.errors import UsageError
from wigwag.options import (
    as_it_is,
    collect,
    declared,
    duration_or_seconds,
    natural,
    option,
    port_option,
    positive,
)
from wigwag.suggest import suggest

if TYPE_CHECKING:
    from wigwag.watt.snapshots.formats import Format

PORT = 7000
SLOTS = 96
"""Less than half of what a Consul agent allows a client: it may count a connection that we have given up."""
FORMATS = ("watt1", "v2")
_OF_THE_COMMAND = (
    "port", "listen_address", "listen_network", "token_file", "log_format", "debug", "version", "config"
)  # fmt: skip


def hooks(value: Any) -> tuple[Any, ...]:
    """Read hooks: repeated commands, or a list of commands and records in a config file. Commands are not split.

    >>> hooks(["sync.sh --all, please"]), hooks("sync.sh"), hooks({"command": "sync.sh"}), hooks(None)
    (('sync.sh --all, please',), ('sync.sh',), ({'command': 'sync.sh'},), ())
    """
    if value is None:  # a key of a config file without a value
        return ()
    return tuple(value) if isinstance(value, list | tuple) else (value,)


@dataclass(frozen=True, kw_only=True)
class WattOptions:
    """The options of watt."""

    source: tuple[str, ...] = option(
        (),
        "a kind of Kubernetes objects to watch, as for `kubectl get`; may be repeated, or separated by commas",
        short="-s",
        metavar="KIND",
        group="what to watch",
    )
    namespace: str = option("", "the namespace of --source; all by default", short="-n", metavar="NAME")
    fields: str = option("", "a field selector for --source", metavar="SELECTOR")
    labels: str = option("", "a label selector for --source", metavar="SELECTOR")
    watches: Any = option(
        (),
        "further watches, as a JSON list: Kubernetes, Consul, directories, URIs; see docs/guides/watt.md",
        metavar="JSON",
        convert=as_it_is,
    )
    consul_resolvers: bool = option(True, "watch the Consul services that ConfigMaps and ConsulResolvers name")
    secrets: bool = option(False, "put the values of Secrets into snapshots; otherwise only their names")
    consul_connections: int = option(
        SLOTS, "the most connections to one Consul agent; its own limit is 200", metavar="N", convert=positive
    )
    watch: tuple[Any, ...] = option(
        (),
        "a watch hook: gets the snapshot, returns further watches. A command, a URL or python:MODULE:FUNCTION",
        short="-w",
        metavar="HOOK",
        convert=hooks,
        group="hooks and outputs",
    )
    notify: tuple[Any, ...] = option(
        (),
        "a notify hook: is called with the URL of each new snapshot. A command, a URL or python:MODULE:FUNCTION",
        metavar="HOOK",
        convert=hooks,
    )
    outputs: Any = option(
        (),
        "directories to write snapshots to, as a JSON list; see docs/guides/watt.md",
        metavar="JSON",
        convert=as_it_is,
    )
    interval: float = option(
        0.25, "the shortest time between two snapshots", short="-i", metavar="DURATION", convert=duration_or_seconds
    )
    grace: float = option(
        0.0,
        "how long the first snapshot waits for a --source; 0 for as long as it takes",
        metavar="DURATION",
        convert=duration_or_seconds,
    )
    late: float = option(
        2.0,
        "how long later snapshots wait for a new watch before they are published without it, marked as incomplete",
        metavar="DURATION",
        convert=duration_or_seconds,
    )
    port: int = port_option(PORT, "port for snapshots, probes and metrics", "-p", "serving")
    listen_address: str = option(
        "", "the address and port to listen on; 127.0.0.1 and --port by default", metavar="HOST:PORT"
    )
    listen_network: str = option("tcp", "the kind of address", choices=("tcp", "tcp4", "tcp6"))
    token_file: str = option(
        "", "a file with the bearer token that clients must send; required unless only loopback listens", metavar="PATH"
    )
    format: Format = option("watt1", "the format of snapshots that clients and hooks get", choices=FORMATS)
    history: int = option(10, "how many snapshots to keep", metavar="N", convert=positive)
    history_bytes: int = option(64 << 20, "how many bytes older snapshots may take", metavar="BYTES", convert=natural)
    log_format: str = option(
        "console", "the format of log lines", choices=("console", "json"), group="diagnostics and configuration"
    )
    debug: bool = option(False, "log at debug level")
    version: bool = option(False, "print the version and exit")
    config: str = option("", "a config file (YAML, JSON or TOML) with these names as keys", metavar="FILE")


def options_of(settings: Mapping[str, Any]) -> WattOptions:
    """Make the options from keyword arguments.

    >>> options_of({"source": ["service"], "interval": "1s"}).interval
    1.0
    """
    from argparse import Namespace

    known = [each.name for each in declared(WattOptions) if each.name not in _OF_THE_COMMAND]
    for name in settings:
        if name in _OF_THE_COMMAND:
            raise UsageError(f"{name!r} is for the command only: as an object, watt has no port, log and config file")
        if name not in known:
            raise UsageError(f"{name!r} is not an option of watt; {suggest(name, known) or 'see `wigwag watt --help`'}")
    return collect(WattOptions, Namespace(**settings))
