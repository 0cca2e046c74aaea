"""Follow one thing in Consul: ask, wait for a change, ask again; whatever happens, go on.

    Cursor ─▶ question ─▶ ask ─▶ answer ─▶ decode ─▶ news? the value : UNCHANGED ─▶ pace ─┐
      ▲                     └──▶ failure ─▶ Unavailable ─▶ back-off ──────────────────────────┤
      └───────────────────────────────────────────────────────────────────────────────────┘

Every question that is answered says at least that what came before still holds. One that is not says nothing: what came
before stays, and its age grows. It retries by itself, because it alone remembers how far the answers have come.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from random import random
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from wigwag.errors import WigwagError
from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import Clock, LoopClock, sleep_until
from wigwag.pipeline.spec import UNCHANGED, Unavailable, Unchanged
from wigwag.sources.consul.access import ConsulRefusedError, index_of
from wigwag.sources.consul.query import BlockingQuery, Cursor, QueryTiming
from wigwag.wire.client.client import Client, ClientResponse
from wigwag.wire.client.proxies import Proxies
from wigwag.wire.h1.client import ClientRequest, ResponseLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from wigwag.sources.consul.access import ConsulAccess

V = TypeVar("V")
BACKOFF = Backoff(first=0.5)
_TRANSFER = 120.0
"""Seconds for the body of an answer, and for connecting."""


class HttpFetcher(Protocol):
    """What requests are made with."""

    async def fetch(self, call: ClientRequest, *, limits: ResponseLimits | None = None) -> ClientResponse:
        """Return the whole answer, or raise a `WigwagError`."""
        ...

    def close(self) -> None:
        """Let go of what is kept."""
        ...


def connect(access: ConsulAccess, environment: Mapping[str, str]) -> HttpFetcher:
    """Make a client of a Consul agent."""
    return Client(trust=access.trust, proxies=Proxies.of(environment), path=access.socket)


@dataclass(frozen=True, slots=True)
class ConsulDeps:
    """Where time, chance and connections come from."""

    clock: Clock = LoopClock()
    random: Callable[[], float] = random
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Where HTTP_PROXY, HTTPS_PROXY and NO_PROXY are."""
    connect: Callable[[ConsulAccess, Mapping[str, str]], HttpFetcher] = connect
    timing: Callable[[], QueryTiming] = QueryTiming


@dataclass(frozen=True, slots=True)
class ConsulResult(Generic[V]):
    """What an answer comes to: a value, what is wrong, or both. With neither, it is asked again from the beginning."""

    value: V | None = None
    trouble: Unavailable | None = None


@dataclass(frozen=True, slots=True)
class FollowedQuery(Generic[V]):
    """What is followed."""

    name: object
    """What errors call it."""
    path: str
    query: Mapping[str, str]
    most: int
    """The largest answer that is read, in bytes."""
    decode: Callable[[ClientResponse, BlockingQuery], ConsulResult[V]]


async def follow(
    access: ConsulAccess, topic: FollowedQuery[V], deps: ConsulDeps
) -> AsyncIterator[V | Unavailable | Unchanged]:
    """Yield the value when it changes, that it has not, or why that cannot be told at present."""
    cursor, last, timing, retry = Cursor(), None, deps.timing(), Retry(BACKOFF, deps.random)
    client = deps.connect(access, deps.environment)
    try:
        while True:
            question = cursor.question(access.wait)
            try:
                reply = await _ask(client, access, topic, question)
                found = topic.decode(reply, question)
            except WigwagError as error:
                yield Unavailable.of(error)
                forget = isinstance(error, ConsulRefusedError) and error.forget
                cursor = cursor.failed(deps.clock.now(), forget=forget)
                await sleep_until(deps.clock, retry.next(deps.clock.now()))
                continue
            retry.succeeded()
            news = found.value is not None and found.value != last
            for item in _told(found, news=news):
                yield item
            last = found.value if news else last
            cursor = cursor.answered(index_of(reply)) if found != ConsulResult() else Cursor()
            await _permission(timing, deps.clock, news=news)
    finally:
        client.close()


def _told(found: ConsulResult[V], *, news: bool) -> list[V | Unavailable | Unchanged]:
    """Return what an answer is to be reported as. Where something is wrong, what is right counts all the same."""
    told: list[V | Unavailable | Unchanged] = []
    if news and found.value is not None:
        told.append(found.value)
    if found.trouble is not None:
        told.append(found.trouble)
    elif found.value is not None and not news:
        told.append(UNCHANGED)
    return told


async def _ask(
    client: HttpFetcher, access: ConsulAccess, topic: FollowedQuery[V], question: BlockingQuery
) -> ClientResponse:
    url = access.url(topic.path, {**topic.query, **question.parameters()})
    patience = question.patience
    limits = ResponseLimits(head=patience, total=patience + _TRANSFER, body_bytes=topic.most)
    reply = await client.fetch(ClientRequest(url, fields=access.fields()), limits=limits)
    access.judge(reply, topic.name)
    return reply


async def _permission(timing: QueryTiming, clock: Clock, *, news: bool) -> None:
    while pause := timing.pause(clock.now(), news=news):
        await sleep_until(clock, clock.now() + pause)
