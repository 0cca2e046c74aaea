"""One watch for all who want the same: the first subscriber opens it, and it closes when the last one has left.

    watch_kube ──▶ Broadcast[WatchLevel] ──▶ each subscriber, at its own speed

A subscriber gets the objects as they are at once, and later what changed last; it may miss what came in between. So a
`WatchLevel` holds the value, its edition and the state of the watch together: a late or slow subscriber ends with the
newest value, not with the last message about it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from wigwag.pipeline.broadcast import Broadcast
from wigwag.pipeline.spec import UNCHANGED, Unavailable, Unchanged
from wigwag.pipeline.watch import closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from wigwag.kube.watch.decode import Decode, Key
    from wigwag.kube.watch.reflector import Item
    from wigwag.kube.watch.spec import KubeWatch
    from wigwag.pipeline.clock import Clock, Timer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WatchLevel(Generic[T]):
    """How a watch is doing."""

    value: Mapping[Key, T] | None = None
    edition: int = 0
    """How many values there have been."""
    trouble: Unavailable | None = None
    error: BaseException | None = None
    """Why it is over, if it is."""

    def after(self, item: Item[T]) -> WatchLevel[T]:
        """Return how it is doing after one more item."""
        if isinstance(item, Unavailable):
            return replace(self, trouble=item)
        if isinstance(item, Unchanged):
            return replace(self, trouble=None)
        return WatchLevel(item, self.edition + 1)


@dataclass(slots=True)
class _Shared(Generic[T]):
    task: asyncio.Task[None] | None = None
    levels: Broadcast[WatchLevel[T]] = field(default_factory=Broadcast)
    readers: int = 0
    closing: Timer | None = None


class SharedWatches:
    """The watches of a process, as children of a task group."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        clock: Clock,
        follow: Callable[[KubeWatch, Decode[Any]], AsyncIterator[Item[Any]]],
        linger: float = 0.0,
    ) -> None:
        """`follow` opens a watch. `linger`: for how many seconds it stays open when nobody wants it any more."""
        self._group, self._clock, self._follow, self._linger = group, clock, follow, linger
        self._shared: dict[tuple[KubeWatch, Decode[Any]], _Shared[Any]] = {}

    def open(self) -> tuple[KubeWatch, ...]:
        """Return what is watched."""
        return tuple(spec for spec, _ in self._shared)

    async def watch(self, spec: KubeWatch, decode: Decode[T]) -> AsyncIterator[Item[T]]:
        """Subscribe. Those who want the same, decoded in the same way, have one watch together."""
        key = spec, decode
        shared = self._join(key)
        edition = 0
        try:
            async for level in shared.levels:
                if level.error is not None:
                    raise level.error
                news = level.edition != edition
                if news and level.value is not None:
                    edition = level.edition
                    yield level.value
                if level.trouble is not None:
                    yield level.trouble
                elif not news:
                    yield UNCHANGED
        finally:
            self._leave(key, shared)

    def _join(self, key: tuple[KubeWatch, Decode[T]]) -> _Shared[T]:
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = _Shared()
            shared.task = self._group.create_task(self._feed(key, shared), name=f"watch {key[0]}")
        if shared.closing is not None:
            shared.closing.cancel()
            shared.closing = None
        shared.readers += 1
        return shared

    def _leave(self, key: tuple[KubeWatch, Decode[T]], shared: _Shared[T]) -> None:
        shared.readers -= 1
        if shared.readers or self._shared.get(key) is not shared:
            return
        if self._linger:
            shared.closing = self._clock.call_at(self._clock.now() + self._linger, lambda: self._close(key, shared))
        else:
            self._close(key, shared)

    def _close(self, key: tuple[KubeWatch, Decode[T]], shared: _Shared[T]) -> None:
        if self._shared.get(key) is shared and not shared.readers:
            del self._shared[key]
            if shared.task is not None:
                shared.task.cancel()

    async def _feed(self, key: tuple[KubeWatch, Decode[T]], shared: _Shared[T]) -> None:
        """Publish what comes. If it ends, those who read are told, and whoever starts again opens another one."""
        error: BaseException = RuntimeError("the watch ended")
        level: WatchLevel[T] = WatchLevel()
        try:
            async with closing(self._follow(*key)) as items:
                async for item in items:
                    level = level.after(item)
                    shared.levels.publish(level)
        except Exception as caught:  # noqa: BLE001 - it may fail in any way: its readers are told
            error = caught
        finally:
            if self._shared.get(key) is shared:
                del self._shared[key]
            shared.levels.publish(replace(level, error=error))
