"""A service in Consul: the health of its instances, and their tags.

A service without instances is a valid value, all zeros; a failed query is not. The hard case is a token that may not
read the service. Consul then leaves the instances out, and says so in a header, except where it answers from its event
stream. So an empty response to a blocking query is not used: the query is repeated without an index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from wigwag.errors import UsageError
from wigwag.sources.consul.access import ConsulAccess, ConsulRefusedError
from wigwag.sources.consul.query import ConsulDeps, FollowedQuery, follow
from wigwag.sources.document import ReadResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from wigwag.pipeline.spec import Unavailable, Unchanged
    from wigwag.sources.consul.query import BlockingQuery
    from wigwag.wire.client.client import ClientResponse

MOST = 64 << 20
MOST_TAGS = 1000
_PASSING, _CRITICAL, _MAINTENANCE = "passing", "critical", "maintenance"


@dataclass(frozen=True, slots=True)
class ServiceWatch:
    """The health of a service."""

    access: ConsulAccess
    service: str

    def __post_init__(self) -> None:
        if not self.service or "/" in self.service or not self.service.isprintable():
            raise UsageError(f"{self.service!r} is not the name of a service; write it as in Consul")

    def __str__(self) -> str:
        return f"{self.access} service {self.service}"


class ServiceHealth(Struct, frozen=True):
    """How many instances there are in each state, and all of their tags."""

    passing: int = 0
    warning: int = 0
    critical: int = 0
    tags: tuple[str, ...] = ()


class HealthCheck(Struct, frozen=True):
    """One check of an instance, or of its node."""

    status: str = field(default="", name="Status")


class Registered(Struct, frozen=True):
    """The registration of an instance."""

    tags: list[str] | None = field(default=None, name="Tags")


class Instance(Struct, frozen=True):
    """One instance of a service."""

    service: Registered = field(default=Registered(), name="Service")
    checks: list[HealthCheck] | None = field(default=None, name="Checks")


_instances = msgspec.json.Decoder(list[Instance]).decode


def watch_service(
    spec: ServiceWatch,
    deps: ConsulDeps = ConsulDeps(),  # noqa: B008 - a frozen value
) -> AsyncIterator[ServiceHealth | Unavailable | Unchanged]:
    """Yield the health of the service when it changes, `UNCHANGED` when it has not, or `Unavailable`."""

    def decode(response: ClientResponse, query: BlockingQuery) -> ReadResult[ServiceHealth]:
        try:
            instances = _instances(response.body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise ConsulRefusedError(f"{spec}: the response is not one of Consul; check what listens there") from None
        return ReadResult(health(instances)) if instances or not query.index else ReadResult()

    return follow(spec.access, FollowedQuery(spec, f"/v1/health/service/{spec.service}", {}, MOST, decode), deps)


def health(instances: Iterable[Instance]) -> ServiceHealth:
    """Count the instances by state. That of an instance is the worst of its checks.

    >>> well, ill = HealthCheck("passing"), HealthCheck("critical")
    >>> health([Instance(Registered(["v2"]), [well]), Instance(Registered(["v1", "v2"]), [well, ill]), Instance()])
    ServiceHealth(passing=2, warning=0, critical=1, tags=('v1', 'v2'))
    """
    counts = {_PASSING: 0, "warning": 0, _CRITICAL: 0}
    tags: set[str] = set()
    for instance in instances:
        counts[_state({check.status for check in instance.checks or ()})] += 1
        tags.update(instance.service.tags or ())
    return ServiceHealth(**counts, tags=tuple(sorted(tags)[:MOST_TAGS]))


def _state(statuses: set[str]) -> str:
    if statuses & {_CRITICAL, _MAINTENANCE}:
        return _CRITICAL
    return _PASSING if statuses <= {_PASSING} else "warning"
