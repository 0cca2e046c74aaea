"""Linux inotify, through ctypes: told by the kernel, in the loop, without a thread or a dependency.

A watch is on a directory, never on a file: a file that is replaced takes its watch with it into the grave. Opening
fails with `OSError` where there is no inotify or no instance left; adding fails with `ENOSPC` when the user has no
watch left. Whoever uses this must be able to do without.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED = 0x2000, 0x4000, 0x8000
ONLYDIR = 0x1000000

_HEADER = struct.Struct("iIII")
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_BUFFER = 64 * 1024


class Notice(NamedTuple):
    """Something happened to a name in a watched directory."""

    watch: int
    mask: int
    name: str


class Inotify:
    """An inotify instance that calls `heard` from the running loop. Close it."""

    def __init__(self, heard: Callable[[Notice], None]) -> None:
        self._heard = heard
        self._libc = _libc()
        self._fd = _checked(self._libc.inotify_init1(_FLAGS))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self.drain)

    def add(self, directory: str, mask: int) -> int:
        """Watch a directory and return the number of the watch, which is the same for the same directory."""
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


def notices(data: bytes) -> Iterator[Notice]:
    """Take apart what the kernel wrote.

    >>> list(notices(_HEADER.pack(1, CREATE, 0, 8) + b"a.json" + bytes(2) + _HEADER.pack(-1, OVERFLOW, 0, 0)))
    [Notice(watch=1, mask=256, name='a.json'), Notice(watch=-1, mask=16384, name='')]
    """
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        yield Notice(watch, mask, os.fsdecode(data[at : at + length].rstrip(b"\0")))
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
