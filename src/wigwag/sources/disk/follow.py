"""Follow something on disk: yield it when it changes, and only when it is whole.

    listen ─▶ look: arm the ears, mark, read, mark again ─▶ the same, and silence meanwhile? ─▶ news? ─▶ yield

The ears are armed before the first look, and again whenever the path leads somewhere else; what happens after that is
heard, so nothing is missed. What is read counts only if its marks are the same before and after, nothing was heard
meanwhile, and it is not so young that its writer may still be at it. Where a directory is swapped as a whole (a mounted
ConfigMap), what is read is whole by construction, and a newer one is simply read next.

Beneath it all lies a net: from time to time the marks are compared though nothing was heard, for file systems that tell
nothing. An error is yielded as `Unavailable`; the same content after it is news again, because it ends that. Each
time that the net brings nothing up, what was yielded before is known to hold still.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from os import stat_result
from time import time
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from wigwag.pipeline.clock import Clock, LoopClock
from wigwag.pipeline.spec import UNCHANGED, Unavailable, Unchanged
from wigwag.sources.disk.listen import PathListener
from wigwag.sources.disk.notify import Notifier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from wigwag.sources.disk.lookup import Lookup

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

SWAPPED = "..data"
"""The link that the kubelet turns from one generation of a mounted volume to the next."""
_LARGE = 1 << 20


@dataclass(frozen=True, slots=True)
class FollowTiming:
    """How patiently things on disk are followed, in seconds."""

    settle: float = 0.02
    """How long a file must be left alone if its writer does not say that it is done."""
    poll: float = 5.0
    """How often to look though the kernel told nothing."""
    blind: float = 1.0
    """The same, where the kernel is known to tell nothing."""


@dataclass(frozen=True, slots=True)
class FollowDeps:
    """Where time and news come from."""

    clock: Clock = LoopClock()
    wall: Callable[[], float] = time
    """The time that files are stamped with."""
    deaf: bool = False
    """Do without inotify."""
    notifier: Notifier | None = None
    """The inotify instance that all share who get the same; None: one of its own."""


class FileMark(NamedTuple):
    """What changes when a file changes, without reading it."""

    name: str
    device: int
    inode: int
    modified: int
    changed: int
    size: int

    @classmethod
    def of(cls, name: str, stat: stat_result) -> FileMark:
        """Take the mark of a file."""
        return cls(name, stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)


class FollowedPath(Protocol[T_co]):
    """Something on disk: where to listen, how to tell that it changed, and how to read it. All may raise `OSError`."""

    def lookups(self) -> tuple[Lookup, ...]:
        """Return the names that decide what it is."""
        ...

    def marks(self) -> tuple[FileMark, ...]:
        """Return the marks of all files in it."""
        ...

    def read(self) -> T_co:
        """Return its content."""
        ...


class PathFollower(Generic[T]):
    """One target, followed."""

    def __init__(self, target: FollowedPath[T], listener: PathListener, timing: FollowTiming, deps: FollowDeps) -> None:
        self._target, self._listener, self._timing, self._deps = target, listener, timing, deps
        self._marks: tuple[FileMark, ...] | None = None

    async def look(self) -> T | Unavailable | None:
        """Read the target; None if it is not whole at present, and will be looked at again soon."""
        done, since = self._listener.attend(), self._deps.wall()
        swapped = self._arm()
        before, self._marks = self._marks, None
        try:
            marks = self._target.marks()
            value = await self._read(marks)
            whole = swapped or (marks == self._target.marks() and not self._young(marks, done, since))
        except OSError as error:
            if self._listener.disturbed() or (before is not None and self._listener.suspect()):
                return None  # between two files, perhaps
            self._listener.satisfied()
            return Unavailable.of(error)
        if not swapped and (self._listener.disturbed() or (not whole and self._listener.suspect())):
            return None
        self._marks = marks
        self._listener.satisfied()
        return value

    async def wait(self) -> bool:
        """Wait until there is reason to look, or until the net has brought nothing up, which is False."""
        pause = self._timing.blind if self._listener.blind else self._timing.poll
        return await self._listener.wait(self._deps.clock.now() + pause) or self._differs()

    def _arm(self) -> bool:
        """Listen where the path leads, and tell whether it leads through a swapped directory."""
        lookups: tuple[Lookup, ...] = ()
        for _ in range(10):
            before, lookups = lookups, self._target.lookups()
            if lookups == before:
                break
            self._listener.arm(lookups)
        return any(lookup.link and lookup.name == SWAPPED for lookup in lookups)

    async def _read(self, marks: tuple[FileMark, ...]) -> T:
        if sum(mark.size for mark in marks) > _LARGE:
            return await asyncio.to_thread(self._target.read)
        return self._target.read()

    def _young(self, marks: tuple[FileMark, ...], done: set[str], since: float) -> bool:
        """Tell whether a file was written a moment ago by someone who may still be at it.

        One who said that he was done may have begun anew since, and the kernel tells of a write only when it is over;
        of an empty file it may not have told yet that it was emptied to be filled.
        """
        now, settle = self._deps.wall(), self._timing.settle
        return any(
            0 <= now - mark.modified / 1e9 < settle
            for mark in marks
            if not (mark.name in done and mark.size and mark.modified / 1e9 <= since)
        )

    def _differs(self) -> bool:
        try:
            return self._target.marks() != self._marks
        except OSError:
            return self._marks is not None


async def follow(
    target: FollowedPath[T], timing: FollowTiming, deps: FollowDeps
) -> AsyncIterator[T | Unavailable | Unchanged]:
    """Yield what a target holds whenever it changes, and from time to time that it does not."""
    last: T | Unavailable | None = None
    notifier = None if deps.deaf else deps.notifier or Notifier()
    with closing(PathListener(deps.clock, timing.settle, notifier)) as listener:
        follower = PathFollower(target, listener, timing, deps)
        while True:
            found = await follower.look()
            if found is not None and found != last:
                last = found
                yield found
            while not await follower.wait():
                if last is not None and not isinstance(last, Unavailable):
                    yield UNCHANGED
