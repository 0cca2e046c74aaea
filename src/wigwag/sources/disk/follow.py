"""Follow a path on disk: yield its content when it changes, and only when it is complete.

    subscribe ─▶ mark, read, mark again ─▶ equal marks, and no event meanwhile? ─▶ changed? ─▶ yield

The listener subscribes before the first read, and again whenever the path leads somewhere else, so no change is missed.
What is read counts only if its marks (inode, times, size) are equal before and after, no event arrived meanwhile, and
it is not so young that its writer may still be at work. Where a directory is swapped as a whole (a mounted ConfigMap),
what is read is complete by construction, and a newer one is simply read next.

As a safety net, the marks are compared at an interval even without events, for file systems without inotify. An error
is yielded as `Unavailable`; the same content after it is yielded again, because it ends that state. A comparison
without a difference confirms the last value: `UNCHANGED`.
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

    from wigwag.sources.disk.listen import Lookup

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

SWAPPED = "..data"
"""The link that the kubelet moves from one generation of a mounted volume to the next."""
_LARGE = 1 << 20


@dataclass(frozen=True, slots=True)
class FollowTiming:
    """The timing of a follower, in seconds."""

    settle: float = 0.02
    """How long a file must be quiet if its writer has not closed it."""
    poll: float = 5.0
    """The interval of the safety net."""
    poll_alone: float = 1.0
    """The same where inotify does not work."""


@dataclass(frozen=True, slots=True)
class FollowDeps:
    """What tests replace: clocks and inotify."""

    clock: Clock = LoopClock()
    wall: Callable[[], float] = time
    """The clock of file times."""
    inotify: bool = True
    """Whether to use inotify."""
    notifier: Notifier | None = None
    """A shared inotify instance; None: one of its own."""


class FileMark(NamedTuple):
    """Metadata that changes when a file changes."""

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
    """A file or directory: which names matter, its marks, and its content. All methods may raise `OSError`."""

    def lookups(self) -> tuple[Lookup, ...]:
        """Return the names that decide what the path is."""
        ...

    def marks(self) -> tuple[FileMark, ...]:
        """Return the marks of its files."""
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
        """Read the target; None if it is not complete, and has to be read again soon."""
        done, since = self._listener.attend(), self._deps.wall()
        swapped = self._arm()
        before, self._marks = self._marks, None
        try:
            marks = self._target.marks()
            value = await self._read(marks)
            complete = swapped or (marks == self._target.marks() and not self._young(marks, done, since))
        except OSError as error:
            if self._listener.disturbed() or (before is not None and self._listener.suspect()):
                return None  # perhaps it is being replaced
            self._listener.satisfied()
            return Unavailable.of(error)
        if not swapped and (self._listener.disturbed() or (not complete and self._listener.suspect())):
            return None
        self._marks = marks
        self._listener.satisfied()
        return value

    async def wait(self) -> bool:
        """Wait until there is reason to look, which is True, or until the marks are confirmed."""
        pause = self._timing.poll_alone if self._listener.must_poll else self._timing.poll
        return await self._listener.wait(self._deps.clock.now() + pause) or self._differs()

    def _arm(self) -> bool:
        """Subscribe to the names of the path; return whether it leads through a swapped directory."""
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
        """Return whether a file was written a moment ago by a writer that may still be at work.

        A writer that has closed the file may have opened it again, and the kernel reports a write only when it is over;
        an empty file may have been truncated to be filled.
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
    """Yield the content of a target when it changes, and `UNCHANGED` when it is confirmed."""
    last: T | Unavailable | None = None
    notifier = (deps.notifier or Notifier()) if deps.inotify else None
    with closing(PathListener(deps.clock, timing.settle, notifier)) as listener:
        follower = PathFollower(target, listener, timing, deps)
        while True:
            value = await follower.look()
            if value is not None and value != last:
                last = value
                yield value
            while not await follower.wait():
                if last is not None and not isinstance(last, Unavailable):
                    yield UNCHANGED
