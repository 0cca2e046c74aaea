"""A `Watt` beside the test: its clock and its watches do what the test says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.pipeline.fakes import FakeClock, FakeWatcher, settle
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.limit import Interval
from wigwag.pipeline.watch import WatchPolicy
from wigwag.watt.snapshots.snapshot import ENDPOINTS, TableName, WatchPart, WattSnapshot, entry
from wigwag.watt.watches.specs import ConsulSpec, KubernetesSpec, Spec
from wigwag.watt.watt import Watt

INTERVAL, LATE = 0.25, 2.0


class World:
    """`async with World(source=["services"]).running() as world:`; settings are options of watt."""

    def __init__(self, watcher: Any = None, **settings: Any) -> None:
        self.clock, self.fake = FakeClock(), FakeWatcher()
        policy = WatchPolicy(Backoff(0.1, 8.0), self.clock, lambda: 0.5, limit=lambda: Interval(INTERVAL), late=LATE)
        self.watt = Watt(policy=policy, watcher=watcher or self.fake.watch, environment={}, **settings)
        self.published: list[tuple[float, WattSnapshot]] = []
        self.watt.history.snapshots.subscribe(self._record)

    def _record(self) -> None:
        snapshots = self.watt.history.snapshots
        if snapshots.error is None:  # it is also called at the end
            self.published.append((self.clock.now(), snapshots.value))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        async with self.watt:
            await settle()
            yield self
        assert self.fake.running() == []
        assert self.clock.pending() == []

    async def objects(self, kind: str, /, *names: str, **fields: Any) -> None:
        """Have the watch of a kind answer with objects of these names; `fields` are in each of them."""
        await self.fake.push(KubernetesSpec(kind), part(kind, *names, **fields))

    async def endpoints(self, service: str, *addresses: str) -> None:
        """Have the watch of a service answer with endpoints."""
        body = {"Id": "", "Service": service, "Endpoints": [{"Address": address} for address in addresses]}
        content = WatchPart.of(ENDPOINTS, {("consul", service): entry(service, json.dumps(body).encode())})
        await self.fake.push(self.consul(service), content)

    def consul(self, service: str) -> Spec:
        """Return the watch of a service that is wanted."""
        return next(spec for spec in self.wanted() if isinstance(spec, ConsulSpec) and spec.watch.service == service)

    def wanted(self) -> list[Spec]:
        return [status.spec for status in self.watt.pipeline.statuses()]

    def ids(self) -> list[int]:
        """Return the numbers of the snapshots that were published."""
        return [snapshot.id for _, snapshot in self.published]

    @property
    def latest(self) -> WattSnapshot:
        return self.published[-1][1]

    def names(self, kind: str) -> list[str]:
        """Return the names of the objects of a kind in the newest snapshot."""
        return [each["metadata"]["name"] for each in self.latest.objects(kind)]


def part(kind: str, /, *names: str, **fields: Any) -> WatchPart:
    table, entries = TableName("Kubernetes", kind), {}
    for name in names:
        body = {"kind": kind, "metadata": {"name": name, "namespace": "default"}} | fields
        entries["default", name] = entry((kind, name), json.dumps(body).encode())
    return WatchPart.of(table, entries)


def kinds(*names: str) -> dict[str, Any]:
    """Return a watch set of Kubernetes kinds, as a hook does."""
    return {"kubernetes-watches": [{"kind": name} for name in names]}


def resolver(*services: str, address: str = "consul:8500") -> dict[str, Any]:
    """Return what makes a ConfigMap one that names services of Consul."""
    return {
        "kind": "ConfigMap",
        "metadata": {"name": "dc", "namespace": "default", "annotations": {"getambassador.io/consul-resolver": ""}},
        "data": {"consulAddress": address, "datacenter": "dc1", "services": " ".join(services)},
    }
