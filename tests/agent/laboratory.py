"""An agent in this process, with real sources, servers and sockets, on a clock that the test moves.

A minute of an outage then takes as long as its requests. For that the clock must stand still while a source waits for
the network, and go on when it waits for time: each source gets the time through a `Tap`, which knows which it is. The
wall clock goes as the other one does, until the test sets it. Chance is a coin that always falls on the middle.

Names that end in `.test` are resolved here, and every look-up of a name is counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.agent import seen
from tests.pipeline.fakes import FakeClock, FakeTimer, settle
from wigwag.agent.options import AgentOptions
from wigwag.agent.run import Agent, AgentDeps
from wigwag.pipeline.watch import WatchPolicy, closing
from wigwag.sources import kinds
from wigwag.sources.builtin.grpc import grpc_watch
from wigwag.sources.builtin.http import http_watch
from wigwag.sources.remote import blob, grpc, http
from wigwag.sources.source import Source
from wigwag.wire.h1.client import ResponseLimits
from wigwag.wire.http import Early, Handler, Reply, Request
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.listen import Listener
from wigwag.wire.server.server import Server, serve

if TYPE_CHECKING:
    from wigwag.sources.kind import Documents

EPOCH = 1_700_000_000.0
DAY = 86_400.0
PATIENT, HASTY = 20.0, 0.7
"""Real seconds that a server may take; HASTY is for those that are meant to take too long."""
KEEP_ALIVE = 30.0
_PORTS = ("evaluation", "management", "sync", "OFREP")


class Loop(asyncio.SelectorEventLoop):
    """A loop with a resolver of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, str] = {}
        """The addresses of names."""
        self.looked_up: Counter[Any] = Counter()
        """How often each port was asked for, by whatever name."""

    async def getaddrinfo(self, host: Any, port: Any, **more: Any) -> Any:
        self.looked_up[port] += 1
        if str(host).endswith(".test"):
            if host not in self.known:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            host = self.known[host]
        return await super().getaddrinfo(host, port, **more)


