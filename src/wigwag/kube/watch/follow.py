"""Following objects: does what a `Reflector` says, and yields what it makes of that, for ever.

Whatever the server does is trouble of the moment, never the end; only who no longer wants it ends a watch. So it
retries by itself, because it alone knows from which version to go on.

While a watch is open, what is known is compared with the server by requests beside it, one at a time and on another
connection. Such a request is a task of its own, so that events never wait for it; it ends with the watch.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from wigwag.errors import WigwagError
from wigwag.kube.errors import ApiError, ApiStatus
from wigwag.kube.requests import JSON, STREAM, ApiRequest
from wigwag.kube.watch.decode import Lines, ListPage, MalformedObjectError, metadata_only, read_object, read_page
from wigwag.kube.watch.faults import FORBIDDEN, MISSING, fault_of, refusal
from wigwag.kube.watch.reflector import Reflector
from wigwag.kube.watch.timing import WatchTiming
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.watch import closing
from wigwag.wire.h1.client import ResponseLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from wigwag.kube.requests import Requests
    from wigwag.kube.watch.asks import ReflectorRequest
    from wigwag.kube.watch.decode import Decode, Event
    from wigwag.kube.watch.faults import WatchFault
    from wigwag.kube.watch.reflector import Heard, Item
    from wigwag.kube.watch.spec import KubeWatch

T = TypeVar("T")
log = logging.getLogger(__name__)
LARGEST_PAGE, LARGEST_LIST = 64 << 20, 512 << 20
_PARTIAL = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1," + JSON


async def watch_kube(
    kube: Requests,
    spec: KubeWatch,
    decode: Decode[T],
    timing: WatchTiming = WatchTiming(),  # noqa: B008 - a frozen value
) -> AsyncIterator[Item[T]]:
    """Yield all objects when one changes, that none has, or why that cannot be told at present."""
    clock = kube.deps.clock
    reflector = Reflector[T](kube.abilities, timing, kube.deps.random, str(spec))
    follower = WatchFollower(kube, spec, decode, reflector, timing)
    while True:
        ask = reflector.next(clock.now())
        await sleep_until(clock, ask.when)
        async with closing(follower.perform(ask)) as items:
            async for item in items:
                yield item


class WatchFollower(Generic[T]):
    """Makes the requests of one watch."""

    def __init__(
        self, kube: Requests, spec: KubeWatch, decode: Decode[T], reflector: Reflector[T], timing: WatchTiming
    ) -> None:
        self._kube, self._spec, self._decode, self._reflector, self._timing = kube, spec, decode, reflector, timing
        self._now = kube.deps.clock.now
        self._may_get = bool(spec.name)
        """Whether the one object that is watched can be asked for by its name."""

    async def perform(self, ask: ReflectorRequest) -> AsyncIterator[Item[T]]:
        """Make a request, and yield what comes of it."""
        log.debug("%s: %s from %s", self._spec, ask.how, f"version {ask.version}" if ask.version else "the newest")
        try:
            async with closing(self._list(ask) if ask.how == "list" else self._watch(ask)) as items:
                async for item in items:
                    yield item
        except (WigwagError, MalformedObjectError) as error:
            for item in self._reflector.failed(fault_of(error, self._spec, ask.verb), self._now()):
                yield item

    async def _list(self, ask: ReflectorRequest) -> AsyncIterator[Item[T]]:
        limits = ResponseLimits(total=120.0, body_bytes=LARGEST_PAGE if ask.limit else LARGEST_LIST)
        reply = await self._kube.fetch(self._request(ask), limits)
        for item in self._reflector.listed(read_page(reply.body, self._decode), self._now()):
            yield item

    async def _watch(self, ask: ReflectorRequest) -> AsyncIterator[Item[T]]:
        reflector, lines = self._reflector, Lines(self._decode)
        async with self._kube.stream(self._request(ask), STREAM) as incoming:
            reflector.opened(self._now())
            async with beside(incoming.wake) as check, closing(incoming.pieces(lambda: reflector.wake)) as pieces:
                async for piece in pieces:
                    for item in self._heard(lines, piece, ask) if piece else self._waited(check):
                        yield item
                    if not reflector.open:
                        return
        if lines.broken:
            raise MalformedObjectError("the watch ended in the middle of an event")
        for item in reflector.ended(self._now()):
            yield item

    def _waited(self, check: SideRequest) -> list[Item[T]]:
        """Do what is due though nothing has come on the watch."""
        reflector, now = self._reflector, self._now()
        answer = check.answer()
        items = [] if answer is None else self._checked(answer, now)
        items += reflector.waited(now)
        if (ask := reflector.check(now)) is not None:
            check.ask(self._compare(ask))
        return items

    def _checked(self, answer: ListPage[None] | WatchFault, now: float) -> list[Item[T]]:
        if isinstance(answer, ListPage):
            return self._reflector.checked(answer, now)
        return self._reflector.check_failed(answer, now)

    async def _compare(self, ask: ReflectorRequest) -> ListPage[None] | WatchFault:
        """Ask for metadata: of the one object that is watched, or of a page of them."""
        spec, patience = self._spec, self._timing.answer
        limits = ResponseLimits(patience, patience, patience, 2.0 * patience, body_bytes=LARGEST_PAGE)
        single = ask.how == "probe" and self._may_get
        accept = _PARTIAL.format("" if single else "List")
        path = spec.kind.path(spec.namespace, spec.name) if single else spec.path
        query = () if single else (*spec.selectors(), *ask.query())
        try:
            body = (await self._kube.fetch(ApiRequest(path, query, accept=accept), limits)).body
            return ListPage("", "", (read_object(body, metadata_only),)) if single else read_page(body, metadata_only)
        except (WigwagError, MalformedObjectError) as error:
            fault = fault_of(error, spec, "get" if single else "list")
            if single and fault.code == FORBIDDEN:
                self._may_get = False
                return await self._compare(ask)
            if single and isinstance(error, ApiError) and fault.code == MISSING and error.status.about.name:
                return ListPage("", "", ())
            return fault

    def _heard(self, lines: Lines[T], piece: bytes, ask: ReflectorRequest) -> list[Item[T]]:
        events, problem = lines.feed(piece)
        items = self._reflector.heard([self._judged(event, ask) for event in events], self._now())
        if problem is not None and self._reflector.open:
            items += self._reflector.failed(fault_of(problem, self._spec, ask.verb), self._now())
        return items

    def _judged(self, event: Event[T], ask: ReflectorRequest) -> Heard[T]:
        return refusal(event, self._spec, ask.verb) if isinstance(event, ApiStatus) else event

    def _request(self, ask: ReflectorRequest) -> ApiRequest:
        accept = _PARTIAL.format("List" if ask.how == "list" else "") if self._spec.metadata_only else JSON
        return ApiRequest(self._spec.path, (*self._spec.selectors(), *ask.query()), accept=accept)


class SideRequest:
    """A request beside a watch: at most one at a time."""

    def __init__(self, done: Callable[[], None]) -> None:
        """`done` is called when an answer is there."""
        self._done = done
        self._task: asyncio.Task[ListPage[None] | WatchFault] | None = None

    def ask(self, request: Coroutine[object, object, ListPage[None] | WatchFault]) -> None:
        """Begin a request."""
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(request)
        self._task.add_done_callback(lambda _: self._done())

    def answer(self) -> ListPage[None] | WatchFault | None:
        """Return the answer, once; None if there is none."""
        if self._task is None or not self._task.done():
            return None
        task, self._task = self._task, None
        return task.result()

    async def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


@asynccontextmanager
async def beside(done: Callable[[], None]) -> AsyncIterator[SideRequest]:
    """A `SideRequest` that ends with the block. No task group: closing a generator inside one raises a group."""
    check = SideRequest(done)
    try:
        yield check
    finally:
        await check.close()
