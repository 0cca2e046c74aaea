"""A directory: the contents of all its files at one moment.

Of a mounted ConfigMap or Secret, these are the files of one generation: `..data` is opened once, and all files are
listed and read beneath that handle. The hard case is a generation that is deleted while it is read. It loses files only
after `..data` points to the next one, so a list made before that is complete; if a file of the list is missing, start
again with the next generation.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from wigwag.sources.disk.follow import SWAPPED, FileMark, FollowDeps, FollowTiming, follow
from wigwag.sources.disk.listen import Lookup, chain
from wigwag.sources.disk.notify import EVERY
from wigwag.sources.disk.read import FLAGS, read, too_large

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from wigwag.pipeline.spec import Unavailable, Unchanged

T = TypeVar("T")
_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class DirectoryWatch:
    """The contents of all files in a directory, by name; without hidden ones and directories."""

    path: str
    most: int = 64 << 20
    """The largest size of all files together that is read, in bytes."""
    timing: FollowTiming = FollowTiming()

    def __str__(self) -> str:
        return f"directory:{self.path}"


def watch_directory(
    spec: DirectoryWatch,
    deps: FollowDeps = FollowDeps(),  # noqa: B008 - a frozen value
) -> AsyncIterator[dict[str, bytes] | Unavailable | Unchanged]:
    """Yield the contents when one of them changes, all of one generation."""
    return follow(_Directory(str(Path(spec.path).absolute()), spec.most), spec.timing, deps)


def lookups_of(path: str) -> tuple[Lookup, ...]:
    """Return the names that decide what is in a directory."""
    plain, swapped = chain(path), chain(f"{path}/{SWAPPED}")
    real = swapped.real or plain.real
    way = tuple(lookup._replace(content=False) for lookup in swapped.lookups)
    return way if real is None else (*way, Lookup(real, EVERY, content=True))


def beneath(path: str, task: Callable[[int, list[str]], T]) -> T:
    """Run a task on the current generation of a directory; if it is deleted meanwhile, on the next."""
    outer = os.open(path, FLAGS | os.O_DIRECTORY)
    try:
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError), _generation(outer) as (handle, names):
                return task(handle, names)
    finally:
        os.close(outer)
    raise OSError(errno.EBUSY, f"{SWAPPED} leads nowhere, or changes faster than it can be read", path)


class _Directory:
    def __init__(self, path: str, most: int) -> None:
        self._path, self._most = path, most

    def lookups(self) -> tuple[Lookup, ...]:
        return lookups_of(self._path)

    def marks(self) -> tuple[FileMark, ...]:
        return beneath(self._path, _marks)

    def read(self) -> dict[str, bytes]:
        return beneath(self._path, self._contents)

    def _contents(self, handle: int, names: list[str]) -> dict[str, bytes]:
        contents, left = {}, self._most
        for mark in _marks(handle, names):
            contents[mark.name] = content = self._content(handle, mark.name, left)
            left -= len(content)
        return contents

    def _content(self, handle: int, name: str, left: int) -> bytes:
        try:
            return read(name, left, handle)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise too_large(self._path, self._most) from None
            raise OSError(error.errno, error.strerror, f"{self._path}/{name}") from error


@contextmanager
def _generation(outer: int) -> Iterator[tuple[int, list[str]]]:
    """Open the current generation, or the directory itself if it has none; yield its handle and a complete list."""
    handle = _open(outer)
    try:
        names = sorted(name for name in os.listdir(handle) if not name.startswith("."))  # noqa: PTH208 - a handle
        if handle != outer and not os.path.samestat(os.stat(SWAPPED, dir_fd=outer), os.fstat(handle)):
            raise FileNotFoundError(SWAPPED)
        yield handle, names if handle != outer else [name for name in names if _exists(name, handle, follow=True)]
    finally:
        if handle != outer:
            os.close(handle)


def _open(outer: int) -> int:
    try:
        return os.open(SWAPPED, FLAGS | os.O_DIRECTORY, dir_fd=outer)
    except FileNotFoundError:
        if _exists(SWAPPED, outer, follow=False):
            raise
        return outer


def _exists(name: str, directory: int, follow: bool) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=follow)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # reading it shows the error
    return True


def _marks(handle: int, names: list[str]) -> tuple[FileMark, ...]:
    """Return the marks of the regular files among these."""
    statuses = [(name, os.stat(name, dir_fd=handle)) for name in names]
    return tuple(FileMark.of(name, status) for name, status in statuses if stat.S_ISREG(status.st_mode))
