"""Simulated agents, for the fleet's benchmark: many in one process, each with streams or watches of its own.

    python -m bench.fleet_agents PORT       reads a line of JSON from standard input, and answers each with one

The first line says who they are (`FleetConfig`); the answer comes when each has all of its flags. A further line is a
list of flags with a revision each; the answer has, for each of them, when its agents had it (CLOCK_MONOTONIC). Nothing
is lost that arrives before it is asked for.

An agent does as `wigwag start` does where others feel it: it has a connection to the proxy, or one to the API server
for each FeatureFlag, and answers `/propagation` at the address of its pod. It evaluates nothing. One socket listens at
every address of loopback, and the address that a connection came to tells which agent is asked.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import msgspec
import uvloop
from openfeature.schemas.protobuf.flagd.sync.v1.sync_pb2 import SyncFlagsResponse

from bench.proxy import METHOD
from bench.watch import kube
from wigwag.flags.digests import document_digest
from wigwag.kube.kinds import FEATURE_FLAG
from wigwag.kube.watch.follow import watch_kube
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.sources.kubernetes.objects import decode_flag
from wigwag.wire.client.grpc import open_channel
from wigwag.wire.client.http2 import Endpoint
from wigwag.wire.rpcs.protobuf import text

if TYPE_CHECKING:
    from wigwag.kube.client import Kube

AT_ONCE = 32
"""Agents that connect at the same time. The others wait, so that whoever asks an agent gets an answer meanwhile."""
_REVISION = re.compile(rb'"revision": ?(\d+)')


class FleetAgent(msgspec.Struct, frozen=True):
    """One agent."""

    address: str
    """Of its pod."""
    flags: tuple[str, ...]
    """`NAMESPACE/NAME` of its FeatureFlags, in the order of its sources."""


class FleetConfig(msgspec.Struct, frozen=True):
    """All agents, and where they get their flags from."""

    agents: tuple[FleetAgent, ...]
    proxy: int = 0
    """The port of the proxy; without one, each agent watches the API server."""


class Fleet:
    """What each agent has, and when it got it."""

    def __init__(self) -> None:
        self._documents: dict[str, dict[str, bytes]] = {}
        self._order: dict[str, tuple[str, ...]] = {}
        self._users: defaultdict[str, int] = defaultdict(int)
        self._times: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
        self._news = asyncio.Event()

    def add(self, agent: FleetAgent) -> None:
        self._documents[agent.address], self._order[agent.address] = {}, agent.flags
        for flag in agent.flags:
            self._users[flag] += 1

    def received(self, agent: FleetAgent, flag: str, document: bytes) -> None:
        """Note that an agent has a document; one that says the same again is no news."""
        had = self._documents[agent.address]
        if had.get(flag) == document:
            return
        had[flag] = document
        found = _REVISION.search(document)
        times = self._times[flag, int(found[1]) if found else 0]
        times.append(time.monotonic())
        self._news.set()

    async def all_have(self, flag: str, revision: int) -> list[float]:
        """Wait until all agents of a flag have a revision; return when each of them had it."""
        while len(self._times[flag, revision]) < self._users[flag]:
            self._news.clear()
            await self._news.wait()
        return self._times[flag, revision]

    async def all_ready(self) -> None:
        """Wait until each agent has a document of each of its flags."""
        while any(len(had) < len(set(self._order[address])) for address, had in self._documents.items()):
            self._news.clear()
            await self._news.wait()

    def propagation(self, address: str) -> bytes:
        """Return what an agent says about its flags; one that has not begun has none."""
        had = self._documents.get(address, {})
        digests = (_digest(had[flag]) if flag in had else "" for flag in self._order.get(address, ()))
        sources = [{"priority": at, "state": "live", "digest": each} for at, each in enumerate(digests)]
        return msgspec.json.encode({"sources": sources})


@lru_cache(maxsize=4096)
def _digest(document: bytes) -> str:
    return document_digest(msgspec.json.decode(document))


class ManagementPort(asyncio.Protocol):
    """Answers one request on a connection, whatever it asks."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._received = fleet, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if b"\r\n\r\n" in self._received:
            body = self._fleet.propagation(self._transport.get_extra_info("sockname")[0])
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            )
            self._transport.write(head % len(body) + body)
            self._transport.close()


async def through_proxy(fleet: Fleet, agent: FleetAgent, port: int, stack: AsyncExitStack) -> None:
    """Have a connection to the proxy, and a stream of each flag."""
    endpoint = Endpoint((("127.0.0.1", port),), f"127.0.0.1:{port}")
    channel = await stack.enter_async_context(open_channel(endpoint))

    async def follow(flag: str) -> None:
        with channel.stream(METHOD, text(2, f"{FEATURE_FLAG.group}/{flag}")) as answers:
            async for message in answers:
                fleet.received(agent, flag, SyncFlagsResponse.FromString(message).flag_configuration.encode())

    async with asyncio.TaskGroup() as group:
        for flag in agent.flags:
            group.create_task(follow(flag))


async def directly(fleet: Fleet, agent: FleetAgent, client: Kube) -> None:
    """Have a watch of each flag at the API server."""

    async def follow(flag: str) -> None:
        namespace, name = flag.split("/")
        spec = KubeWatch(FEATURE_FLAG, namespace, name)
        async with closing(watch_kube(client, spec, decode_flag)) as items:
            async for item in items:
                if not isinstance(item, Unavailable | Unchanged) and item:
                    fleet.received(agent, flag, next(iter(item.values()))[""])

    async with asyncio.TaskGroup() as group:
        for flag in agent.flags:
            group.create_task(follow(flag))


async def run(port: int) -> None:
    fleet, loop, lines = Fleet(), asyncio.get_running_loop(), asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    listening = await loop.create_server(lambda: ManagementPort(fleet), "0.0.0.0", port, backlog=1024)
    print("listening", flush=True)
    config = msgspec.json.decode(await lines.readline(), type=FleetConfig)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        tasks = []
        for first in range(0, len(config.agents), AT_ONCE):
            for agent in config.agents[first : first + AT_ONCE]:
                fleet.add(agent)
                proxied = through_proxy(fleet, agent, config.proxy, stack) if config.proxy else None
                tasks.append(group.create_task(proxied or directly(fleet, agent, kube())))
            await fleet.all_ready()
        print("ready", flush=True)
        while line := await lines.readline():
            wanted = msgspec.json.decode(line, type=list[tuple[str, int]])
            print(msgspec.json.encode([await fleet.all_have(*each) for each in wanted]).decode(), flush=True)
        for task in tasks:
            task.cancel()
    listening.close()


if __name__ == "__main__":
    uvloop.run(run(int(sys.argv[1])))
