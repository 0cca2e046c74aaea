"""A Consul that the test drives, on the test's clock: keys, indexes that go back, and every way of not answering."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.pipeline.fakes import FakeClock, settle
from wigwag.pipeline.clock import sleep_until, wait_event
from wigwag.pipeline.watch import closing
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.query import ConsulDeps
from wigwag.wire.client.client import ClientResponse
from wigwag.wire.client.errors import SlowError, UnreachableError
from wigwag.wire.h1.client import ClientRequest, ResponseLimits

OK, DOWN, LEADERLESS, DENIED, DEAF = "ok", "down", "leaderless", "denied", "deaf"


@dataclass
class ModelConsul:
    """What a Consul knows, and how it is at present."""

    clock: FakeClock
    keys: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    index: int = 10
    state: str = OK
    indexed: bool = True
    """Whether answers name an index."""
    extra: dict[str, str] = field(default_factory=dict)
    """Further fields of the answers."""
    asked: list[tuple[float, str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    opened: int = 0
    closed: int = 0
    services: dict[str, tuple[list[Any], int]] = field(default_factory=dict)
    in_flight: int = 0
    most_in_flight: int = 0
    most_connections: int = 1 << 30
    """How many queries at once are not refused."""

    def __post_init__(self) -> None:
        self._changed: set[asyncio.Event] = set()

    # what happens to it

    def put(self, key: str, value: bytes) -> None:
        self.index += 1
        self.keys[key] = value, self.index
        self.ring()

    def delete(self, key: str) -> None:
        self.index += 1
        self.keys.pop(key, None)
        self.ring()

    def register(self, name: str, *instances: Any) -> None:
        """Change the instances of a service; without any, there is no such service."""
        self.index += 1
        self.services.pop(name, None)
        if instances:
            self.services[name] = list(instances), self.index
        self.ring()

    def churn(self) -> None:
        """Something changes elsewhere."""
        self.index += 1
        self.ring()

    def save(self) -> tuple[dict[str, tuple[bytes, int]], int]:
        return dict(self.keys), self.index

    def restore(self, saved: tuple[Mapping[str, tuple[bytes, int]], int]) -> None:
        self.keys, self.index = dict(saved[0]), saved[1]
        self.ring()

    def become(self, state: str) -> None:
        self.state = state
        self.ring()

    def ring(self) -> None:
        for event in self._changed:
            event.set()

    # what clients see

    def connect(self, _access: ConsulAccess, _environment: Mapping[str, str]) -> ModelConsul:
        self.opened += 1
        return self

    def close(self) -> None:
        self.closed += 1

    async def fetch(self, call: ClientRequest, *, limits: ResponseLimits | None = None) -> ClientResponse:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.in_flight > self.most_connections:
                await asyncio.sleep(0)
                return ClientResponse(call.url, 429, (), b"")
            return await self._answer(call, limits)
        finally:
            self.in_flight -= 1

    async def _answer(self, call: ClientRequest, limits: ResponseLimits | None) -> ClientResponse:
        assert limits is not None
        path, _, query = call.url.target.partition("?")
        parameters = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
        self.asked.append((self.clock.now(), path, parameters, dict(call.fields)))
        index, end = int(parameters.get("index", 0)), self.clock.now() + limits.head
        until = self.clock.now() + int(parameters.get("wait", "0ms").removesuffix("ms")) / 1000 * 17 / 16
        event = asyncio.Event()
        self._changed.add(event)
        try:
            while self.state == OK and index and self._index(path) <= index and self.clock.now() < until:
                await wait_event(self.clock, event, until)
        finally:
            self._changed.discard(event)
        if self.state == DEAF:
            await sleep_until(self.clock, end)
            raise SlowError(call.url.endpoint, "does not answer in time")
        return self._reply(call, path, recurse="recurse" in parameters)

    def _index(self, path: str) -> int:
        """A key or service that is there has an index of its own; for all else, that of everything counts."""
        service = self._service(path)
        if service in self.services:
            return self.services[service][1]
        key = unquote(path).removeprefix("/v1/kv/")
        return self.keys[key][1] if key in self.keys else self.index

    def _service(self, path: str) -> str | None:
        name = unquote(path).removeprefix("/v1/health/service/")
        return name if name != unquote(path) else None

    def _reply(self, call: ClientRequest, path: str, *, recurse: bool) -> ClientResponse:
        if self.state == DOWN:
            raise UnreachableError(call.url.endpoint, "no connection: refused")
        if self.state == LEADERLESS:
            return ClientResponse(call.url, 500, (), b"No cluster leader")
        if self.state == DENIED:
            return ClientResponse(call.url, 403, (), b"ACL not found")
        fields = {"x-consul-index": str(self._index(path)), **self.extra} if self.indexed else self.extra
        if (service := self._service(path)) is not None:
            instances = self.services.get(service, ((), 0))[0]
            return ClientResponse(call.url, 200, tuple(fields.items()), json.dumps(instances).encode())
        wanted = unquote(path).removeprefix("/v1/kv/")
        found = [key for key in sorted(self.keys) if (key.startswith(wanted) if recurse else key == wanted)]
        body = [{"Key": key, "Value": b64encode(self.keys[key][0]).decode(), "Flags": 0} for key in found]
        return ClientResponse(
            call.url, 200 if found else 404, tuple(fields.items()), json.dumps(body).encode() if found else b""
        )


class Followed:
    """A watcher of the model, and what it has yielded."""

    def __init__(self, clock: FakeClock, consul: ModelConsul) -> None:
        self.clock, self.consul = clock, consul
        self.items: list[tuple[float, Any]] = []

    def take(self) -> list[Any]:
        """Return what was yielded since the last time."""
        taken, self.items = [item for _, item in self.items], []
        return taken

    async def on(self, seconds: float) -> list[Any]:
        """Let time pass, and return what is yielded meanwhile."""
        await self.clock.advance(seconds)
        return self.take()


@asynccontextmanager
async def following(watch: Any, spec: Any, seed: int | None = None) -> AsyncIterator[Followed]:
    """Run a watcher against a model. Chance is a coin that falls on the middle, or one with a seed."""
    clock = FakeClock()
    consul = ModelConsul(clock)
    chance = (lambda: 0.5) if seed is None else Random(seed).random
    followed = Followed(clock, consul)

    async def read() -> None:
        async with closing(watch(spec, ConsulDeps(clock, chance, {}, consul.connect))) as stream:
            async for item in stream:
                followed.items.append((clock.now(), item))

    async with asyncio.TaskGroup() as group:
        yield_to = group.create_task(read())
        yield followed
        yield_to.cancel()
    await settle()
