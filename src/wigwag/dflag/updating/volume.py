"""A mounted volume, read as a whole and followed; and which of its keys can never change.

As the directory source does it, with its functions: one generation through the pinned `..data`, read again if that is
replaced meanwhile. Three things differ. Sub-directories are read, too. A file that cannot be read is reported under its
own key, because here every file is a setting of its own. And a volume that becomes an empty directory without `..data`
was unmounted: that is an error, not a ConfigMap without keys.

A mount with `subPath` never changes: the kubelet binds it to a file, or directory, of the generation at the start of
the container, and never replaces it. Only the table of mounts shows it: the root of a mount, at or beneath the watched
directory, is within a generation.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from wigwag.dflag.updating.contents import MOST_KEYS, Unreadable
from wigwag.pipeline.spec import Unavailable
from wigwag.pipeline.watch import closing
from wigwag.sources.disk.directory import beneath, lookups_of
from wigwag.sources.disk.follow import SWAPPED, FileMark, FollowDeps, FollowTiming, follow
from wigwag.sources.disk.listen import Lookup
from wigwag.sources.disk.notify import EVERY
from wigwag.sources.disk.read import FLAGS, read, too_large

if TYPE_CHECKING:
    from wigwag.dflag.updating.contents import Contents
    from wigwag.dflag.updating.policy import Policy
    from wigwag.pipeline.spec import Unchanged

_GENERATION = re.compile(r"\.\.[0-9]{4}_[0-9]{2}_[0-9]{2}_")
_ESCAPE = re.compile(r"\\([0-7]{3})")
_TABLE = Path("/proc/self/mountinfo")


async def watch_volume(volume: Volume, policy: Policy) -> AsyncIterator[Contents | Unavailable | Unchanged]:
    """Yield the contents of a volume whenever they change."""
    timing = FollowTiming(settle=policy.settle, poll=policy.poll, poll_alone=min(policy.poll, policy.poll_blind))
    async with closing(follow(volume, timing, FollowDeps(inotify=policy.inotify))) as items:
        async for item in items:
            yield plain(item, volume.path) if isinstance(item, Unavailable) else item


def plain(unavailable: Unavailable, path: str) -> Unavailable:
    """Return the reason without the class of the error, and without the path, which the message has already.

    >>> plain(Unavailable("FileNotFoundError: /etc/dflag: No such file or directory"), "/etc/dflag").reason
    'No such file or directory'
    """
    _, _, reason = unavailable.reason.partition(": ")
    return Unavailable(reason.removeprefix(f"{path}: ") or unavailable.reason)


class _VolumeFile(NamedTuple):
    path: str
    directory: int
    name: str
    status: os.stat_result
    fault: str = ""
    """Why its type is not known."""


class Volume:
    """A directory with at most `depth` levels; a file has at most `largest` bytes, and all together `most`."""

    def __init__(self, path: str, depth: int, largest: int, most: int) -> None:
        self.path, self._depth, self._largest, self._most = path, depth, largest, most
        self._path = os.path.abspath(path)  # noqa: PTH100 - `Path.absolute` keeps `..`
        self._mounted = False

    def lookups(self) -> tuple[Lookup, ...]:
        lookups = lookups_of(self._path)
        if any(lookup.link and lookup.name == SWAPPED for lookup in lookups):
            return lookups
        return (*lookups, *(Lookup(path, EVERY, content=True) for path in _folders(self._path, self._depth)))

    def marks(self) -> tuple[FileMark, ...]:
        return beneath(self._path, self._marks)

    def read(self) -> Contents:
        contents = beneath(self._path, self._contents)
        mounted = os.path.lexists(f"{self._path}/{SWAPPED}")
        if self._mounted and not mounted and not contents:
            raise OSError(errno.ESTALE, f"the volume is gone: there is no {SWAPPED} any more", self._path)
        self._mounted = mounted
        return contents

    def _marks(self, handle: int, names: list[str]) -> tuple[FileMark, ...]:
        return tuple(FileMark.of(file.path, file.status) for file in _walk(handle, names, self._depth))

    def _contents(self, handle: int, names: list[str]) -> Contents:
        contents: dict[str, bytes | Unreadable] = {}
        left = self._most
        for file in _walk(handle, names, self._depth):
            content = self._content(file)
            left -= len(content) if isinstance(content, bytes) else 0
            if left < 0:
                raise too_large(self._path, self._most)
            contents[file.path] = content
            if len(contents) > MOST_KEYS:
                raise OSError(errno.EFBIG, f"more than {MOST_KEYS} files", self._path)
        return contents

    def _content(self, file: _VolumeFile) -> bytes | Unreadable:
        if file.fault:
            return Unreadable(file.fault)
        try:
            return read(file.name, self._largest, file.directory)
        except FileNotFoundError:
            raise
        except OSError as error:
            return Unreadable(error.strerror or type(error).__name__)


def _walk(directory: int, names: list[str], depth: int, above: str = "") -> Iterator[_VolumeFile]:
    """Yield the regular files in a directory and those in it; `FileNotFoundError` if one is deleted meanwhile."""
    for name in names:
        file = _look(directory, name, above)
        if file is None:
            continue
        if file.fault or stat.S_ISREG(file.status.st_mode):
            yield file
        elif stat.S_ISDIR(file.status.st_mode) and depth > 1:
            yield from _inside(directory, name, depth - 1, f"{above}{name}/")


def _inside(directory: int, name: str, depth: int, above: str) -> Iterator[_VolumeFile]:
    """Walk through a directory; raise if it cannot be read, because the missing keys would seem to be deleted."""
    handle = os.open(name, FLAGS | os.O_DIRECTORY, dir_fd=directory)
    try:
        yield from _walk(handle, _visible(handle), depth, above)
    finally:
        os.close(handle)


def _look(directory: int, name: str, above: str) -> _VolumeFile | None:
    """Return the file of a name; None if it is a dangling link."""
    try:
        return _VolumeFile(above + name, directory, name, os.stat(name, dir_fd=directory))
    except FileNotFoundError:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
        return None
    except OSError as error:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        return _VolumeFile(above + name, directory, name, status, error.strerror or "it cannot be read")


def _visible(directory: int) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def _folders(path: str, depth: int) -> list[str]:
    """Return the directories in a directory and those in them; nothing if it cannot be read."""
    if depth <= 1:
        return []
    try:
        with os.scandir(path) as entries:
            inner = [entry.path for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except OSError:
        return []
    return [folder for each in sorted(inner) for folder in (each, *_folders(each, depth - 1))]


def frozen_keys(table: str, directory: str) -> list[str]:
    """Return the paths beneath a directory that can never change; an empty path is the directory itself.

    >>> frozen_keys("36 35 98:0 /pods/7/volumes/config/..2026_01_01_00_00_00.1/rate /etc/dflag/rate ro - ext4 d rw", "/etc/dflag")
    ['rate']
    """  # noqa: E501 - a line of the table
    here = PurePosixPath(directory)
    frozen = (point for root, point in map(_fields, table.splitlines()) if any(map(_GENERATION.match, root.parts)))
    paths = {point.relative_to(here) for point in frozen if point.is_relative_to(here)}
    return sorted("" if path == PurePosixPath() else str(path) for path in paths)


def _fields(line: str) -> tuple[PurePosixPath, PurePosixPath]:
    """Return the root of a mount in its file system, and its mount point."""
    fields = (*line.split(" "), "", "", "", "", "")
    root, point = (_ESCAPE.sub(lambda match: chr(int(match[1], 8)), field) for field in fields[3:5])
    return PurePosixPath(root), PurePosixPath(point)


def frozen_here(directory: str) -> list[str]:
    """Return the same for this process; nothing if there is no table of mounts."""
    try:
        return frozen_keys(_TABLE.read_text(errors="surrogateescape"), str(Path(directory).resolve()))
    except OSError:
        return []
