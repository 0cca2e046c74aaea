"""How many connections a port takes, in all and from one client.

A connection counts from the moment it is accepted, so a TLS handshake that never ends counts, too. Clients on this
machine are exempt from the limit for one address: behind a sidecar of a service mesh, every client is one of them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from wigwag.wire.peer import is_loopback, network_of

if TYPE_CHECKING:
    from wigwag.wire.limits import WireLimits

PORT, ADDRESS, ACCEPT = "port_limit", "address_limit", "accept_error"
"""Why connections are refused."""


class Admission:
    """The connections of one port. `refused` counts those that were turned away, by reason."""

    def __init__(self, limits: WireLimits) -> None:
        self.most, self._per_address = limits.connections, limits.connections_per_address
        self.open = 0
        self.refused: Counter[str] = Counter({PORT: 0, ADDRESS: 0, ACCEPT: 0})
        self._by_network: Counter[str] = Counter()

    def admit(self, host: str) -> Admitted | str:
        """Count a connection from a host, or return why it is refused."""
        network = "" if not self._per_address or is_loopback(host) else network_of(host)
        if self.open >= self.most:
            return self.refuse(PORT)
        if network and self._by_network[network] >= self._per_address:
            return self.refuse(ADDRESS)
        self.open += 1
        if network:
            self._by_network[network] += 1
        return Admitted(self, network)

    def refuse(self, reason: str) -> str:
        """Count a connection that was turned away."""
        self.refused[reason] += 1
        return reason

    def release(self, network: str) -> None:
        """Forget a connection that was admitted."""
        self.open -= 1
        if network:
            self._by_network[network] -= 1
            if not self._by_network[network]:
                del self._by_network[network]


class Admitted:
    """A connection that counts until it is released, by whichever end comes first."""

    __slots__ = ("_admission", "_network")

    def __init__(self, admission: Admission, network: str) -> None:
        self._admission: Admission | None = admission
        self._network = network

    def release(self) -> None:
        """Count it no longer."""
        if self._admission is not None:
            self._admission.release(self._network)
            self._admission = None
