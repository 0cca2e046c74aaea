"""The shared watches of one API server: one client for a process, and one watch per spec.

    watch_kube ──▶ Broadcast[WatchLevel] ──▶ each subscriber, at its own speed

A hub costs nothing until somebody watches. The first subscriber of a spec opens its watch, and the last one closes it.
A new subscriber gets the current objects at once. A slow one may skip values; a `WatchLevel` therefore holds the value,
its edition and the state of the watch together, so that everybody ends with the newest value. Watches are children of
`run`; who subscribes earlier waits for it. For a single watch without a hub there is `alone`.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from wigwag.pipeline.broadcast import Broadcast
from wigwag.pipeline.spec import UNCHANGED, Unavailable, Unchanged
from wigwag.pipeline.watch import closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from wigwag.kube.client import Kube
    from wigwag.kube.discovery import Discovery
    from wigwag.kube.watch.decode import Decode
    from wigwag.kube.watch.objects import Objects
    from wigwag.kube.watch.reflector import Item
    from wigwag.kube.watch.spec import KubeWatch

T = TypeVar("T")


class Follow(Protocol):
    """Opens a watch: `Hub.watch` or `alone`."""

    def __call__(self, spec: KubeWatch, decode: Decode[T], /) -> AsyncIterator[Item[T]]:
        """Yield all objects when one changes, `UNCHANGED`, or `Unavailable`."""
        ...


def connect(environment: Mapping[str, str] = os.environ) -> Kube:
    """Make a client of the API server that KUBECONFIG or the pod names; `UsageError` if there is none."""
    from wigwag.kube.client import Kube
    from wigwag.kube.config.cluster import find_cluster

    return Kube(find_cluster(environment))


def open_watch(kube: Kube, spec: KubeWatch, decode: Decode[T]) -> AsyncIterator[Item[T]]:
    """Open a watch that is not shared."""
    from wigwag.kube.watch.follow import watch_kube  # not needed by a process that watches nothing

    return watch_kube(kube, spec, decode)


def open_watch_promptly(kube: Kube, spec: KubeWatch, decode: Decode[T]) -> AsyncIterator[Item[T]]:
    """Open a watch of objects that traffic depends on (see `WatchTiming.prompt`)."""
    from wigwag.kube.watch.follow import watch_kube  # not needed by a process that watches nothing
    from wigwag.kube.watch.listwatch import WatchTiming

    return watch_kube(kube, spec, decode, WatchTiming.prompt())


async def alone(spec: KubeWatch, decode: Decode[T]) -> AsyncIterator[Item[T]]:
    """Watch with a client of its own."""
    kube = connect()
    try:
        async with closing(open_watch(kube, spec, decode)) as items:
            async for item in items:
                yield item
    finally:
        kube.close()


@dataclass(frozen=True, slots=True)
class WatchLevel(Generic[T]):
    """The current state of a watch."""

    value: Objects[T] | None = None
    edition: int = 0
    """How many values there have been."""
    trouble: Unavailable | None = None
    error: BaseException | None = None
    """Why the watch has ended, if it has."""

    def after(self, item: Item[T]) -> WatchLevel[T]:
        """Return the state after one more item."""
        if isinstance(item, Unavailable):
            return replace(self, trouble=item)
        if isinstance(item, Unchanged):
            return replace(self, trouble=None)
        return WatchLevel(item, self.edition + 1)


@dataclass(slots=True)
class _Shared(Generic[T]):
    task: asyncio.Task[None]
    levels: Broadcast[WatchLevel[T]]
    subscribers: int = 0


class Hub:
    """The client and the watches of one API server, for a whole process."""

    def __init__(
        self,
        connect: Callable[[], Kube] = connect,
        open_watch: Callable[[Kube, KubeWatch, Decode[Any]], AsyncIterator[Item[Any]]] = open_watch,
    ) -> None:
        self._connect, self._open_watch = connect, open_watch
        self._kube: Kube | None = None
        self._discovery: Discovery | None = None
        self._group: asyncio.TaskGroup | None = None
        self._running = asyncio.Event()
        self._shared: dict[tuple[KubeWatch, Decode[Any]], _Shared[Any]] = {}

    async def run(self) -> None:
        """Run the watches, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._running.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self._running.clear()  # while the watches end, who subscribes waits
        finally:
            self._shared.clear()
            if self._kube is not None:
                self._kube.close()

    @property
    def kube(self) -> Kube:
        """The client, made when it is first needed; `UsageError` if no Kubernetes is configured."""
        if self._kube is None:
            self._kube = self._connect()
        return self._kube

    @property
    def discovery(self) -> Discovery:
        """The kinds of the API server."""
        from wigwag.kube.discovery import Discovery  # not needed by a process whose kinds are all constants

        if self._discovery is None:
            self._discovery = Discovery(self.kube)
        return self._discovery

    async def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Start a task beside the watches. It must not fail, and its owner cancels it."""
        await self._running.wait()
        assert self._group is not None
        return self._group.create_task(work)

    async def watch(self, spec: KubeWatch, decode: Decode[T], /) -> AsyncIterator[Item[T]]:
        """Subscribe. Equal specs with the same `decode` share one watch."""
        await self._running.wait()
        key = spec, decode
        shared = self._join(key)
        edition = 0
        try:
            async for level in shared.levels:
                if level.error is not None:
                    raise level.error
                changed = level.edition != edition
                if changed and level.value is not None:
                    edition = level.edition
                    yield level.value
                if level.trouble is not None:
                    yield level.trouble
                elif not changed:
                    yield UNCHANGED
        finally:
            shared.subscribers -= 1
            if not shared.subscribers and self._shared.get(key) is shared:
                del self._shared[key]
                shared.task.cancel()

    def _join(self, key: tuple[KubeWatch, Decode[T]]) -> _Shared[T]:
        shared = self._shared.get(key)
        if shared is None:
            assert self._group is not None
            levels = Broadcast[WatchLevel[T]]()
            task = self._group.create_task(self._publish(key, levels), name=f"watch {key[0]}")
            shared = self._shared[key] = _Shared(task, levels)
        shared.subscribers += 1
        return shared

    async def _publish(self, key: tuple[KubeWatch, Decode[T]], levels: Broadcast[WatchLevel[T]]) -> None:
        """Publish each item. When the watch ends, its subscribers get the error; the next one opens another watch."""
        error: BaseException = RuntimeError("the watch ended")
        level: WatchLevel[T] = WatchLevel()
        try:
            async with closing(self._open_watch(self.kube, *key)) as items:
                async for item in items:
                    level = level.after(item)
                    levels.publish(level)
        except Exception as caught:  # noqa: BLE001 - whatever it is, the subscribers get it
            error = caught
        finally:
            shared = self._shared.get(key)
            if shared is not None and shared.levels is levels:
                del self._shared[key]
            levels.publish(replace(level, error=error))
