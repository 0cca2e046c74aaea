"""The connections to Consul agents, shared by the watches of a process.

    watch ─▶ queue (FIFO) ─▶ slot: one query, one connection ─▶ back to the queue

A blocking query holds a connection while it waits, and an agent refuses the 201st of a client with 429
(`limits.http_max_conns_per_client`). So each agent has a number of slots. While there are no more watches than slots,
every query is a long one, and a change arrives after one round trip. With more, watches take turns with short waits: a
query that knows the last index returns at once if something has changed meanwhile. A change is then seen when its watch
has a slot, and waits are so short that every watch had one within about `ROUND` seconds:

      300 watches: waits of 0.96 s, 100 queries per second, a change is seen within 3 s
    1,000 watches: waits of 0.29 s, 333 queries per second, within 3 s
    5,000 watches: waits of 0.24 s, 400 queries per second, which is the most, within 13 s

The hard case is the watch that is one too many, because all slots may be held for a minute. Long queries are then
preempted: they lose their connection and queue again. Consul may go on counting a lost connection until the wait of
its query is over (it does for keys), so by default there are fewer slots than half of Consul's limit. And waits become
long again only when there have been enough slots for a while, so that a watch that comes and goes disturbs the others
once.

An agent that cannot be reached is tried by one query per `PROBE` seconds, whoever comes first. All others fail at once
with the same error, and come back by their own back-off, which spreads them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from wigwag.errors import UsageError
from wigwag.sources.consul.access import ConsulBusyError, ConsulRefusedError
from wigwag.wire.client.client import Client
from wigwag.wire.client.errors import UnreachableError
from wigwag.wire.client.proxies import Proxies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from wigwag.pipeline.clock import Clock
    from wigwag.sources.consul.access import ConsulAccess
    from wigwag.wire.client.client import ClientResponse
    from wigwag.wire.client.tls import Trust
    from wigwag.wire.h1.client import ClientRequest, ResponseLimits

log = logging.getLogger("wigwag.sources.consul")

SLOTS = 96
MOST_SLOTS = 10_000
ROUND = 3.0
"""Seconds in which every watch should have had a slot."""
SHARED_WAIT = 1.0
"""The longest wait of watches that take turns, in seconds."""
MOST_RATE = 400.0
"""Queries per second of watches that take turns. Beyond it, rounds become longer."""
SETTLED = 5.0
"""Seconds with a slot for every watch until queries are long again."""
PROBE = 0.25
REGROWTH = 60.0
"""Seconds after the last 429 until more slots are tried again."""


class HttpFetcher(Protocol):
    """An HTTP client."""

    async def fetch(self, call: ClientRequest, *, limits: ResponseLimits | None = None) -> ClientResponse:
        """Return the whole response, or raise a `WigwagError`."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def connect(access: ConsulAccess, environment: Mapping[str, str]) -> HttpFetcher:
    """Make a client of a Consul agent. It dials only if no connection is idle, so slots limit the idle ones, too."""
    return Client(trust=access.trust, proxies=Proxies.of(environment), path=access.socket, spare=MOST_SLOTS)


class QuerySlot(NamedTuple):
    """The right to one query."""

    client: HttpFetcher
    wait: float
    """The longest wait of a blocking query, in seconds."""


def longest_wait(watches: int, slots: int) -> float:
    """Return how long a query may wait, and so hold a slot, in seconds.

    >>> [round(longest_wait(watches, 96), 2) for watches in (96, 97, 1000, 5000)]
    [inf, 1.0, 0.29, 0.24]
    """
    if watches <= slots:
        return math.inf
    return slots / min(max(watches / ROUND, slots / SHARED_WAIT), max(MOST_RATE, slots / SHARED_WAIT))


