"""Linux inotify through ctypes, in the event loop, without a thread or a dependency; shared by a process.

A watch is on a directory, never on a file: a watch of a file ends when the file is replaced. Opening fails with
`OSError` where there is no inotify or no instance left; adding fails with `ENOSPC` when the user has no watch left.
Callers must be able to do without it.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

POLLING = (
    "files are polled instead, so changes are seen later;"
    " raise fs.inotify.max_user_instances or fs.inotify.max_user_watches (sysctl)"
)
EVERY = "*"
"""Instead of a name: every name that is not hidden."""
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
    """An inotify instance that calls `on_event` from the running loop. Close it."""

    def __init__(self, on_event: Callable[[FileEvent], None]) -> None:
        self._on_event = on_event
        self._libc = _libc()
        self._fd = _checked(self._libc.inotify_init1(_FLAGS))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self.drain)

    def add(self, directory: str, mask: int) -> int:
        """Watch a directory and return the number of the watch, which is the same for the same directory.

        With `MASK_ADD`, events that were watched before are still watched.
        """
        return _checked(self._libc.inotify_add_watch(self._fd, os.fsencode(directory), mask | ONLYDIR), directory)

    def remove(self, watch: int) -> None:
        """Stop a watch; one that the kernel has removed already is fine."""
        self._libc.inotify_rm_watch(self._fd, watch)

    def drain(self) -> None:
        """Deliver all events of the kernel now. The loop does this by itself; call it to be up to date."""
        while True:
            try:
                data = os.read(self._fd, _BUFFER)
            except BlockingIOError:
                return
            for event in read_events(data):
                self._on_event(event)

    def close(self) -> None:
        """End all watches."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


def read_events(data: bytes) -> Iterator[FileEvent]:
    """Parse a buffer of the kernel.

    >>> list(read_events(_HEADER.pack(1, CREATE, 0, 8) + b"a.json" + bytes(2) + _HEADER.pack(-1, OVERFLOW, 0, 0)))
    [FileEvent(watch=1, mask=256, name='a.json'), FileEvent(watch=-1, mask=16384, name='')]
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
    """One inotify instance for all subscribers: opened for the first of them, closed with the last.

    A user has few instances (128 by default), so a process takes one. A subscriber gets the events of its own names
    only; thousands may listen in one directory.
    """

    def __init__(self, open: Callable[[Callable[[FileEvent], None]], Inotify] | None = None) -> None:
        """`open` makes an instance; the default is a real one."""
        self._open = open or Inotify
        self._inotify: Inotify | None = None
        self._subscriptions: dict[PathSubscription, None] = {}
        self._watches: dict[int, dict[str, dict[PathSubscription, None]]] = {}
        """By watch and name: the subscribers, in order."""
        self._warned: set[int | None] = set()

    def subscribe(self, on_event: Callable[[FileEvent], None]) -> PathSubscription | None:
        """Return a subscription; None if the system has no instance left, which is logged once."""
        if self._inotify is None:
            try:
                self._inotify = self._open(self._dispatch)
            except OSError as error:
                self.warn(error)
                return None
        subscription = PathSubscription(self, on_event)
        self._subscriptions[subscription] = None
        return subscription

    def warn(self, error: OSError) -> None:
        """Log that inotify cannot be used, once for each error."""
        if error.errno not in self._warned:
            self._warned.add(error.errno)
            log.warning("inotify cannot be used: %s; %s", error.strerror, POLLING)

    def add(self, subscription: PathSubscription, directory: str, mask: int, names: Iterable[str]) -> int:
        """Watch names in a directory for a subscriber; return the number of the watch."""
        assert self._inotify is not None
        number = self._inotify.add(directory, mask | MASK_ADD)
        watched = self._watches.setdefault(number, {})
        for name in names:
            watched.setdefault(name, {})[subscription] = None
        return number

    def discard(self, subscription: PathSubscription, number: int, names: Iterable[str]) -> None:
        """Unsubscribe from names in a directory; its watch ends with the last name."""
        watched = self._watches.get(number)
        if watched is None:
            return
        for name in names:
            watched.get(name, {}).pop(subscription, None)
            if not watched.get(name):
                watched.pop(name, None)
        if not watched:
            del self._watches[number]
            if self._inotify is not None:
                self._inotify.remove(number)

    def drain(self) -> None:
        """Deliver all events of the kernel now."""
        if self._inotify is not None:
            self._inotify.drain()

    def end(self, subscription: PathSubscription) -> None:
        """Remove a subscriber; with the last one, close the instance."""
        self._subscriptions.pop(subscription, None)
        if not self._subscriptions and self._inotify is not None:
            self._inotify.close()
            self._inotify = None
            self._watches.clear()

    def _dispatch(self, event: FileEvent) -> None:
        for subscription in self._subscribers(event):
            subscription.on_event(event)
        if event.mask & IGNORED:
            self._watches.pop(event.watch, None)

    def _subscribers(self, event: FileEvent) -> tuple[PathSubscription, ...]:
        if event.mask & OVERFLOW:
            return tuple(self._subscriptions)
        watched = self._watches.get(event.watch, {})
        if not event.name:
            return tuple({each: None for subscribers in watched.values() for each in subscribers})
        return tuple({**watched.get(event.name, {}), **watched.get(EVERY, {})})


class PathSubscription:
    """The names of one subscriber. Close it."""

    def __init__(self, notifier: Notifier, on_event: Callable[[FileEvent], None]) -> None:
        self._notifier, self.on_event = notifier, on_event
        self._names: dict[int, set[str]] = {}

    def add(self, directory: str, mask: int, names: Collection[str]) -> int:
        """Listen for names in a directory, too; return the number of the watch."""
        number = self._notifier.add(self, directory, mask, names)
        self._names.setdefault(number, set()).update(names)
        return number

    def retain(self, wanted: Mapping[int, Collection[str]]) -> None:
        """Unsubscribe from all but these names of these watches."""
        for number, names in list(self._names.items()):
            kept = names.intersection(wanted.get(number, ()))
            self._notifier.discard(self, number, names - kept)
            self._names[number] = kept
            if not kept:
                del self._names[number]

    def close(self) -> None:
        """Unsubscribe from everything."""
        self.retain({})
        self._notifier.end(self)
