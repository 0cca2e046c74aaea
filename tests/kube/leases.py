"""Replicas that compete for a Lease, in a world that the test drives: skewed clocks, slow and failing requests, pauses.

    Replica ──request──▶ lag ──▶ committed, or a conflict ──▶ lag ──▶ Replica

A request that its sender has given up is still committed. A replica that is paused gets no timer and no response; when
it goes on, it gets all that came meanwhile. So a replica computes exactly when a process would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.pipeline.fakes import FakeClock, FakeTimer, settle
from wigwag.kube.client import KubeDeps
from wigwag.kube.control.lease import LeaderElector, LeaseTiming
from wigwag.kube.errors import ApiError, ApiStatus
from wigwag.kube.kinds import Kind

TROUBLES = ["fine", "fine", "paused", "lost", "unanswered", "slow", "slow request", "slow response"]
Object = dict[str, Any]
TIMING = LeaseTiming()


@dataclass
class LeaseServer:
    """One Lease, with versions."""

    clock: FakeClock
    lease: Object | None = None
    version: int = 0
    writes: int = 0

    def get(self, _: Object) -> Object:
        if self.lease is None:
            raise refusal(404, "NotFound")
        return self.lease

    def create(self, body: Object) -> Object:
        if self.lease is not None:
            raise refusal(409, "AlreadyExists")
        return self._store(body)

    def replace(self, body: Object) -> Object:
        if self.lease is None:
            raise refusal(404, "NotFound")
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise refusal(409, "Conflict")
        return self._store(body)

    def _store(self, body: Object) -> Object:
        self.version += 1
        self.writes += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return self.lease

    @property
    def spec(self) -> Object:
        assert self.lease is not None
        spec: Object = self.lease["spec"]
        return spec


@dataclass
class ReplicaClock:
    """The clock of a process: it runs at a rate of its own, and rings only while the process runs."""

    true: FakeClock
    rate: float = 1.0
    offset: float = 0.0
    paused: bool = False
    held: list[Callable[[], object]] = field(default_factory=list)

    def now(self) -> float:
        return self.offset + self.rate * self.true.now()

    def call_at(self, when: float, callback: Callable[[], object]) -> FakeTimer:
        timer = FakeTimer(when, callback)

        def ring() -> None:
            if not timer.over:
                callback()

        self.true.call_at((when - self.offset) / self.rate + 1e-6, lambda: self.deliver(ring))
        return timer

    def deliver(self, callback: Callable[[], object]) -> None:
        """Call back now, or when the process goes on."""
        if self.paused:
            self.held.append(callback)
        else:
            callback()

    def go_on(self, backwards: bool) -> None:
        self.paused = False
        held, self.held = self.held, []
        for callback in reversed(held) if backwards else held:
            callback()


@dataclass
class Replica:
    """A process with an elector."""

    server: LeaseServer
    name: str
    clock: ReplicaClock
    timing: LeaseTiming = TIMING
    there: float = 0.01
    """How many seconds a request takes,"""
    back: float = 0.01
    """and the response to it."""
    fault: str = ""
    """`lost`: requests do not arrive; `unanswered`: responses do not; both are errors in the end."""
    working: bool = False
    terms: int = 0

    def __post_init__(self) -> None:
        deps = KubeDeps(clock=self.clock, wall=self.clock.now, random=lambda: 0.5, environment={})
        self.elector = LeaderElector(self, "ns", "lease", self.name, self.timing, deps)

    @property
    def leads(self) -> bool:
        """Whether this process may act as the leader: it computes, and believes that it leads."""
        return not self.clock.paused and (self.working or self.elector.holds())

    async def lead(self) -> None:
        self.working = True
        self.terms += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.working = False

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        return await self._request(self.server.get, {})

    async def create(self, kind: Kind, body: Mapping[str, Any]) -> Object:
        return await self._request(self.server.create, dict(body))

    async def replace(self, kind: Kind, body: Mapping[str, Any]) -> Object:
        return await self._request(self.server.replace, dict(body))

    async def _request(self, commit: Callable[[Object], Object], body: Object) -> Object:
        response: asyncio.Future[Object] = asyncio.get_running_loop().create_future()
        true, back, fault = self.server.clock, self.back, self.fault

        def arrive() -> None:
            try:
                answer: Object | ApiError = refusal(500, "InternalError") if fault == "lost" else commit(body)
            except ApiError as error:
                answer = error
            if fault == "unanswered":
                answer = refusal(504, "Timeout")
            true.call_at(true.now() + back, lambda: self.clock.deliver(lambda: settle_with(response, answer)))

        true.call_at(true.now() + self.there, arrive)
        return await response


def settle_with(response: asyncio.Future[Object], answer: Object | ApiError) -> None:
    if response.done():
        return
    if isinstance(answer, ApiError):
        response.set_exception(answer)
    else:
        response.set_result(answer)


def refusal(code: int, reason: str) -> ApiError:
    return ApiError("lease", ApiStatus(code, reason))


class Election:
    """Replicas and a server; checks at every moment that at most one of them leads."""

    def __init__(self, rates: Sequence[float] = (1.0, 1.0), timing: LeaseTiming = TIMING) -> None:
        """`rates`: how fast the clock of each replica runs."""
        self.clock = FakeClock()
        self.server = LeaseServer(self.clock)
        clocks = [ReplicaClock(self.clock, rate, offset=1e4 * n) for n, rate in enumerate(rates)]
        self.replicas = [Replica(self.server, f"replica-{n}", clock, timing) for n, clock in enumerate(clocks)]
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        for replica in self.replicas:
            self._tasks[replica.name] = asyncio.ensure_future(replica.elector.run(replica.lead))
        await settle()
        return self

    async def __aexit__(self, failed: object, *more: object) -> None:
        if failed:  # without the release, which needs a clock that goes on
            for _ in range(2):
                for task in self._tasks.values():
                    task.cancel()
                await settle()
            return
        for replica in self.replicas:
            await self.stop(replica)

    async def stop(self, replica: Replica) -> None:
        """Stop a process, as SIGTERM does."""
        replica.clock.go_on(backwards=False)
        task = self._tasks[replica.name]
        task.cancel()
        while not task.done():
            await self.advance(0.1)

    async def advance(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            ahead = self.clock.pending()[:1] or [seconds]
            await self.clock.advance(max(0.0, min(ahead[0], end - self.clock.now())))
            self.check()

    async def trouble(self, replica: Replica, what: str, backwards: bool = False) -> None:
        """Bring a replica into one of the troubles, out of all others."""
        replica.fault = what if what in ("lost", "unanswered") else ""
        replica.there = {"slow request": 6.0, "slow": 3.0}.get(what, 0.01)
        replica.back = {"slow response": 8.5, "slow": 3.0}.get(what, 0.01)
        if what == "paused":
            replica.clock.paused = True
        elif replica.clock.paused:
            replica.clock.go_on(backwards)
            await settle()
        self.check()

    def check(self) -> None:
        assert len(self.leaders()) <= 1, (self.leaders(), self.clock.now(), self.server.lease)

    def leaders(self) -> list[str]:
        return [replica.name for replica in self.replicas if replica.leads]
