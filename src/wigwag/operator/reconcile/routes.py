"""How a `Flagd` is reached from outside: an Ingress, and an HTTPRoute and a GRPCRoute of the Gateway API.

Paths, their order and the ports are those of the original. The sync path among them, `/flagd.sync.v1.Service`, is not
what clients ask for; the GRPCRoute has services by their real names, and an Ingress can be given a `syncPath`.

A gateway need not serve a host by an HTTPRoute and a GRPCRoute at once: `shares_hosts` tells when that is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wigwag.operator.resources.flagd import GatewayRoutes, IngressSpec, IngressTLS

Json: TypeAlias = Any
FLAGD_PATH, OFREP_PATH, SYNC_PATH = "/flagd.evaluation.v1.Service", "/ofrep", "/flagd.sync.v1.Service"
EVALUATION_SERVICES = ("flagd.evaluation.v1.Service", "flagd.evaluation.v2.Service", "schema.v1.Service")
SYNC_SERVICES = ("flagd.sync.v1.FlagSyncService", "sync.v1.FlagSyncService")


class Backend(NamedTuple):
    """The Service that routes lead to, and its ports."""

    name: str
    namespace: str
    flagd: int
    ofrep: int
    sync: int


def ingress_spec(given: IngressSpec, backend: Backend) -> dict[str, Json]:
    """Return the spec of the Ingress. Without hosts there is one rule, for every host."""
    places = [
        (given.flagd_path or FLAGD_PATH, backend.flagd),
        (given.ofrep_path or OFREP_PATH, backend.ofrep),
        (given.sync_path or SYNC_PATH, backend.sync),
    ]
    paths = [
        {
            "path": path,
            "pathType": given.path_type or "Prefix",
            "backend": {"service": {"name": backend.name, "port": {"number": port}}},
        }
        for path, port in places
    ]
    rules = [{**({"host": host} if host else {}), "http": {"paths": paths}} for host in given.hosts or [""]]
    tls = {"tls": [_certificate(each) for each in given.tls]} if given.tls else {}
    named = {} if given.ingress_class_name is None else {"ingressClassName": given.ingress_class_name}
    return {**named, **tls, "rules": rules}


def _certificate(given: IngressTLS) -> dict[str, Json]:
    return {
        **({"hosts": given.hosts} if given.hosts else {}),
        **({"secretName": given.secret_name} if given.secret_name else {}),
    }


def http_route_spec(given: GatewayRoutes, backend: Backend) -> dict[str, Json]:
    """Return the spec of the HTTPRoute."""
    places = {OFREP_PATH: backend.ofrep, FLAGD_PATH: backend.flagd, SYNC_PATH: backend.sync}
    rules = [
        {"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": [_reference(backend, port)]}
        for path, port in places.items()
    ]
    return {**_attachment(given, given.hosts), "rules": rules}


def grpc_route_spec(given: GatewayRoutes, backend: Backend) -> dict[str, Json]:
    """Return the spec of the GRPCRoute."""
    places = {EVALUATION_SERVICES: backend.flagd, SYNC_SERVICES: backend.sync}
    rules = [
        {
            "matches": [{"method": {"type": "Exact", "service": service}} for service in services],
            "backendRefs": [_reference(backend, port)],
        }
        for services, port in places.items()
    ]
    return {**_attachment(given, _grpc_hosts(given)), "rules": rules}


def shares_hosts(given: GatewayRoutes) -> bool:
    """Tell whether both routes are for the same host; no hosts are all hosts."""
    http, grpc = set(given.hosts), set(_grpc_hosts(given))
    return not (http and grpc) or bool(http & grpc)


def _grpc_hosts(given: GatewayRoutes) -> Sequence[str]:
    return (given.grpc.hosts if given.grpc else []) or given.hosts


def _attachment(given: GatewayRoutes, hosts: Sequence[str]) -> dict[str, Json]:
    """Return which gateways serve a route, and for which hosts."""
    parents = [
        {name: value for name, value in each.items() if value is not None}
        for each in msgspec.to_builtins(given.parent_refs)
    ]
    return {"parentRefs": parents, **({"hostnames": [*hosts]} if hosts else {})}


def _reference(backend: Backend, port: int) -> dict[str, Json]:
    service = {"group": "", "kind": "Service", "name": backend.name, "namespace": backend.namespace}
    return {**service, "port": port, "weight": 1}
