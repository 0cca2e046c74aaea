"""A directory by its handle, and the few things that are done with files in it. No decisions.

Everything goes through the handle and by plain names, and no symbolic link is followed, so what is written stays in the
directory, whatever else somebody puts there. A file is created anew or not at all.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from wigwag.sources.disk.read import FLAGS, read

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Folder:
    """A private directory."""

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
            handle = os.open(name, _LOCK, 0o600, dir_fd=self._handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return False
            except OSError:
                os.close(handle)
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
