"""How many connections each port takes: the descriptors of the process, divided so that no port can starve another.

    limit of open files  =  reserve  +  management  +  the other ports, equal shares
                            sources,    probes must
                            files       get through

A process has one limit of open files for everything it does. Whatever clients do to one port, sources, probes and the
other ports keep their share. The soft limit is raised first, as far as the hard limit allows.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wigwag.observe import Gauge, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from logging import Logger

    from wigwag.observe import Instrument
    from wigwag.wire.limits import WireLimits
    from wigwag.wire.server.server import Server

MANAGEMENT_CONNECTIONS = 1000
UNLIMITED = 1 << 20
"""What an infinite limit of open files is taken for."""
_LEAST = 8


class Capacity(Struct, frozen=True, kw_only=True):
    """The connections that each port takes."""

    open_files: int
    reserve: int
    management: int
    port: int
    """Each of the other ports."""
    per_address: int
    """Of them, from one address that is not this machine."""
    wanted: int
    """What `port` would be with enough descriptors."""

    def limits(self, limits: WireLimits, *, management: bool = False) -> WireLimits:
        """Return the limits of a port with its share."""
        most = self.management if management else self.port
        return replace(limits, connections=most, connections_per_address=min(self.per_address, most))

    def log(self, log: Logger) -> None:
        """Log the limits at the start, and what to do if they are low."""
        fields = {
            "per_port": self.port,
            "per_address": self.per_address,
            "management": self.management,
            "open_files": self.open_files,
            "reserved": self.reserve,
        }
        log.info("connection limits", extra={"fields": fields})
        if self.shortage:
            log.warning("%s", self.shortage)

    @property
    def shortage(self) -> str:
        """What to do if there are far fewer connections than wanted; empty if there is nothing to do."""
        if 4 * self.port >= self.wanted:
            return ""
        return (
            f"each port takes {self.port} connections instead of {self.wanted}, because this process may open"
            f" {self.open_files} files; raise the hard limit of open files (ulimit -Hn, LimitNOFILE)"
        )


def needed(ports: int, connections: int, reserve: int) -> int:
    """Return how many open files it takes to give every port what it wants."""
    return ports * connections + MANAGEMENT_CONNECTIONS + reserve


def divide(open_files: int, ports: int, connections: int, reserve: int, per_address: int = 0) -> Capacity:
    """Divide descriptors among ports that want so many connections each; without `per_address`, half a port's share.

    >>> divide(1024, ports=3, connections=10_000, reserve=512)
    Capacity(open_files=1024, reserve=256, management=128, port=213, per_address=106, wanted=10000)
    """
    reserve = min(reserve, open_files // 4)
    management = max(min(MANAGEMENT_CONNECTIONS, open_files // 8), _LEAST)
    port = max(min(connections, (open_files - reserve - management) // ports), _LEAST)
    return Capacity(
        open_files=open_files,
        reserve=reserve,
        management=management,
        port=port,
        per_address=per_address or max(port // 2, 1),
        wanted=connections,
    )


def raise_open_files(wanted: int) -> None:
    """Raise the soft limit of open files to what is wanted, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def open_files() -> int:
    """Return how many files this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def connection_metrics(servers: Mapping[str, Server]) -> list[Instrument]:
    """Return the instruments of the ports in a mapping, which may still be filled."""
    return [
        Gauge(
            "wigwag_connections",
            "Open connections of a port.",
            lambda: [((name,), server.connections) for name, server in servers.items()],
            ("port",),
        ),
        Gauge(
            "wigwag_connections_limit",
            "How many connections a port takes.",
            lambda: [((name,), server.limits.connections) for name, server in servers.items()],
            ("port",),
        ),
        _PortRefused(servers),
    ]


class _PortRefused:
    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._servers = servers

    def read(self) -> Reading:
        labels, text = ("port", "reason"), "Connections refused, by port and reason."
        return Reading("counter", "wigwag_connections_refused", text, "", labels, list(self._samples()))

    def _samples(self) -> Iterator[tuple[tuple[str, str], float]]:
        for name, server in self._servers.items():
            for reason, count in server.refused.items():
                yield (name, reason), count
