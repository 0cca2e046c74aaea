"""Blocking queries of Consul: follow one URL, for ever.

    Cursor ─▶ slot ─▶ query ─▶ response ─▶ decode ─▶ new value, or UNCHANGED ─▶ rate limit ─┐
      ▲                 └───▶ failure ─▶ Unavailable ─▶ back-off ───────────────────────────┤
      └─────────────────────────────────────────────────────────────────────────────────────┘

A blocking query returns when the index of what it reads has passed the one in the query, or after its wait. So a
response is not a change: only its content tells. And an index is not a clock: it goes back when a snapshot is restored,
a server is replaced or another one answers. A query that waits for the old index then sleeps through every change.

    response, index ahead      wait for the next            response, index behind    query at once, from the beginning
    response, index 0 or none  wait for 1: never unbounded  failure                   the same again, with a short wait

The hard case is the first query after a failure. A long one would leave the source without news for a minute, though
all is well again; and if the server counts anew, it would wait for an index that is far away. So it is a short one, and
from the beginning if the failure was a refusal or went on for long. Retries are here, because only the cursor knows how
far the responses have come. A refusal is retried slowly, because a token or a policy has to be changed first.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from random import random
from typing import TYPE_CHECKING, Generic, TypeVar

from wigwag.errors import WigwagError
from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import Clock, LoopClock, sleep_until
from wigwag.pipeline.limit import Burst, Limiter
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.sources.consul.access import ConsulRefusedError, index_of
from wigwag.sources.consul.hub import SHARED_WAIT, ConsulHub, HttpFetcher, connect
from wigwag.sources.document import ReadResult
from wigwag.wire.h1.client import ClientRequest, ResponseLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from wigwag.sources.consul.access import ConsulAccess
    from wigwag.sources.consul.hub import SharedAgent
    from wigwag.wire.client.client import ClientResponse

V = TypeVar("V")
BACKOFF = Backoff(first=0.5)
SHORT_WAIT = 0.1
LONG_OUTAGE = 60.0
_MARGIN = 10.0
_TRANSFER = 120.0
"""Seconds for connecting, and for the body of a response."""


@dataclass(frozen=True, slots=True)
class BlockingQuery:
    """A query: return when the index has passed `index`, or after `wait` seconds."""

    index: int = 0
    """0: return at once."""
    wait: float = 0.0

    @property
    def timeout(self) -> float:
        """How long the response may take, in seconds. Consul adds up to a sixteenth as jitter.

        >>> BlockingQuery(7, 60.0).timeout, BlockingQuery().timeout
        (73.75, 10.0)
        """
        return self.wait * 17 / 16 + _MARGIN

    def over(self, seconds: float) -> bool:
        """Tell whether a response after so many seconds came because the wait was over; not if that was tiny.

        >>> BlockingQuery(7, 60.0).over(61.0), BlockingQuery(7, 60.0).over(1.0), BlockingQuery(7, 0.01).over(0.02)
        (True, False, False)
        """
        return bool(self.index) and seconds >= max(self.wait, SHARED_WAIT)

    def parameters(self) -> dict[str, str]:
        """Return the query parameters.

        >>> BlockingQuery(7, 60.0).parameters(), BlockingQuery().parameters()
        ({'index': '7', 'wait': '60000ms'}, {})
        """
        return {"index": str(self.index), "wait": f"{round(self.wait * 1000)}ms"} if self.index else {}


@dataclass(frozen=True, slots=True)
class Cursor:
    """The index that the responses have reached, and since when queries fail.

    >>> Cursor().answered(40).query(60.0)
    BlockingQuery(index=40, wait=60.0)
    >>> Cursor(40).answered(12).query(60.0), Cursor(40).answered(0).query(60.0).index
    (BlockingQuery(index=0, wait=0.0), 1)
    >>> Cursor(40).failed(now=0.0, forget=False).query(60.0)
    BlockingQuery(index=40, wait=0.1)
    """

    index: int = 0
    failing_since: float | None = None
    """The time of the first failure in a row."""

    def query(self, wait: float) -> BlockingQuery:
        """Return the next query; `wait` is that of a query without failures before it."""
        if not self.index:
            return BlockingQuery()
        return BlockingQuery(self.index, wait if self.failing_since is None else min(wait, SHORT_WAIT))

    def answered(self, index: int) -> Cursor:
        """Return the cursor after a response; `index` is 0 if it has none."""
        if index < 1:
            return Cursor(1)
        return Cursor(index if index >= self.index else 0)

    def failed(self, now: float, *, forget: bool) -> Cursor:
        """Return the cursor after a failure; `forget` if the index may have lost its meaning."""
        since = now if self.failing_since is None else self.failing_since
        lost = forget or now - since >= LONG_OUTAGE
        return Cursor(0 if lost else self.index, since)


@dataclass(frozen=True, slots=True)
class QueryTiming:
    """The rate limits of queries; by default, those for flags.

    Responses without a change come from changes of neighbouring keys, and may wait. Changes are what the watch is for:
    somebody who turns a flag on, off and on again must see it each time.
    """

    idle: Limiter = field(default_factory=lambda: Burst(2, 15.0))
    changes: Limiter = field(default_factory=lambda: Burst(10, 5.0))
    backoff: Backoff = BACKOFF
    """For an agent that is away or in trouble; refusals always have the default."""

    @classmethod
    def prompt(cls) -> QueryTiming:
        """Return the limits for data that traffic depends on: the newest state half a second late at most.

        After an outage, the pause of at most a second and the probes of the hub are over within two seconds.
        """
        return cls(Burst(10, 0.5), Burst(10, 0.25), Backoff(first=0.25, most=1.0, reconnects=60.0))

    def pause(self, now: float, *, changed: bool) -> float:
        """Return how long to wait before the next query. Call again after the wait; 0: go on."""
        return max(0.0, (self.changes if changed else self.idle)(now))


@dataclass(frozen=True, slots=True)
class ConsulDeps:
    """What tests replace: clock, random numbers, the environment and connections."""

    clock: Clock = LoopClock()
    random: Callable[[], float] = random
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Holds HTTP_PROXY, HTTPS_PROXY and NO_PROXY."""
    connect: Callable[[ConsulAccess, Mapping[str, str]], HttpFetcher] = connect
    hub: ConsulHub | None = None
    """Shares connections with other watches; None: this watch has its own."""


