"""A disk in memory, under the product's own code that saves and loads: it fails, loses power, and outlives processes.

What was renamed is sure to be found again only after a sync, as on a real disk. What a process that is killed was about
to do does not happen.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from wigwag.agent.state.directory import Folder, StateDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from wigwag.agent.state.file import StateEntry


class Disk:
    """What is on it, and what would be after a power failure."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._journal: list[dict[str, bytes]] = [{}]
        """Every state since the last sync, oldest first."""
        self.failing = False
        self.dead = False
        self.left: int | None = None
        """How many more things the process does before it is killed; None: any number."""
        self.kept: list[tuple[StateEntry, ...]] = [()]
        """What was saved last, to the end, and after it what was begun since: all that may be found again."""
        self.completed: Callable[[tuple[StateEntry, ...]], None] = lambda entries: None

    def open(self, path: str) -> StateDir:
        """Open it as the agent does."""
        disk = self
        self.dead, self.left = False, None

        class Watched(StateDir):
            def save(self, entries: Iterable[StateEntry]) -> int:
                listed = tuple(entries)
                disk.kept.append(listed)
                size = super().save(listed)
                disk.kept = [listed]
                disk.completed(listed)
                return size

        return Watched(path, enter=lambda path: _Folder(path, disk))

    def power_off(self, share: float) -> None:
        """Lose some of what was not synced."""
        self.files = dict(self._journal[int(share * (len(self._journal) - 1) + 0.5)])
        self._journal = [dict(self.files)]

    def change(self, name: str, data: bytes | None) -> None:
        """Put a file there, or take it away."""
        if data is None:
            self.files.pop(name, None)
        else:
            self.files[name] = data
        self._journal.append(dict(self.files))

    def step(self) -> None:
        """Go on, unless the process is dead, or dies here."""
        if self.left == 0:
            self.dead = True
        if self.dead:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.left is not None:
            self.left -= 1

    def fault(self) -> OSError | None:
        """Return what writing comes to, if it fails."""
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if self.failing else None

    def synced(self) -> None:
        self._journal = [dict(self.files)]


class _Folder(Folder):
    """One process's hold on the disk. (It looks like a directory that nobody else uses.)"""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._disk, self._mine = disk, False

    def here(self) -> bool:
        return True

    def lock(self, name: str) -> bool:
        self._mine = True
        return True

    @property
    def locked(self) -> bool:
        return self._mine

    def names(self) -> list[str]:
        return sorted(self._disk.files)

    def read(self, name: str, most: int) -> bytes:
        if name not in self._disk.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._disk.files[name]

    def head(self, name: str, size: int) -> bytes:
        return self.read(name, size)[:size]

    def write(self, name: str, data: bytes) -> None:
        if not self._disk.dead:
            assert name not in self._disk.files, "a file is created anew or not at all"
            self._disk.change(name, data[: len(data) // 2])  # whatever happens next
        self._disk.step()
        if (fault := self._disk.fault()) is not None:
            raise fault
        self._disk.change(name, data)

    def rename(self, old: str, new: str) -> None:
        self._disk.step()
        data = self.read(old, 0)
        self._disk.files[new] = data
        self._disk.change(old, None)

    def remove(self, name: str) -> None:
        self._disk.step()
        self._disk.change(name, None)

    def sync(self) -> None:
        self._disk.step()
        if (fault := self._disk.fault()) is not None:
            raise fault
        self._disk.synced()

    def close(self) -> None:
        self._mine = False
