"""Endpoints and values from a real Consul: what changes arrives, what fails changes nothing, and 300 services work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.real.consul import Consul, ConsulServer
from tests.real.test_consul import TIMEOUT, Stream, host, trouble, watching
from wigwag.pipeline.spec import Unavailable
from wigwag.pipeline.watch import closing
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.endpoints import EndpointsWatch, ServiceEndpoint, ServiceEndpoints, watch_endpoints
from wigwag.sources.consul.hub import SLOTS, ConsulHub
from wigwag.sources.consul.keys import ConsulWatch, watch_values
from wigwag.sources.consul.query import ConsulDeps

NewConsul = Callable[..., ConsulServer]
SERVICES = 300
EMPTY = ServiceEndpoints()


def register(consul: Consul, service: str, id: str, **settings: Any) -> None:
    consul.rest.call("PUT", "/v1/agent/service/register", {"ID": id, "Name": service, "Port": 80, **settings})


def deregister(consul: Consul, id: str) -> None:
    consul.rest.call("PUT", f"/v1/agent/service/deregister/{id}")


def ids(*wanted: str) -> Callable[[Any], bool]:
    """Tell whether something is the endpoints of these instances."""
    return lambda item: isinstance(item, ServiceEndpoints) and [one.id for one in item.endpoints] == list(wanted)


async def endpoints(stream: Stream, *wanted: str) -> tuple[ServiceEndpoint, ...]:
    """Read until these instances are there."""
    found: ServiceEndpoints = (await stream.until(ids(*wanted)))[-1]
    return found.endpoints


def test_endpoints_come_change_fail_and_go(consul: Consul, prefix: str) -> None:
    one, two, check = f"{prefix}-1", f"{prefix}-2", f"{prefix}-check"

    async def main() -> None:
        async with watching(watch_endpoints, EndpointsWatch(ConsulAccess(host(consul)), prefix)) as stream:
            assert await stream.next() == EMPTY
            ttl = {"CheckID": check, "TTL": "10m", "Status": "passing"}
            settings = {"Tags": ["z", "a"], "Meta": {"version": "2"}, "Weights": {"Passing": 5, "Warning": 1}}
            register(consul, prefix, one, Address="10.9.9.9", Check=ttl, **settings)
            [found] = await endpoints(stream, one)
            assert (found.address, found.port, found.service, found.status) == ("10.9.9.9", 80, prefix, "passing")
            assert (found.tags, found.meta, found.weights) == (("z", "a"), (("version", "2"),), (5, 1))
            assert found.datacenter == "dc1"
            assert len(found.node_id) == 36
            register(consul, prefix, two)
            assert (await endpoints(stream, one, two))[1].address == "127.0.0.1"
            consul.rest.call("PUT", f"/v1/agent/check/fail/{check}")
            await endpoints(stream, two)
            consul.rest.call("PUT", f"/v1/agent/check/pass/{check}")
            await endpoints(stream, one, two)
            deregister(consul, one)
            await endpoints(stream, two)
            deregister(consul, two)
            await endpoints(stream)

    asyncio.run(main())


def test_consul_selects_instances_by_tag_filter_and_health(consul: Consul, prefix: str) -> None:
    names = [f"{prefix}-{number}" for number in range(3)]
    for number, name in enumerate(names):
        status = "critical" if number == 2 else "passing"
        settings = {"Tags": [f"v{number % 2}"], "Meta": {"n": str(number)}, "Check": {"TTL": "10m", "Status": status}}
        register(consul, prefix, name, **settings)

    async def first(**chosen: Any) -> list[tuple[str, str]]:
        async with watching(watch_endpoints, EndpointsWatch(ConsulAccess(host(consul)), prefix, **chosen)) as stream:
            return [(one.id, one.status) for one in (await stream.next()).endpoints]

    async def main() -> None:
        assert await first() == [(names[0], "passing"), (names[1], "passing")]
        assert await first(tag="v0") == [(names[0], "passing")]
        assert await first(tag="v0", passing=False) == [(names[0], "passing"), (names[2], "critical")]
        assert await first(filter='Service.Meta.n == "1"') == [(names[1], "passing")]
        wrong = EndpointsWatch(ConsulAccess(host(consul)), prefix, filter="no such thing ==")
        async with watching(watch_endpoints, wrong) as stream:
            assert trouble("the filter is not an expression")(await stream.next())

    try:
        asyncio.run(main())
    finally:
        for name in names:
            deregister(consul, name)


def test_a_token_without_rights_sees_an_error_and_no_emptiness(private_consul: NewConsul) -> None:
    consul = private_consul(acl=True).consul
    register(consul, "web", "web-1")
    consul.put("app/a", "1")
    _, secret = consul.add_token('node_prefix "" { policy = "read" }')

    async def main() -> None:
        access = ConsulAccess(host(consul), token=secret, wait=0.2)
        async with watching(watch_endpoints, EndpointsWatch(access, "web")) as stream:
            assert trouble("may not read all of it")(await stream.next())
        for key in ("app/", "app/a"):
            async with watching(watch_values, ConsulWatch(access, key)) as stream:
                assert trouble("may not read")(await stream.next())

    asyncio.run(main())


def test_values_of_keys_are_followed_and_none_is_an_answer(consul: Consul, prefix: str) -> None:
    async def main() -> None:
        async with watching(watch_values, ConsulWatch(ConsulAccess(host(consul)), f"{prefix}/")) as stream:
            assert await stream.next() == {}
            consul.put(f"{prefix}/a", "1")
            await stream.until(lambda item: item == {f"{prefix}/a": b"1"})
            consul.put(f"{prefix}/b", b"\xff")
            await stream.until(lambda item: item == {f"{prefix}/a": b"1", f"{prefix}/b": b"\xff"})
            consul.delete(f"{prefix}/", below=True)
            await stream.until(lambda item: item == {})

    asyncio.run(main())


def test_while_consul_is_away_endpoints_stay_and_then_the_new_ones_come(private_consul: NewConsul) -> None:
    server = private_consul()
    register(server.consul, "web", "web-1")

    async def main() -> None:
        async with watching(watch_endpoints, EndpointsWatch(ConsulAccess(host(server.consul)), "web")) as stream:
            await endpoints(stream, "web-1")
            server.server.kill()
            passed = await stream.until(trouble("no connection"))
            assert all(isinstance(item, Unavailable) for item in passed)
            server.server.start()
            register(server.consul, "web", "web-2")
            await endpoints(stream, "web-2")

    asyncio.run(main())


class Everything:
    """The last endpoints of many services, and an event for each change of one."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        self.failing: dict[str, str] = {}
        self._changed = asyncio.Condition()

    async def watch(self, spec: EndpointsWatch, deps: ConsulDeps) -> None:
        async with closing(watch_endpoints(spec, deps)) as items:
            async for item in items:
                if isinstance(item, Unavailable):
                    self.failing[spec.service] = item.reason
                else:
                    self.failing.pop(spec.service, None)
                if isinstance(item, ServiceEndpoints):
                    self.ports[spec.service] = item.endpoints[0].port if item.endpoints else 0
                async with self._changed:
                    self._changed.notify_all()

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(wanted)


