"""Snapshots for tests: Kubernetes objects and Consul services by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from wigwag.pipeline.aggregate import Values
from wigwag.watt.snapshots.snapshot import Assembler, TableName, WatchPart, entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.watt.snapshots.snapshot import WattSnapshot

SERVICES = TableName("Kubernetes", "services")
CONFIG_MAPS = TableName("Kubernetes", "configmaps")
ENDPOINTS = TableName("Consul", "Endpoints")


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def kubernetes(table: TableName, kind: str, *keys: tuple[str, str], spelled: str = "", **fields: Any) -> WatchPart:
    """Return a table of objects; `fields` are in each of them."""
    objects = {
        (namespace, name): {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}}
        for namespace, name in keys
    }
    entries = {key: entry((table, key), compact(each | fields)) for key, each in objects.items()}
    return WatchPart.of(table, entries, spelled)


def services(*keys: tuple[str, str], spelled: str = "", **fields: Any) -> WatchPart:
    return kubernetes(SERVICES, "Service", *keys, spelled=spelled, **fields)


def endpoints(name: str, address: str, tags: list[str] | None = None) -> dict[str, Any]:
    known = {"SystemID": "consul::n1", "ID": f"{name}-1", "Service": name, "Address": address, "Port": 80}
    return known | {"Tags": tags or [], "Node": "n1", "Datacenter": "dc1", "Meta": {}, "Status": "passing"}


def consul(addresses: Mapping[tuple[str, str], str]) -> WatchPart:
    """Return the endpoints of services, by datacenter and name."""
    entries = {}
    for (datacenter, name), address in addresses.items():
        service = {"Id": datacenter, "Service": name, "Address": "consul:8500", "Datacenter": datacenter}
        body = compact(service | {"Endpoints": [endpoints(name, address, ["v1"])] if address else []})
        entries[f"consul:8500|{datacenter}|{name}", name] = entry((datacenter, name), body)
    return WatchPart.of(ENDPOINTS, entries)


def snapshot(*parts: WatchPart, waiting: tuple[str, ...] = ()) -> WattSnapshot:
    values: Values[str, WatchPart] = Values({str(at): part for at, part in enumerate(parts)}, waiting)
    return Assembler()(values)
