"""Following objects: does what a `Reflector` says, and yields what it makes of that, for ever.

Whatever the server does is trouble of the moment, never the end; only who no longer wants it ends a watch. So it
retries by itself, because it alone knows from which version to go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from wigwag.errors import WigwagError
from wigwag.kube.decode import Lines, MalformedError, read_page
from wigwag.kube.errors import Status
from wigwag.kube.faults import fault_of, refusal
from wigwag.kube.pace import Pace
from wigwag.kube.reflector import Reflector
from wigwag.kube.requests import JSON, STREAM, Request
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.watch import closing
from wigwag.wire.client.http1 import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wigwag.kube.asks import Ask
    from wigwag.kube.decode import Decode, Event
    from wigwag.kube.reflector import Heard, Item
    from wigwag.kube.requests import Requests
    from wigwag.kube.watchspec import KubeWatch

T = TypeVar("T")
LARGEST_PAGE, LARGEST_LIST = 64 << 20, 512 << 20
_PARTIAL = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1," + JSON


async def watch_kube(
    kube: Requests,
    spec: KubeWatch,
    decode: Decode[T],
    pace: Pace = Pace(),  # noqa: B008 - a frozen value
) -> AsyncIterator[Item[T]]:
    """Yield all objects when one changes, that none has, or why that cannot be told at present."""
    clock = kube.means.clock
    reflector = Reflector[T](kube.abilities, pace, kube.means.random)
    follower = Follower(kube, spec, decode, reflector)
    while True:
        ask = reflector.next(clock.now())
        await sleep_until(clock, ask.when)
        async with closing(follower.perform(ask)) as items:
            async for item in items:
                yield item


class Follower(Generic[T]):
    """Makes the requests of one watch."""

    def __init__(self, kube: Requests, spec: KubeWatch, decode: Decode[T], reflector: Reflector[T]) -> None:
        self._kube, self._spec, self._decode, self._reflector = kube, spec, decode, reflector
        self._now = kube.means.clock.now

    async def perform(self, ask: Ask) -> AsyncIterator[Item[T]]:
        """Make a request, and yield what comes of it."""
        try:
            async with closing(self._list(ask) if ask.how == "list" else self._watch(ask)) as items:
                async for item in items:
                    yield item
        except (WigwagError, MalformedError) as error:
            for item in self._reflector.failed(fault_of(error, self._spec, ask.verb), self._now()):
                yield item

    async def _list(self, ask: Ask) -> AsyncIterator[Item[T]]:
        limits = Limits(total=120.0, body_bytes=LARGEST_PAGE if ask.limit else LARGEST_LIST)
        reply = await self._kube.fetch(self._request(ask), limits)
        for item in self._reflector.listed(read_page(reply.body, self._decode), self._now()):
            yield item

    async def _watch(self, ask: Ask) -> AsyncIterator[Item[T]]:
        reflector, lines = self._reflector, Lines(self._decode)
        async with self._kube.stream(self._request(ask), STREAM) as incoming:
            reflector.opened(self._now())
            async with closing(incoming.pieces(lambda: reflector.wake)) as pieces:
                async for piece in pieces:
                    for item in self._heard(lines, piece, ask) if piece else reflector.waited(self._now()):
                        yield item
                    if not reflector.open:
                        return
        if lines.broken:
            raise MalformedError("the watch ended in the middle of an event")
        for item in reflector.ended(self._now()):
            yield item

    def _heard(self, lines: Lines[T], piece: bytes, ask: Ask) -> list[Item[T]]:
        events, problem = lines.feed(piece)
        items = self._reflector.heard([self._judged(event, ask) for event in events], self._now())
        if problem is not None and self._reflector.open:
            items += self._reflector.failed(fault_of(problem, self._spec, ask.verb), self._now())
        return items

    def _judged(self, event: Event[T], ask: Ask) -> Heard[T]:
        return refusal(event, self._spec, ask.verb) if isinstance(event, Status) else event

    def _request(self, ask: Ask) -> Request:
        accept = _PARTIAL.format("List" if ask.how == "list" else "") if self._spec.metadata_only else JSON
        return Request(self._spec.path, (*self._spec.selectors(), *ask.query()), accept=accept)
