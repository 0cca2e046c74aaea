"""Watches that share the connections of an agent: who waits how long, who sees what when, and that nothing is left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from tests.pipeline.fakes import FakeClock, run, settle
from tests.sources.consul.model import DOWN, LEADERLESS, OK, ModelConsul
from wigwag.errors import UsageError
from wigwag.pipeline.spec import Unavailable
from wigwag.pipeline.watch import closing
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.endpoints import EndpointsWatch, ServiceEndpoints, watch_endpoints
from wigwag.sources.consul.hub import MOST_RATE, ConsulHub, longest_wait
from wigwag.sources.consul.query import ConsulDeps

ACCESS = ConsulAccess(wait=60.0)


def instance(port: int) -> dict[str, Any]:
    return {"Service": {"ID": "x", "Port": port}}


class Fleet:
    """Watches of one hub, and the last value of each."""

    def __init__(self, group: asyncio.TaskGroup, slots: int) -> None:
        self.clock = FakeClock()
        self.consul, self.hub = ModelConsul(self.clock), ConsulHub(slots)
        self.ports: dict[str, int] = {}
        self.fresh: dict[str, float] = {}
        """When its value was last confirmed."""
        self.failing: dict[str, str] = {}
        self._group, self._tasks = group, dict[str, asyncio.Task[None]]()
        self._deps = ConsulDeps(self.clock, Random(1).random, {}, self.consul.connect, self.hub)

    def add(self, *names: str, access: ConsulAccess = ACCESS) -> None:
        for name in names:
            self._tasks[name] = self._group.create_task(self._watch(name, access))

    def remove(self, *names: str) -> None:
        for name in names:
            self._tasks.pop(name).cancel()

    def remove_all(self) -> None:
        self.remove(*list(self._tasks))

    async def _watch(self, name: str, access: ConsulAccess) -> None:
        async with closing(watch_endpoints(EndpointsWatch(access, name), self._deps)) as items:
            async for item in items:
                if isinstance(item, Unavailable):
                    self.failing[name] = item.reason
                    continue
                self.failing.pop(name, None)
                self.fresh[name] = self.clock.now()
                if isinstance(item, ServiceEndpoints):
                    self.ports[name] = item.endpoints[0].port if item.endpoints else 0

    def waits(self, since: float) -> list[str | None]:
        """Return the waits of the queries since a time."""
        return [query.get("wait") for when, _, query, _ in self.consul.asked if when >= since]


@asynccontextmanager
async def fleet(slots: int, *names: str) -> AsyncIterator[Fleet]:
    async with asyncio.TaskGroup() as group:
        made = Fleet(group, slots)
        for name in names:
            made.consul.register(name, instance(1))
        made.add(*names)
        await made.clock.advance(0)
        yield made
        made.remove_all()
    await settle()
    assert made.hub.agents == {}
    assert made.consul.opened == made.consul.closed > 0
    assert made.consul.in_flight == 0


def services(count: int) -> list[str]:
    return [f"s{number}" for number in range(count)]


def test_while_there_are_slots_for_all_every_watch_has_a_long_query() -> None:
    async def main() -> None:
        names = services(8)
        async with fleet(8, *names) as watched:
            assert watched.ports == dict.fromkeys(names, 1)
            assert watched.consul.opened == 1
            assert sorted(watched.waits(0), key=str) == ["60000ms"] * 8 + [None] * 8
            watched.consul.register("s3", instance(2))
            await watched.clock.advance(0)
            assert watched.ports["s3"] == 2

    run(main)


def test_with_more_watches_than_slots_they_take_turns_and_all_see_their_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        names = services(20)
        async with fleet(8, *names[:8]) as watched:
            watched.add(*names[8:])
            await watched.clock.advance(4)
            assert set(watched.ports) == set(names)
            assert watched.consul.most_in_flight == 8
            for number, name in enumerate(names):
                watched.consul.register(name, instance(number))
            since = watched.clock.now()
            await watched.clock.advance(4)
            assert watched.ports == {name: number for number, name in enumerate(names)}
            assert all(wait is None or int(wait.removesuffix("ms")) <= 1000 for wait in watched.waits(since))
            assert min(watched.fresh.values()) > since

    with caplog.at_level(logging.WARNING):
        run(main)
    [record] = caplog.records
    assert "more watches than the 8 connections" in record.message
    assert "http_max_conns_per_client" in record.message


def test_when_there_are_slots_for_all_again_queries_become_long_again() -> None:
    async def main() -> None:
        names = services(9)
        async with fleet(8, *names) as watched:
            await watched.clock.advance(10)
            watched.remove("s4")
            await watched.clock.advance(7)
            since = watched.clock.now()
            assert watched.consul.in_flight == 8
            await watched.clock.advance(50)
            assert watched.waits(since) == []

    run(main)


def test_a_watch_that_comes_and_goes_disturbs_the_others_once() -> None:
    async def main() -> None:
        names = services(8)
        async with fleet(8, *names) as watched:
            await watched.clock.advance(10)
            since = watched.clock.now()
            for _ in range(50):
                watched.add("guest")
                await watched.clock.advance(0.1)
                watched.remove("guest")
                await watched.clock.advance(0.1)
            assert len([wait for wait in watched.waits(since) if wait == "60000ms"]) == 0
            assert len(watched.waits(since)) < 8 * 10 + 100

    run(main)


def test_a_thousand_services_see_a_change_within_four_seconds_at_a_bounded_rate() -> None:
    async def main() -> None:
        names = services(1000)
        async with fleet(96, *names) as watched:
            await watched.clock.advance(4)
            since = watched.clock.now()
            chosen = Random(2).sample(names, 20)
            for name in chosen:
                watched.consul.register(name, instance(7))
            await watched.clock.advance(4)
            assert all(watched.ports[name] == 7 for name in chosen)
            assert len(watched.waits(since)) <= 4 * MOST_RATE
            assert watched.consul.most_in_flight == 96

    run(main, timeout=150)


def test_the_rate_is_bounded_however_many_watches_there_are() -> None:
    for slots in (1, 8, 96, 1000):
        for watches in (slots + 1, 2 * slots, 300 * slots):
            assert slots / longest_wait(watches, slots) <= max(MOST_RATE, slots)


def test_an_agent_that_refuses_connections_gets_fewer_and_later_more_again() -> None:
    async def main() -> None:
        names = services(16)
        async with fleet(16) as watched:
            watched.consul.most_connections = 5
            for name in names:
                watched.consul.register(name, instance(1))
            watched.add(*names)
            await watched.clock.advance(10)
            assert watched.ports == dict.fromkeys(names, 1)
            assert watched.failing == {}
            [agent] = watched.hub.agents.values()
            assert agent.slots == 5
            watched.consul.most_connections = 100
            await watched.clock.advance(130)
            assert agent.slots == 16

    run(main)


def test_an_agent_that_is_away_is_tried_a_few_times_a_second_and_all_are_back_within_two() -> None:
    async def main() -> None:
        names = services(100)
        async with fleet(32, *names) as watched:
            await watched.clock.advance(4)
            watched.consul.become(DOWN)
            await watched.clock.advance(2)
            assert set(watched.failing) == set(names)
            since = watched.clock.now()
            watched.add("later")
            await watched.clock.advance(60)
            assert "later" in watched.failing
            assert len(watched.waits(since)) <= 60 * 4
            assert watched.ports == dict.fromkeys(names, 1)
            watched.consul.register("s7", instance(2))
            watched.consul.become(OK)
            since = watched.clock.now()
            await watched.clock.advance(2)
            assert watched.failing == {}
            assert watched.ports["s7"] == 2
            assert len(watched.waits(since)) <= 2 * MOST_RATE

    run(main, timeout=150)


def test_an_agent_that_is_back_but_has_no_leader_is_said_to_have_none() -> None:
    async def main() -> None:
        async with fleet(4, *services(9)) as watched:
            watched.consul.become(DOWN)
            await watched.clock.advance(10)
            assert {"no connection" in reason for reason in watched.failing.values()} == {True}
            watched.consul.become(LEADERLESS)
            await watched.clock.advance(3)
            assert {"no leader" in reason for reason in watched.failing.values()} == {True}

    run(main)


def test_watches_with_other_tokens_share_the_connections_and_other_agents_have_their_own() -> None:
    async def main() -> None:
        async with fleet(4, "a") as watched:
            watched.add("b", access=ConsulAccess(token="secret", datacenter="east"))
            watched.add("c", access=ConsulAccess("10.0.0.1:8500"))
            await watched.clock.advance(0)
            assert sorted(agent.watches for agent in watched.hub.agents.values()) == [1, 2]
            assert watched.consul.opened == 2

    run(main)


@pytest.mark.parametrize("seed", range(5))
def test_watches_that_come_and_go_leave_no_slot_and_no_client_behind(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        async with fleet(5, "s0") as watched:
            watched.consul.most_connections = random.choice([3, 100])
            there = {"s0"}
            for _ in range(600):
                name = f"s{random.randrange(1, 30)}"
                if name in there:
                    watched.remove(name)
                else:
                    watched.add(name)
                there ^= {name}
                if random.random() < 0.02:
                    watched.consul.become(random.choice([DOWN, OK]))
                if random.random() < 0.2:
                    watched.consul.register(f"s{random.randrange(30)}", instance(random.randrange(9)))
                for _ in range(random.randrange(6)):
                    await asyncio.sleep(0)
                if random.random() < 0.1:
                    await watched.clock.advance(random.random())
            watched.consul.become(OK)
            for name in there:
                watched.consul.register(name, instance(99))
            await watched.clock.advance(70)
            [agent] = watched.hub.agents.values()
            assert agent.watches == len(there)
            assert agent.busy == watched.consul.in_flight <= agent.slots
            assert all(watched.ports[name] == 99 for name in there)

    run(main)


def test_a_hub_needs_a_slot() -> None:
    with pytest.raises(UsageError, match="must be 1 to"):
        ConsulHub(0)


def test_a_value_that_holds_is_confirmed_in_every_turn() -> None:
    async def main() -> None:
        names = services(3)
        async with fleet(1, *names) as watched:
            before = watched.clock.now()
            await watched.clock.advance(10)
            assert min(watched.fresh.values()) > before + 5

    run(main)