@dataclass(frozen=True, slots=True)
class FollowedQuery(Generic[V]):
    """What to follow: a path, its query parameters, and how to decode a response."""

    name: object
    """Its name in errors."""
    path: str
    query: Mapping[str, str]
    most: int
    """The largest response, in bytes."""
    decode: Callable[[ClientResponse, BlockingQuery], ReadResult[V]]
    """An empty result is asked for again at once, without an index."""
    timing: Callable[[], QueryTiming] = QueryTiming


async def follow(
    access: ConsulAccess, topic: FollowedQuery[V], deps: ConsulDeps
) -> AsyncIterator[V | Unavailable | Unchanged]:
    """Yield the value when it changes, `UNCHANGED` when it has not, or `Unavailable`."""
    cursor, last, timing, clock = Cursor(), None, topic.timing(), deps.clock
    retry, refused = Retry(timing.backoff, deps.random), Retry(BACKOFF, deps.random)
    hub = deps.hub or ConsulHub()
    with hub.join(access, lambda: deps.connect(access, deps.environment), clock) as agent:
        while True:
            asked = clock.now()
            try:
                query, index, result = await _ask(agent, access, topic, cursor.query(access.wait))
            except TimeoutError:  # preempted by other watches: queue again
                continue
            except WigwagError as error:
                yield Unavailable.of(error)
                forget = isinstance(error, ConsulRefusedError) and error.forget
                cursor = cursor.failed(clock.now(), forget=forget)
                await sleep_until(clock, (refused if forget else retry).next(clock.now()))
                continue
            retry.succeeded()
            refused.succeeded()
            for item in result.items(last):
                yield item
            changed = result.value is not None and result.value != last
            last = result.value if changed else last
            cursor = cursor.answered(index)
            if not changed and query.over(clock.now() - asked):
                continue  # it was slow enough; above all when watches take turns
            while pause := timing.pause(clock.now(), changed=changed):
                await sleep_until(clock, clock.now() + pause)


async def _ask(
    agent: SharedAgent, access: ConsulAccess, topic: FollowedQuery[V], query: BlockingQuery
) -> tuple[BlockingQuery, int, ReadResult[V]]:
    """Return the query as it was made, the index of the response, and what it holds."""
    async with agent.slot(query.wait) as slot:
        query = replace(query, wait=slot.wait)
        response = await _fetch(slot.client, access, topic, query)
        result = topic.decode(response, query)
        if result == ReadResult():
            response = await _fetch(slot.client, access, topic, BlockingQuery())
            result = topic.decode(response, BlockingQuery())
    return query, index_of(response), result


async def _fetch(
    client: HttpFetcher, access: ConsulAccess, topic: FollowedQuery[V], query: BlockingQuery
) -> ClientResponse:
    url = access.url(topic.path, {**topic.query, **query.parameters()})
    limits = ResponseLimits(head=query.timeout, total=query.timeout + _TRANSFER, body_bytes=topic.most)
    response = await client.fetch(ClientRequest(url, fields=access.fields()), limits=limits)
    access.check(response, topic.name)
    return response
