"""A directory in which the last good flags outlive the process: `--state-dir`.

    state-v1.new ──▶ state-v1.wigwag ──▶ state-v1.previous        save: written, synced, and only then renamed
                            └─ damaged ──▶ state-v1.N.corrupt     load: the newest generation that is whole

There is a whole generation under one of the two names at every moment, so a process may die at any, and a write that
fails harms nothing. What is damaged is set aside, so that somebody can look at it. What a newer wigwag wrote is not
ours: it is neither read nor deleted. Nothing here keeps an agent from starting: problems are logged.

One agent writes. Another one on the same directory reads what is there, and writes when the first is gone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from wigwag.agent.state.file import HEAD_BYTES, MOST_BYTES, VERSION, StateEntry, check_version, decode, encode
from wigwag.errors import StateError
from wigwag.sources.disk.read import FLAGS, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_STEM = f"state-v{VERSION}"
CURRENT, PREVIOUS = f"{_STEM}.wigwag", f"{_STEM}.previous"
_NEW, _LOCK = f"{_STEM}.new", "wigwag.lock"
_ASIDE = tuple(f"{_STEM}.{number}.corrupt" for number in range(3))
"""Where damaged files go, the newest first; what falls off the end is deleted."""
_VERSIONED = re.compile(r"state-v([0-9]{1,9})\.wigwag")
_UNFIT = (errno.ELOOP, errno.EISDIR, errno.EINVAL, errno.EFBIG, errno.ENXIO)
"""Errors of reading something that is not our file: a link, a directory, a pipe, a file that is too large."""
_REMEDIES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EFBIG: "raise the limit on the size of files",
    errno.EROFS: "mount it writable, or leave out --state-dir",
    errno.EACCES: "give the agent's user the right to write there",
    errno.EPERM: "give the agent's user the right to write there",
    errno.ENOTDIR: "name a directory",
}


class Folder:
    """A private directory by its handle, and the few things that are done with files in it. No decisions.

    Everything goes through the handle and by plain names, and no symbolic link is followed, so what is written stays in
    the directory, whatever else somebody puts there. A file is created anew or not at all.
    """

    def __init__(self, path: Path) -> None:
        """Open the directory; make it if need be."""
        self._path = path
        self._lock: int | None = None
        with suppress(FileExistsError):  # if it is no directory, opening it fails
            path.mkdir(mode=0o700, parents=True)
        self._handle = os.open(path, _FOLDER)

    def here(self) -> bool:
        """Return whether the path still leads to this directory."""
        try:
            there = self._path.stat()
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self._handle))

    def lock(self, name: str) -> bool:
        """Lock the directory until it is closed or the process ends; false if another process has locked it."""
        if self._lock is None:
            handle = os.open(name, _LOCK_FLAGS, 0o600, dir_fd=self._handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(handle)
                if isinstance(error, BlockingIOError):
                    return False
                raise
            self._lock = handle
        return True

    @property
    def locked(self) -> bool:
        """Whether this process has locked it."""
        return self._lock is not None

    def names(self) -> list[str]:
        """Return what is in it."""
        return sorted(os.listdir(self._handle))  # noqa: PTH208 - by its handle

    def read(self, name: str, most: int) -> bytes:
        """Return the content of a file."""
        return read(name, most, self._handle, FLAGS | os.O_NOFOLLOW)

    def head(self, name: str, size: int) -> bytes:
        """Return the beginning of a file."""
        handle = os.open(name, FLAGS | os.O_NOFOLLOW, dir_fd=self._handle)
        try:
            return os.read(handle, size)
        finally:
            os.close(handle)

    def write(self, name: str, data: bytes) -> None:
        """Create a file that only this user may read, and sync it to the disk."""
        handle = os.open(name, _CREATE, 0o600, dir_fd=self._handle)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(handle, left) :]
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name; what had that name before is gone."""
        os.rename(old, new, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def remove(self, name: str) -> None:
        """Delete a file; if there is none, that is fine."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._handle)

    def sync(self) -> None:
        """Sync the directory entries to the disk."""
        os.fsync(self._handle)

    def close(self) -> None:
        """Close the directory and release the lock."""
        for handle in (self._handle, self._lock):
            if handle is not None:
                with suppress(OSError):
                    os.close(handle)
        self._lock = None


@dataclass(frozen=True, slots=True)
class LoadedState:
    """What was read, and what was wrong with it, as text."""

    entries: tuple[StateEntry, ...] = ()
    problems: tuple[str, ...] = ()


class StateDir:
    """The directory. Its methods may be called from any thread, by one at a time."""

    def __init__(self, path: str | Path, most: int = MOST_BYTES, enter: Callable[[Path], Folder] = Folder) -> None:
        """Open a directory, and make it if need be. If that fails it is tried again with each `save`."""
        self._path, self._most, self._open = Path(path).absolute(), most, enter
        self._folder: Folder | None = None
        with suppress(StateError):
            self._enter()  # `load` reports the error

    def load(self) -> LoadedState:
        """Return the newest entries that are whole, if there are any; set aside what is damaged."""
        problems: list[str] = []
        try:
            self._enter()
        except StateError as error:
            problems.append(str(error))
        if self._folder is None:
            return LoadedState((), tuple(problems))
        problems += self._foreign(self._folder)
        entries = self._read(self._folder, CURRENT, problems)
        if entries is None:
            entries = self._read(self._folder, PREVIOUS, problems)
        return LoadedState(entries or (), tuple(problems))

    def save(self, entries: Iterable[StateEntry]) -> int:
        """Make this the newest generation, and return its size; `StateError` if it cannot be, then nothing is lost."""
        data = encode(entries, self._most)
        folder = self._enter()
        try:
            _store(folder, data)
        except OSError as error:
            with suppress(OSError):
                folder.remove(_NEW)
            raise self._failed("the flags could not be saved", error) from error
        return len(data)

    def close(self) -> None:
        """Release the lock, so that another agent can write."""
        if self._folder is not None:
            self._folder.close()
        self._folder = None

    def _enter(self) -> Folder:
        """Return the directory, ours to write in. It may have been deleted, or another be mounted there, meanwhile."""
        try:
            if self._folder is not None and not self._folder.here():
                self.close()
            if self._folder is None:
                self._folder = self._open(self._path)
            if not self._folder.locked:
                if not self._folder.lock(_LOCK):
                    raise StateError(f"{self._path}: another agent keeps its flags there, so this one's are not saved")
                self._folder.remove(_NEW)
        except OSError as error:
            raise self._failed("the state directory cannot be used", error) from error
        return self._folder

    def _foreign(self, folder: Folder) -> Iterator[str]:
        """Report files that another version of wigwag keeps."""
        try:
            names = folder.names()
        except OSError:
            return  # reading reports the error
        for name in names:
            match = _VERSIONED.fullmatch(name)
            if match and int(match[1]) != VERSION:
                yield f"{self._path / name}: left alone, as it is of version {match[1]} of the format, not {VERSION}"

    def _read(self, folder: Folder, name: str, problems: list[str]) -> tuple[StateEntry, ...] | None:
        try:
            return decode(folder.read(name, self._most))
        except FileNotFoundError:
            return None
        except (StateError, OSError) as error:
            problems.append(f"{self._path / name}: not used: {_message(error)}")
            if folder.locked and _damaged(error):
                with suppress(OSError):
                    _set_aside(folder, name, error)
            return None

    def _failed(self, what: str, error: OSError) -> StateError:
        remedy = _REMEDIES.get(error.errno or 0)
        return StateError(f"{self._path}: {what}: {_message(error)}" + (f"; {remedy}" if remedy else ""))


def _store(folder: Folder, data: bytes) -> None:
    """Replace the newest generation. The order of these lines is what makes it safe."""
    folder.remove(_NEW)
    folder.write(_NEW, data)
    if _ours(folder, CURRENT):
        _ours(folder, PREVIOUS)  # or it would be lost
        folder.rename(CURRENT, PREVIOUS)
    folder.rename(_NEW, CURRENT)
    folder.sync()


def _ours(folder: Folder, name: str) -> bool:
    """Return whether this name is a state file of ours; anything else is set aside."""
    try:
        check_version(folder.head(name, HEAD_BYTES))
    except FileNotFoundError:
        return False
    except (StateError, OSError) as error:
        if _damaged(error):
            _set_aside(folder, name, error)
            return False
    return True


def _damaged(error: StateError | OSError) -> bool:
    """Return whether the file itself is bad, and not its permissions or the disk."""
    return isinstance(error, StateError) or error.errno in _UNFIT


def _set_aside(folder: Folder, name: str, error: StateError | OSError) -> None:
    """Rename a file that is of no use. One of another version gets a name of its own: it must not be lost."""
    version = getattr(error, "version", None)
    if version is not None:
        digest = blake2b(folder.read(name, MOST_BYTES), digest_size=8).hexdigest()
        folder.rename(name, f"{_STEM}.{digest}.version-{version}")
        return
    for older, newer in zip(_ASIDE[:0:-1], _ASIDE[-2::-1], strict=True):
        with suppress(OSError):
            folder.rename(newer, older)
    folder.rename(name, _ASIDE[0])


def _message(error: StateError | OSError) -> str:
    return str(error) if isinstance(error, StateError) else error.strerror or str(error)
