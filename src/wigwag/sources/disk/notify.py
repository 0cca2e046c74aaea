"""Linux inotify, through ctypes: told by the kernel, in the loop, without a thread or a dependency.

A watch is on a directory, never on a file: a file that is replaced takes its watch with it into the grave. Opening
fails with `OSError` where there is no inotify or no instance left; adding fails with `ENOSPC` when the user has no
watch left. Whoever uses this must be able to do without.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from wigwag.sources.disk.lookup import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

POLLING = (
    "files are polled instead, so changes are seen later;"
    " raise fs.inotify.max_user_instances or fs.inotify.max_user_watches (sysctl)"
)
log = logging.getLogger("wigwag.sources")

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED = 0x2000, 0x4000, 0x8000
ONLYDIR, MASK_ADD = 0x1000000, 0x20000000

_HEADER = struct.Struct("iIII")
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_BUFFER = 64 * 1024


class FileEvent(NamedTuple):
    """Something happened to a name in a watched directory."""

    watch: int
    mask: int
    name: str


class Inotify:
    """An inotify instance that calls `heard` from the running loop. Close it."""

    def __init__(self, heard: Callable[[FileEvent], None]) -> None:
        self._heard = heard
        self._libc = _libc()
        self._fd = _checked(self._libc.inotify_init1(_FLAGS))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self.drain)

    def add(self, directory: str, mask: int) -> int:
        """Watch a directory and return the number of the watch, which is the same for the same directory.

        With `MASK_ADD`, what was watched for before is still watched for.
        """
        return _checked(self._libc.inotify_add_watch(self._fd, os.fsencode(directory), mask | ONLYDIR), directory)

    def remove(self, watch: int) -> None:
        """Stop a watch; one that the kernel has removed already is fine."""
        self._libc.inotify_rm_watch(self._fd, watch)

    def drain(self) -> None:
        """Pass on what the kernel has told so far. The loop does this by itself; do it to know all by now."""
        while True:
            try:
                data = os.read(self._fd, _BUFFER)
            except BlockingIOError:
                return
            for notice in notices(data):
                self._heard(notice)

    def close(self) -> None:
        """End all watches."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


def notices(data: bytes) -> Iterator[FileEvent]:
    """Take apart what the kernel wrote.

    >>> list(notices(_HEADER.pack(1, CREATE, 0, 8) + b"a.json" + bytes(2) + _HEADER.pack(-1, OVERFLOW, 0, 0)))
    [Notice(watch=1, mask=256, name='a.json'), Notice(watch=-1, mask=16384, name='')]
    """
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        yield FileEvent(watch, mask, os.fsdecode(data[at : at + length].rstrip(b"\0")))
        at += length


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        raise OSError(errno.ENOSYS, "this system has no inotify")
    return libc


def _checked(result: int, path: str | None = None) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return result


class Notifier:
    """One inotify instance for all who follow something on disk: opened for the first of them, closed with the last.

    A user has few instances (128 by default), so a process takes one. Each subscriber is told of the names that it
    asked for only; thousands may listen in one directory.
    """

    def __init__(self, open: Callable[[Callable[[FileEvent], None]], Inotify] | None = None) -> None:
        """`open` makes an instance; by default, a real one."""
        self._open = open or Inotify
        self._inotify: Inotify | None = None
        self._subscriptions: dict[PathSubscription, None] = {}
        self._watches: dict[int, _Watched] = {}
        self._warned: set[int | None] = set()

    def subscribe(self, hear: Callable[[FileEvent], None]) -> PathSubscription | None:
        """Return a subscription; None if the system has no instance left, which is logged once."""
        if self._inotify is None:
            try:
                self._inotify = self._open(self._dispatch)
            except OSError as error:
                self.warn(error)
                return None
        subscription = PathSubscription(self, hear)
        self._subscriptions[subscription] = None
        return subscription

    def warn(self, error: OSError) -> None:
        """Log that something cannot be listened for, once for each error."""
        if error.errno not in self._warned:
            self._warned.add(error.errno)
            log.warning("inotify cannot be used: %s; %s", error.strerror, POLLING)

    def add(self, subscription: PathSubscription, directory: str, mask: int, names: Iterable[str]) -> int:
        """Watch names in a directory for a subscriber; return the number of the watch."""
        assert self._inotify is not None
        number = self._inotify.add(directory, mask | MASK_ADD)
        watched = self._watches.setdefault(number, _Watched({}, {}))
        watched.subscribers[subscription] = None
        for name in names:
            watched.names.setdefault(name, {})[subscription] = None
        return number

    def discard(self, subscription: PathSubscription, number: int, names: Iterable[str]) -> None:
        """Stop telling a subscriber of names in a directory."""
        watched = self._watches.get(number)
        if watched is None:
            return
        for name in names:
            subscribers = watched.names.get(name, {})
            subscribers.pop(subscription, None)
            if not subscribers:
                watched.names.pop(name, None)

    def leave(self, subscription: PathSubscription, number: int) -> None:
        """Stop telling a subscriber of a directory, and watch it no longer if nobody else listens there."""
        watched = self._watches.get(number)
        if watched is None:
            return
        watched.subscribers.pop(subscription, None)
        if not watched.subscribers:
            del self._watches[number]
            if self._inotify is not None:
                self._inotify.remove(number)

    def drain(self) -> None:
        """Tell everybody what the kernel has told so far."""
        if self._inotify is not None:
            self._inotify.drain()

    def end(self, subscription: PathSubscription) -> None:
        """Forget a subscriber; with the last one, close the instance."""
        self._subscriptions.pop(subscription, None)
        if not self._subscriptions and self._inotify is not None:
            self._inotify.close()
            self._inotify = None
            self._watches.clear()

    def _dispatch(self, notice: FileEvent) -> None:
        for subscription in self._concerned(notice):
            subscription.hear(notice)
        if notice.mask & IGNORED:
            self._watches.pop(notice.watch, None)

    def _concerned(self, notice: FileEvent) -> tuple[PathSubscription, ...]:
        if notice.mask & OVERFLOW:
            return tuple(self._subscriptions)
        watched = self._watches.get(notice.watch)
        if watched is None:
            return ()
        if not notice.name:
            return tuple(watched.subscribers)
        return tuple({**watched.names.get(notice.name, {}), **watched.names.get(EVERY, {})})


class _Watched(NamedTuple):
    """A watched directory: who listens there, and for which names."""

    subscribers: dict[PathSubscription, None]
    names: dict[str, dict[PathSubscription, None]]


class PathSubscription:
    """What one subscriber listens for. Close it."""

    def __init__(self, notifier: Notifier, hear: Callable[[FileEvent], None]) -> None:
        self._notifier, self.hear = notifier, hear
        self._names: dict[int, set[str]] = {}

    def add(self, directory: str, mask: int, names: Collection[str]) -> int:
        """Listen for names in a directory, too; return the number of the watch."""
        number = self._notifier.add(self, directory, mask, names)
        self._names.setdefault(number, set()).update(names)
        return number

    def retain(self, wanted: Mapping[int, Collection[str]]) -> None:
        """Listen for nothing but these names of these watches."""
        for number, names in list(self._names.items()):
            kept = names.intersection(wanted.get(number, ()))
            self._notifier.discard(self, number, names - kept)
            if number in wanted:
                self._names[number] = kept
            else:
                self._notifier.leave(self, number)
                del self._names[number]

    def drain(self) -> None:
        """Hear by now what the kernel has told so far."""
        self._notifier.drain()

    def close(self) -> None:
        """Listen for nothing any more."""
        self.retain({})
        self._notifier.end(self)
