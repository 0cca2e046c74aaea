"""The instances of a service, as Consul's health API has them. `service` counts them, `endpoints` are their addresses.

A service without instances is a valid value; a failed query is not. The hard case is a token that may not read the
service. Consul then leaves the instances out, and says so in a header, except where it answers from its event stream.
So an empty response to a blocking query is not used: the query is repeated without an index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from wigwag.errors import UsageError
from wigwag.sources.consul.access import ConsulAccess, ConsulRefusedError
from wigwag.sources.consul.query import ConsulDeps, FollowedQuery, QueryTiming, follow
from wigwag.sources.document import ReadResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from wigwag.pipeline.spec import Unavailable, Unchanged
    from wigwag.sources.consul.query import BlockingQuery
    from wigwag.wire.client.client import ClientResponse

V = TypeVar("V")
MOST = 64 << 20
PASSING, WARNING, CRITICAL, _MAINTENANCE = "passing", "warning", "critical", "maintenance"


class HealthCheck(Struct, frozen=True):
    """One check of an instance, or of its node."""

    status: str = field(default="", name="Status")


class Weights(Struct, frozen=True):
    """The share of requests that an instance should get, by its state."""

    passing: int = field(default=1, name="Passing")
    warning: int = field(default=1, name="Warning")


class Registered(Struct, frozen=True):
    """The registration of an instance."""

    tags: list[str] | None = field(default=None, name="Tags")
    id: str = field(default="", name="ID")
    service: str = field(default="", name="Service")
    address: str = field(default="", name="Address")
    port: int = field(default=0, name="Port")
    meta: dict[str, str] | None = field(default=None, name="Meta")
    weights: Weights = field(default=Weights(), name="Weights")


class Node(Struct, frozen=True):
    """The node that an instance is registered on."""

    id: str = field(default="", name="ID")
    name: str = field(default="", name="Node")
    address: str = field(default="", name="Address")
    datacenter: str = field(default="", name="Datacenter")


class Instance(Struct, frozen=True):
    """One instance of a service."""

    service: Registered = field(default=Registered(), name="Service")
    checks: list[HealthCheck] | None = field(default=None, name="Checks")
    node: Node = field(default=Node(), name="Node")

    @property
    def state(self) -> str:
        """The worst state of its checks."""
        statuses = {check.status for check in self.checks or ()}
        if statuses & {CRITICAL, _MAINTENANCE}:
            return CRITICAL
        return PASSING if statuses <= {PASSING} else WARNING


class ServiceSpec(Protocol):
    """A watch of a service."""

    @property
    def access(self) -> ConsulAccess:
        """The agent to ask."""
        ...

    @property
    def service(self) -> str:
        """The name of the service."""
        ...


_instances = msgspec.json.Decoder(list[Instance]).decode


def check_service(name: str) -> None:
    """Raise `UsageError` if it cannot be the name of a service."""
    if not name or "/" in name or name in (".", "..") or not name.isprintable():
        raise UsageError(f"{name!r} is not the name of a service; write it as in Consul")


def follow_instances(
    spec: ServiceSpec,
    query: Mapping[str, str],
    read: Callable[[Sequence[Instance]], V],
    timing: Callable[[], QueryTiming],
    deps: ConsulDeps,
) -> AsyncIterator[V | Unavailable | Unchanged]:
    """Follow the instances of a service, and yield what `read` makes of them."""

    def decode(response: ClientResponse, query: BlockingQuery) -> ReadResult[V]:
        try:
            instances = _instances(response.body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise ConsulRefusedError(f"{spec}: the response is not one of Consul; check what listens there") from None
        return ReadResult(read(instances)) if instances or not query.index else ReadResult()

    path = f"/v1/health/service/{spec.service}"
    return follow(spec.access, FollowedQuery(spec, path, query, MOST, decode, timing), deps)