class SharedAgent:
    """The slots of one agent. Every method but `slot` is synchronous, so nobody waits for anybody's end."""

    def __init__(self, name: object, client: HttpFetcher, clock: Clock, slots: int) -> None:
        self._name, self._clock, self._most = name, clock, slots
        self.client, self.slots, self.watches, self.busy = client, slots, 0, 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._long: set[asyncio.Timeout] = set()
        self._away: UnreachableError | None = None
        self._probe_at = self._regrow_at = self._settled_at = -math.inf
        self._warned = False

    @asynccontextmanager
    async def slot(self, wait: float) -> AsyncIterator[QuerySlot]:
        """Wait for a slot, for a query that wants to wait so long. `TimeoutError`: preempted, ask again.

        `UnreachableError`: another query has just found out that the agent cannot be reached.
        """
        await self._enter()
        try:
            self._check_reachable()
            wait = min(wait, self._longest_wait())
            async with asyncio.timeout(None) as preemption:
                if wait > SHARED_WAIT:
                    self._long.add(preemption)
                try:
                    yield QuerySlot(self.client, wait)
                finally:
                    self._long.discard(preemption)
            self._away = None
        except UnreachableError as error:
            self._away = error
            raise
        except ConsulRefusedError as error:
            self._away = None
            if isinstance(error, ConsulBusyError):
                self._shrink()
            raise
        finally:
            self.busy -= 1
            self._admit()

    def adjust(self, watches: int) -> None:
        """Change the number of watches."""
        if self.watches > self.slots:
            self._settled_at = self._clock.now() + SETTLED
        self.watches += watches
        self._share()

    def _longest_wait(self) -> float:
        settled = self._clock.now() >= self._settled_at
        return min(longest_wait(self.watches, self.slots), math.inf if settled else SHARED_WAIT)

    async def _enter(self) -> None:
        """Wait in the queue. Whoever is admitted counts as busy from that moment on."""
        if self.slots < self._most and self._clock.now() >= self._regrow_at:
            self.slots, self._regrow_at = min(self._most, self.slots * 2), self._clock.now() + REGROWTH
        admitted = asyncio.get_running_loop().create_future()
        self._queue.append(admitted)
        self._admit()
        try:
            await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():  # admitted and cancelled in the same turn of the loop
                self.busy -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._queue and self.busy < self.slots:
            admitted = self._queue.popleft()
            if not admitted.done():  # its watch has gone
                admitted.set_result(None)
                self.busy += 1

    def _share(self) -> None:
        """Preempt long queries if there are more watches than slots."""
        if self.watches <= self.slots:
            return
        if not self._warned:
            self._warned = True
            log.warning(
                "%s: more watches than the %d connections that are used; they take turns, so a change may be seen "
                "up to about %.0f s late; to prevent that, use more connections, and raise "
                "limits.http_max_conns_per_client of the agent to more than twice as many",
                *(self._name, self.slots, ROUND),
            )
        for preemption in self._long:
            preemption.reschedule(asyncio.get_running_loop().time())
        self._long.clear()

    def _check_reachable(self) -> None:
        """While the agent is away, raise what is known; but let one query through every `PROBE` seconds."""
        if self._away is not None:
            if self._clock.now() < self._probe_at:
                raise self._away.with_traceback(None)
            self._probe_at = self._clock.now() + PROBE

    def _shrink(self) -> None:
        """The agent refused a connection: those that are open besides it are what it allows."""
        self.slots, self._regrow_at = max(1, min(self.slots, self.busy - 1)), self._clock.now() + REGROWTH
        self._share()


class ConsulHub:
    """The agents that a process watches. Its first watch makes the client of an agent, its last one closes it."""

    def __init__(self, slots: int = SLOTS) -> None:
        """`slots`: connections per agent."""
        if not 1 <= slots <= MOST_SLOTS:
            raise UsageError(f"the connections to a Consul agent must be 1 to {MOST_SLOTS}")
        self._slots = slots
        self.agents: dict[tuple[str, bool, Trust], SharedAgent] = {}

    @contextmanager
    def join(self, access: ConsulAccess, make: Callable[[], HttpFetcher], clock: Clock) -> Iterator[SharedAgent]:
        """Add a watch of an agent; `make` makes its client."""
        agent = self.agents.get(access.server)
        if agent is None:
            agent = self.agents[access.server] = SharedAgent(access, make(), clock, self._slots)
        agent.adjust(+1)
        try:
            yield agent
        finally:
            agent.adjust(-1)
            if not agent.watches:
                del self.agents[access.server]
                agent.client.close()
