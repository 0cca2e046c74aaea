"""A service in Consul: the health of its instances, and their tags. All zeros if it has no instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.instances import CRITICAL, PASSING, WARNING, check_service, follow_instances
from wigwag.sources.consul.query import ConsulDeps, QueryTiming

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from wigwag.pipeline.spec import Unavailable, Unchanged
    from wigwag.sources.consul.instances import Instance

MOST_TAGS = 1000


@dataclass(frozen=True, slots=True)
class ServiceWatch:
    """The health of a service."""

    access: ConsulAccess
    service: str

    def __post_init__(self) -> None:
        check_service(self.service)

    def __str__(self) -> str:
        return f"{self.access} service {self.service}"


class ServiceHealth(Struct, frozen=True):
    """How many instances there are in each state, and all of their tags."""

    passing: int = 0
    warning: int = 0
    critical: int = 0
    tags: tuple[str, ...] = ()


def watch_service(
    spec: ServiceWatch,
    deps: ConsulDeps = ConsulDeps(),  # noqa: B008 - a frozen value
) -> AsyncIterator[ServiceHealth | Unavailable | Unchanged]:
    """Yield the health of the service when it changes, `UNCHANGED` when it has not, or `Unavailable`."""
    return follow_instances(spec, {}, health, QueryTiming, deps)


def health(instances: Iterable[Instance]) -> ServiceHealth:
    """Count the instances by state.

    >>> from wigwag.sources.consul.instances import HealthCheck, Instance, Registered
    >>> well, ill = HealthCheck("passing"), HealthCheck("critical")
    >>> health([Instance(Registered(["v2"]), [well]), Instance(Registered(["v1", "v2"]), [well, ill]), Instance()])
    ServiceHealth(passing=2, warning=0, critical=1, tags=('v1', 'v2'))
    """
    counts = {PASSING: 0, WARNING: 0, CRITICAL: 0}
    tags: set[str] = set()
    for instance in instances:
        counts[instance.state] += 1
        tags.update(instance.service.tags or ())
    return ServiceHealth(**counts, tags=tuple(sorted(tags)[:MOST_TAGS]))
