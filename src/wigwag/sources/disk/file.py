"""A file: its whole content, when it changes.

It may be changed by an editor, by `mv`, in place, by a symbolic link on its path, or by the kubelet; and the file or
its directory may be missing at first. A file that is compressed with gzip counts as what it holds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wigwag.sources.disk.compressed import decompressed
from wigwag.sources.disk.follow import FileMark, FollowDeps, FollowTiming, follow
from wigwag.sources.disk.listen import Lookup, chain
from wigwag.sources.disk.read import open_beneath, read, read_handle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wigwag.pipeline.spec import Unavailable, Unchanged


@dataclass(frozen=True, slots=True)
class FileWatch:
    """The content of a file."""

    path: str
    most: int = 64 << 20
    """The largest size that is read, in bytes."""
    timing: FollowTiming = FollowTiming()
    root: str = ""
    """The directory that the file must be in, links followed, as an absolute path without links; empty: any."""

    def __str__(self) -> str:
        return f"file:{self.path}"


def watch_file(spec: FileWatch, deps: FollowDeps = FollowDeps()) -> AsyncIterator[bytes | Unavailable | Unchanged]:  # noqa: B008 - a frozen value
    """Yield the content whenever it changes."""
    return follow(_File(str(Path(spec.path).absolute()), spec.most, spec.root), spec.timing, deps)


class _File:
    def __init__(self, path: str, most: int, root: str) -> None:
        self._path, self._most, self._root = path, most, root
        self._name = ""

    def lookups(self) -> tuple[Lookup, ...]:
        lookups = chain(self._path).lookups
        self._name = lookups[-1].name if lookups else ""
        return lookups

    def marks(self) -> tuple[FileMark, ...]:
        return (FileMark.of(self._name, self._stat()),)

    def read(self) -> bytes:
        if not self._root:
            content = read(self._path, self._most)
        else:
            content = read_handle(open_beneath(self._root, self._path), self._path, self._most)
        return decompressed(content, self._path, self._most)

    def _stat(self) -> os.stat_result:
        if not self._root:
            return os.stat(self._path)  # noqa: PTH116 - the path is text
        handle = open_beneath(self._root, self._path)
        try:
            return os.fstat(handle)
        finally:
            os.close(handle)
