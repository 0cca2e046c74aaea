"""Who asks the API server: one client for a whole process, and one watch for all who want the same.

A hub is made with the process and costs nothing until somebody watches. Its watches are children of `run`; whoever
begins before that waits for it. Who wants a single look and has no hub uses `alone`.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Protocol, TypeVar

from wigwag.pipeline.clock import Clock, LoopClock
from wigwag.pipeline.watch import closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from wigwag.kube.client import Kube
    from wigwag.kube.watch.decode import Decode
    from wigwag.kube.watch.reflector import Item
    from wigwag.kube.watch.share import SharedWatches
    from wigwag.kube.watch.spec import KubeWatch

T = TypeVar("T")


class Follow(Protocol):
    """How a watch is opened."""

    def __call__(self, spec: KubeWatch, decode: Decode[T], /) -> AsyncIterator[Item[T]]:
        """Yield all objects when one changes, that none has, or why that cannot be told at present."""
        ...


def connect(environment: Mapping[str, str] = os.environ) -> Kube:
    """Make a client of the API server that KUBECONFIG or the pod names; `UsageError` if there is none."""
    from wigwag.kube.client import Kube
    from wigwag.kube.config.discover import find_cluster

    return Kube(find_cluster(environment))


async def alone(spec: KubeWatch, decode: Decode[T]) -> AsyncIterator[Item[T]]:
    """Watch with a client of its own."""
    from wigwag.kube.watch.follow import watch_kube

    kube = connect()
    try:
        async with closing(watch_kube(kube, spec, decode)) as items:
            async for item in items:
                yield item
    finally:
        kube.close()


class Hub:
    """The API server, for all who watch something in it."""

    def __init__(self, clock: Clock = LoopClock(), connect: Callable[[], Kube] = connect) -> None:  # noqa: B008 - it has no state
        self._clock, self._connect = clock, connect
        self._kube: Kube | None = None
        self._group: asyncio.TaskGroup | None = None
        self._shared: SharedWatches | None = None
        self._running = asyncio.Event()

    async def run(self) -> None:
        """Hold the watches, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._running.set()
                await asyncio.Event().wait()
        finally:
            self._running.clear()
            self._shared = None
            if self._kube is not None:
                self._kube.close()

    @property
    def kube(self) -> Kube:
        """The client; made when it is first needed, `UsageError` if no Kubernetes is configured."""
        if self._kube is None:
            self._kube = self._connect()
        return self._kube

    async def watch(self, spec: KubeWatch, decode: Decode[T], /) -> AsyncIterator[Item[T]]:
        """Watch together with all who want the same, decoded in the same way."""
        from wigwag.kube.watch.share import SharedWatches  # a process that watches nothing does not need it

        await self._running.wait()
        assert self._group is not None
        if self._shared is None:
            self._shared = SharedWatches(self._group, self._clock, self._open)
        async with closing(self._shared.watch(spec, decode)) as items:
            async for item in items:
                yield item

    async def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Have a task beside the watches. It must not fail, and whoever wanted it cancels it."""
        await self._running.wait()
        assert self._group is not None
        return self._group.create_task(work)

    def _open(self, spec: KubeWatch, decode: Decode[T]) -> AsyncIterator[Item[T]]:
        from wigwag.kube.watch.follow import watch_kube

        return watch_kube(self.kube, spec, decode)