def resolver() -> Loop:
    """Return the loop that a test runs in: the resolver of names."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    return loop


def run(main: Callable[[], Coroutine[Any, Any, None]], timeout: float = 100.0) -> None:
    """Run a test to its end, under a timeout, and see that it leaves no task behind."""

    async def body() -> None:
        async with asyncio.timeout(timeout):
            await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(body())


class Tap:
    """The clock of one source. `idle`: the source waits for time, or for a server to speak that need not.

    A gRPC source waits for time as soon as it is connected: for that of its next ping. But something is about to come:
    the first document, or the answer to the ping. So it is idle once that is here.
    """

    def __init__(self, clock: FakeClock, pong: float) -> None:
        self._clock, self._pong = clock, pong
        self._timers: list[tuple[FakeTimer, float]] = []
        self._due = 0
        """How many items there must be."""
        self.over = True
        """Whether nobody follows the source at the moment."""
        self.wordless = False
        """Whether its server may connect and say nothing."""
        self.items = self.moves = 0
        """What came of it so far; and that, with every other sign that it is doing something."""
        self.news = asyncio.Event()

    def now(self) -> float:
        return self._clock.now()

    def call_at(self, when: float, callback: Callable[[], object]) -> FakeTimer:
        timer, span = self._clock.call_at(when, callback), when - self.now()
        self._timers.append((timer, span))
        self._due = self.items + 1 if _is(span, KEEP_ALIVE) else 0
        self.move()
        return timer

    def move(self) -> None:
        self.moves += 1
        self.news.set()

    def idle(self) -> bool:
        self._timers = [(timer, span) for timer, span in self._timers if not timer.over]
        pinging = any(_is(span, self._pong) for _, span in self._timers)
        spoken = self.wordless or self.items >= self._due
        return self.over or (bool(self._timers) and not pinging and spoken)

    async def follow(self, documents: Documents) -> Documents:
        self.over, self._due = False, 0
        try:
            async with closing(documents) as items:
                async for item in items:
                    self.items += 1
                    self.move()
                    yield item
        finally:
            self.over = True
            self.move()


async def _moment() -> None:
    """Let threads and the network have their turn, too."""
    await asyncio.sleep(0.001)


def _is(span: float, seconds: float) -> bool:
    return abs(span - seconds) < 1e-6


@dataclass
class Lab:
    """The agent, and the world around it."""

    clock: FakeClock = field(default_factory=FakeClock)
    jump: float = 0.0
    """How far the wall clock was set away from its course."""
    patience: float = PATIENT
    random: Callable[[], float] = lambda: 0.5
    taps: dict[int, Tap] = field(default_factory=dict)
    handlers: list[Handler] = field(default_factory=list)
    addresses: Mapping[str, list[str]] = field(default_factory=dict)

    # what the agent gets

    def deps(self) -> AgentDeps:
        policy = WatchPolicy(clock=self.clock, random=lambda: self.random())
        return AgentDeps(policy=policy, wall=self.wall, documents=self.documents, serve=self.serve)

    def wall(self) -> float:
        return EPOCH + self.clock.now() + self.jump

    def documents(self, source: Source) -> Documents:
        if source.provider == "file":
            return kinds.documents(source)
        tap = self.taps.setdefault(source.position, Tap(self.clock, 2 * self.patience))
        return tap.follow(self._kind(source, tap))

    def _kind(self, source: Source, tap: Tap) -> Documents:
        told = source.settings
        if source.provider == "http":
            limits = ResponseLimits(head=self.patience, idle=self.patience, total=self.patience)
            deps = http.HttpDeps(tap, self.wall, self.random, environment={}, limits=limits)
            return http.watch_http(http_watch(source), deps)
        if source.provider == "grpc":
            return grpc.watch_grpc(grpc_watch(source), grpc.GrpcDeps(tap, self.random, self.patience))
        watch = blob.BlobWatch(source.address, told.interval, told.seed, told.most, told.cert_path)
        return blob.watch_blob(watch, blob.BlobDeps(tap, self.wall, self.random, os.environ, 5.0, self.patience))

    def serve(
        self, handler: Handler, listeners: Sequence[Listener], limits: WireLimits, early: Early | None
    ) -> AbstractAsyncContextManager[Server]:
        self.handlers.append(handler)
        return serve(handler, listeners, limits, early)

    # time

    async def quiet(self) -> None:
        """Wait until every source waits for time."""
        await settle()
        for tap in self.taps.values():
            while not tap.idle():
                tap.news.clear()
                await tap.news.wait()
                await settle()

    async def lapse(self, seconds: float) -> None:
        """Let time pass."""
        end = self.clock.now() + seconds
        while await self._step(end):
            pass
        await self.clock.advance(end - self.clock.now())
        await self.quiet()

    async def until(self, condition: Callable[[], object], most: float = 60.0) -> float:
        """Let time pass until something is so, and return how much; no more than this.

        What a timer began may still be on its way through the network or a thread when the time is over, so the
        last look waits for it.
        """
        began = self.clock.now()
        await self.quiet()
        while not condition() and await self._step(began + most):
            await self.quiet()
        try:
            async with asyncio.timeout(2 * PATIENT):
                await self.meanwhile(condition)
        except TimeoutError:
            raise AssertionError(f"it is not so after {most} s: {self.statuses()}") from None
        return self.clock.now() - began

    async def meanwhile(self, condition: Callable[[], object]) -> None:
        """Wait until something is so, though no time passes: it is on its way."""
        while not condition():
            await _moment()

    async def _step(self, end: float) -> bool:
        """Go to the next moment at which something happens, if that is before the end."""
        await self.quiet()
        ahead = min(self.clock.pending(), default=DAY)
        if self.clock.now() + ahead > end:
            return False
        await self.clock.advance(ahead + 1e-6)
        return True

    # what is seen

    def address(self, name: str) -> str:
        return self.addresses[name][0]

    async def ask(self, what: Callable[..., Any], *arguments: Any) -> Any:
        """Look at the agent over its ports, with one of the functions of `seen`."""
        return await asyncio.to_thread(what, self, *arguments)

    async def source(self, priority: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = await self.ask(seen.source, priority)
        return found

    def statuses(self) -> list[tuple[str, str | None]]:
        return [(status.state, status.error) for status in self.agent.pipeline.statuses()]

    def state(self, priority: int = 0) -> str:
        return self.statuses()[priority][0]

    def value(self, key: str) -> Any:
        """Return what a flag is in the snapshot of now."""
        return self.agent.snapshots.value.flags.resolve(key).value

    def at_once(self, key: str) -> None:
        """See that evaluations wait for nothing: whatever is asked, the handler returns an answer and no promise."""
        body, headers = json.dumps({"flagKey": key}).encode(), ((b"content-type", b"application/json"),)
        for version in (b"v1", b"v2"):
            path = b"/flagd.evaluation.%b.Service/ResolveString" % version
            assert type(self.handlers[0](Request(b"POST", path, b"", headers, body))) is Reply
        for path in (b"/ofrep/v1/evaluate/flags", f"/ofrep/v1/evaluate/flags/{key}".encode()):
            assert type(self.handlers[3](Request(b"POST", path, b"", headers, b"{}"))) is Reply

    agent: Agent = field(init=False)


@asynccontextmanager
async def laboratory(
    *sources: dict[str, Any], patience: float = PATIENT, random: Callable[[], float] = lambda: 0.5, **options: Any
) -> AsyncIterator[Lab]:
    """Run an agent with these elements of `--sources` until the end of the block."""
    lab = Lab(patience=patience, random=random)
    ports: dict[str, Any] = {"port": 0, "management_port": 0, "sync_port": 0, "ofrep_port": 0}
    lab.agent = Agent(AgentOptions(sources=json.dumps(sources), bind="127.0.0.1", **ports, **options), lab.deps())
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(lab.agent.run(stop))
        await lab.agent.lifecycle.started.wait()
        lab.addresses = lab.agent.lifecycle.addresses
        assert tuple(lab.addresses) == _PORTS
        try:
            yield lab
        finally:
            stop.set()
