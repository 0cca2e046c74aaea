"""The endpoints of a service: where its healthy instances listen.

Endpoints are sorted, so equal content is an equal value, in whatever order Consul has it. A service that is not
registered has none, which is a valid value; an error is never one, so the last endpoints stay in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from wigwag.errors import UsageError
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.instances import check_service, follow_instances
from wigwag.sources.consul.query import ConsulDeps, QueryTiming

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from wigwag.pipeline.spec import Unavailable, Unchanged
    from wigwag.sources.consul.instances import Instance

LONGEST_FILTER = 4096


@dataclass(frozen=True, slots=True)
class EndpointsWatch:
    """The endpoints of a service."""

    access: ConsulAccess
    service: str
    tag: str = ""
    """Only instances with this tag."""
    filter: str = ""
    """Only instances that this expression of Consul selects, such as `Service.Meta.version == "2"`."""
    passing: bool = True
    """Only instances whose checks all pass."""

    def __post_init__(self) -> None:
        check_service(self.service)
        for name, text in (("tag", self.tag), ("filter", self.filter)):
            if not text.isprintable() or len(text) > LONGEST_FILTER:
                reason = f"must be printable, and not longer than {LONGEST_FILTER} characters"
                raise UsageError(f"the {name} of {self.service} {reason}; correct it")

    def __str__(self) -> str:
        return f"{self.access} endpoints of {self.service}"

    def query(self) -> dict[str, str]:
        """Return the query parameters. Consul selects the instances."""
        selected = {"tag": self.tag, "filter": self.filter}
        passing = {"passing": "true"} if self.passing else {}
        return passing | {name: text for name, text in selected.items() if text}


class ServiceEndpoint(Struct, frozen=True, order=True):
    """An instance, and where it listens."""

    id: str
    node: str
    node_id: str
    service: str
    address: str
    """That of its registration; if that has none, that of its node."""
    port: int
    tags: tuple[str, ...] = ()
    datacenter: str = ""
    meta: tuple[tuple[str, str], ...] = ()
    weights: tuple[int, int] = (1, 1)
    """While it is passing, and while it is in the state `warning`."""
    status: str = "passing"


class ServiceEndpoints(Struct, frozen=True):
    """The endpoints of a service, sorted by id and node."""

    endpoints: tuple[ServiceEndpoint, ...] = ()


def watch_endpoints(
    spec: EndpointsWatch,
    deps: ConsulDeps = ConsulDeps(),  # noqa: B008 - a frozen value
) -> AsyncIterator[ServiceEndpoints | Unavailable | Unchanged]:
    """Yield the endpoints when they change, `UNCHANGED` when they have not, or `Unavailable`."""
    return follow_instances(spec, spec.query(), endpoints_of, QueryTiming.prompt, deps)


def endpoints_of(instances: Iterable[Instance]) -> ServiceEndpoints:
    """Return the endpoints of instances.

    >>> from wigwag.sources.consul.instances import Instance, Node, Registered
    >>> instance = Instance(Registered(id="web-1", port=80), node=Node(address="10.0.0.7"))
    >>> [(endpoint.id, endpoint.address, endpoint.port) for endpoint in endpoints_of([instance]).endpoints]
    [('web-1', '10.0.0.7', 80)]
    """
    return ServiceEndpoints(tuple(sorted(map(_endpoint, instances))))


def _endpoint(instance: Instance) -> ServiceEndpoint:
    service, node = instance.service, instance.node
    return ServiceEndpoint(
        id=service.id,
        node=node.name,
        node_id=node.id,
        service=service.service,
        address=service.address or node.address,
        port=service.port,
        tags=tuple(service.tags or ()),
        datacenter=node.datacenter,
        meta=tuple(sorted((service.meta or {}).items())),
        weights=(service.weights.passing, service.weights.warning),
        status=instance.state,
    )
