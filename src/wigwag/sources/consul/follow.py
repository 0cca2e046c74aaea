"""Follow one thing in Consul: ask, wait for a change, ask again; whatever happens, go on.

    Cursor ─▶ question ─▶ ask ─▶ answer ─▶ decode ─▶ news? the value : UNCHANGED ─▶ pace ─┐
      ▲                     └──▶ failure ─▶ Trouble ─▶ back-off ──────────────────────────┤
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
from wigwag.pipeline.spec import UNCHANGED, Trouble, Unchanged
from wigwag.sources.consul.access import RefusedError, index_of
from wigwag.sources.consul.query import Cursor, Pace, Question
from wigwag.wire.client.client import Client, Reply
from wigwag.wire.client.http1 import Call, Limits
from wigwag.wire.client.proxies import Proxies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from wigwag.sources.consul.access import Access

V = TypeVar("V")
BACKOFF = Backoff(first=0.5)
_TRANSFER = 120.0
"""Seconds for the body of an answer, and for connecting."""


class Asks(Protocol):
    """What requests are made with."""

    async def fetch(self, call: Call, *, limits: Limits | None = None) -> Reply:
        """Return the whole answer, or raise a `WigwagError`."""
        ...

    def close(self) -> None:
        """Let go of what is kept."""
        ...


def connect(access: Access, environment: Mapping[str, str]) -> Asks:
    """Make a client of a Consul agent."""
    return Client(trust=access.trust, proxies=Proxies.of(environment), path=access.socket)


@dataclass(frozen=True, slots=True)
class Means:
    """Where time, chance and connections come from."""

    clock: Clock = LoopClock()
    random: Callable[[], float] = random
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Where HTTP_PROXY, HTTPS_PROXY and NO_PROXY are."""
    connect: Callable[[Access, Mapping[str, str]], Asks] = connect
    pace: Callable[[], Pace] = Pace


@dataclass(frozen=True, slots=True)
class Found(Generic[V]):
    """What an answer comes to: a value, what is wrong, or both. With neither, it is asked again from the beginning."""

    value: V | None = None
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Topic(Generic[V]):
    """What is followed."""

    name: object
    """What errors call it."""
    path: str
    query: Mapping[str, str]
    most: int
    """The largest answer that is read, in bytes."""
    decode: Callable[[Reply, Question], Found[V]]


async def follow(access: Access, topic: Topic[V], means: Means) -> AsyncIterator[V | Trouble | Unchanged]:
    """Yield the value when it changes, that it has not, or why that cannot be told at present."""
    cursor, last, pace, retry = Cursor(), None, means.pace(), Retry(BACKOFF, means.random)
    client = means.connect(access, means.environment)
    try:
        while True:
            question = cursor.question(access.wait)
            try:
                reply = await _ask(client, access, topic, question)
                found = topic.decode(reply, question)
            except WigwagError as error:
                yield Trouble.of(error)
                forget = isinstance(error, RefusedError) and error.forget
                cursor = cursor.failed(means.clock.now(), forget=forget)
                await sleep_until(means.clock, retry.next(means.clock.now()))
                continue
            retry.succeeded()
            news = found.value is not None and found.value != last
            for item in _told(found, news=news):
                yield item
            last = found.value if news else last
            cursor = cursor.answered(index_of(reply)) if found != Found() else Cursor()
            await _permission(pace, means.clock, news=news)
    finally:
        client.close()


def _told(found: Found[V], *, news: bool) -> list[V | Trouble | Unchanged]:
    """Return what an answer is to be reported as. Where something is wrong, what is right counts all the same."""
    told: list[V | Trouble | Unchanged] = []
    if news and found.value is not None:
        told.append(found.value)
    if found.trouble is not None:
        told.append(found.trouble)
    elif found.value is not None and not news:
        told.append(UNCHANGED)
    return told


async def _ask(client: Asks, access: Access, topic: Topic[V], question: Question) -> Reply:
    url = access.url(topic.path, {**topic.query, **question.parameters()})
    patience = question.patience
    limits = Limits(head=patience, total=patience + _TRANSFER, body_bytes=topic.most)
    reply = await client.fetch(Call(url, fields=access.fields()), limits=limits)
    access.judge(reply, topic.name)
    return reply


async def _permission(pace: Pace, clock: Clock, *, news: bool) -> None:
    while pause := pace.pause(clock.now(), news=news):
        await sleep_until(clock, clock.now() + pause)
