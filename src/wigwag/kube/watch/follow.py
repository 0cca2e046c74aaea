"""Follow objects: send the requests of a `Reflector`, and yield its items, for ever.

No failure of the server ends a watch; only its reader does. It retries by itself, because it alone knows from which
version to go on.

While a watch is open, requests beside it compare the store with the server, one at a time and on another connection.
Such a request is a task of its own, so that events never wait for it; it ends with the watch.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Generic, TypeVar

from wigwag.errors import WigwagError
from wigwag.kube.client import JSON, PARTIAL, STREAM, ApiRequest
from wigwag.kube.errors import ApiError, ApiStatus
from wigwag.kube.watch.decode import Lines, ListPage, MalformedObjectError, metadata_only, read_object, read_page
from wigwag.kube.watch.listwatch import FORBIDDEN, MISSING, WatchTiming, fault_of, refusal
from wigwag.kube.watch.reflector import Reflector
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.watch import closing
from wigwag.wire.h1.client import ResponseLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from wigwag.kube.client import Kube
    from wigwag.kube.watch.decode import Decode
    from wigwag.kube.watch.listwatch import ReflectorRequest, WatchFault
    from wigwag.kube.watch.reflector import Item
    from wigwag.kube.watch.spec import KubeWatch

T = TypeVar("T")
log = logging.getLogger(__name__)
LARGEST_PAGE, LARGEST_LIST = 64 << 20, 512 << 20


async def watch_kube(
    kube: Kube,
    spec: KubeWatch,
    decode: Decode[T],
    timing: WatchTiming = WatchTiming(),  # noqa: B008 - a frozen value
) -> AsyncIterator[Item[T]]:
    """Yield all objects when one changes, `UNCHANGED` when they are confirmed, `Unavailable` when they cannot be."""
    clock = kube.deps.clock
    reflector = Reflector[T](kube.capabilities, timing, kube.deps.random, str(spec))
    follower = WatchFollower(kube, spec, decode, reflector, timing)
    while True:
        request = reflector.next(clock.now())
        await sleep_until(clock, request.when)
        async with closing(follower.perform(request)) as items:
            async for item in items:
                yield item


class WatchFollower(Generic[T]):
    """Sends the requests of one watch."""

    def __init__(
        self, kube: Kube, spec: KubeWatch, decode: Decode[T], reflector: Reflector[T], timing: WatchTiming
    ) -> None:
        self._kube, self._spec, self._decode, self._reflector, self._timing = kube, spec, decode, reflector, timing
        self._now = kube.deps.clock.now
        self._may_get = bool(spec.name)
        """Whether a probe may be a GET of the one watched object."""

    async def perform(self, request: ReflectorRequest) -> AsyncIterator[Item[T]]:
        """Send a request, and yield the items that result."""
        log.debug("%s: %s from version %s", self._spec, request.how, request.version or "newest")
        try:
            async with closing(self._list(request) if request.how == "list" else self._watch(request)) as items:
                async for item in items:
                    yield item
        except (WigwagError, MalformedObjectError) as error:
            for item in self._reflector.failed(fault_of(error, self._spec, request.verb), self._now()):
                yield item

    async def _list(self, request: ReflectorRequest) -> AsyncIterator[Item[T]]:
        limits = ResponseLimits(total=120.0, body_bytes=LARGEST_PAGE if request.limit else LARGEST_LIST)
        response = await self._kube.fetch(self._api_request(request), limits)
        for item in self._reflector.listed(read_page(response.body, self._decode), self._now()):
            yield item

    async def _watch(self, request: ReflectorRequest) -> AsyncIterator[Item[T]]:
        reflector, lines = self._reflector, Lines(self._decode)
        async with self._kube.stream(self._api_request(request), STREAM) as incoming:
            reflector.opened(self._now())
            async with (
                aclosing(SideRequest(incoming.wake)) as check,
                closing(incoming.pieces(lambda: reflector.wake)) as pieces,
            ):
                async for piece in pieces:
                    for item in self._received(lines, piece, request) if piece else self._waited(check):
                        yield item
                    if not reflector.open:
                        return
        if lines.broken:
            raise MalformedObjectError("the watch ended in the middle of an event")
        for item in reflector.ended(self._now()):
            yield item

    def _waited(self, check: SideRequest) -> list[Item[T]]:
        """Do what is due while the watch is silent."""
        reflector, now = self._reflector, self._now()
        items: list[Item[T]] = []
        result = check.result()
        if isinstance(result, ListPage):
            items = reflector.checked(result, now)
        elif result is not None:
            items = reflector.check_failed(result, now)
        items += reflector.waited(now)
        if (request := reflector.check(now)) is not None:
            check.start(self._compare(request))
        return items

    async def _compare(self, request: ReflectorRequest) -> ListPage[None] | WatchFault:
        """Fetch metadata: of the one watched object, or of a page of objects."""
        spec, patience = self._spec, self._timing.answer
        limits = ResponseLimits(patience, patience, patience, 2.0 * patience, body_bytes=LARGEST_PAGE)
        single = request.how == "probe" and self._may_get
        accept = PARTIAL.format("" if single else "List")
        path = spec.kind.path(spec.namespace, spec.name) if single else spec.path
        query = () if single else (*spec.selectors(), *request.query())
        try:
            body = (await self._kube.fetch(ApiRequest(path, query, accept=accept), limits)).body
            return ListPage("", "", (read_object(body, metadata_only),)) if single else read_page(body, metadata_only)
        except (WigwagError, MalformedObjectError) as error:
            fault = fault_of(error, spec, "get" if single else "list")
            if single and fault.code == FORBIDDEN:
                self._may_get = False
                return await self._compare(request)
            if single and isinstance(error, ApiError) and fault.code == MISSING and error.status.about.name:
                return ListPage("", "", ())
            return fault

    def _received(self, lines: Lines[T], piece: bytes, request: ReflectorRequest) -> list[Item[T]]:
        spec, verb = self._spec, request.verb
        events, problem = lines.feed(piece)
        received = [refusal(event, spec, verb) if isinstance(event, ApiStatus) else event for event in events]
        items = self._reflector.received(received, self._now())
        if problem is not None and self._reflector.open:
            items += self._reflector.failed(fault_of(problem, spec, verb), self._now())
        return items

    def _api_request(self, request: ReflectorRequest) -> ApiRequest:
        accept = PARTIAL.format("List" if request.how == "list" else "") if self._spec.metadata_only else JSON
        return ApiRequest(self._spec.path, (*self._spec.selectors(), *request.query()), accept=accept)


class SideRequest:
    """A request beside a watch: at most one at a time. No task group: closing a generator inside one raises a group."""

    def __init__(self, done: Callable[[], None]) -> None:
        """`done` is called when the result is there."""
        self._done = done
        self._task: asyncio.Task[ListPage[None] | WatchFault] | None = None

    def start(self, request: Coroutine[object, object, ListPage[None] | WatchFault]) -> None:
        """Start the request."""
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(request)
        self._task.add_done_callback(lambda _: self._done())

    def result(self) -> ListPage[None] | WatchFault | None:
        """Return the result, once; None if there is none yet."""
        if self._task is None or not self._task.done():
            return None
        task, self._task = self._task, None
        return task.result()

    async def aclose(self) -> None:
        """Cancel it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