@pytest.mark.timeout(240)
def test_more_services_than_connections_are_all_followed_through_an_outage(private_consul: NewConsul) -> None:
    server = private_consul()
    names = [f"s{number}" for number in range(SERVICES)]

    def fill(port: int) -> None:
        for name in names:
            register(server.consul, name, name, Port=port)

    async def main() -> None:
        seen, hub = Everything(), ConsulHub()
        deps = ConsulDeps(environment={}, hub=hub)
        async with asyncio.timeout(2 * TIMEOUT), asyncio.TaskGroup() as group:
            access = ConsulAccess(host(server.consul))
            tasks = [group.create_task(seen.watch(EndpointsWatch(access, name), deps)) for name in names]
            await seen.until(lambda: seen.ports == dict.fromkeys(names, 1))
            for name in Random(1).sample(names, 5):
                register(server.consul, name, name, Port=7)
                await seen.until(lambda name=name: seen.ports[name] == 7)  # type: ignore[misc]
            assert seen.failing == {}
            [agent] = hub.agents.values()
            assert agent.slots == SLOTS
            await asyncio.to_thread(server.server.kill)
            await seen.until(lambda: len(seen.failing) == SERVICES)
            await asyncio.to_thread(server.server.start)
            await asyncio.to_thread(fill, 2)
            await seen.until(lambda: seen.ports == dict.fromkeys(names, 2))
            for task in tasks:
                task.cancel()
        assert hub.agents == {}

    fill(1)
    asyncio.run(main())
