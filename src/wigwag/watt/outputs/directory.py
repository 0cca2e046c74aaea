"""The directory output: files that change together, written as the kubelet writes a mounted ConfigMap.

    DIR/name ─▶ ..data/name        for people and programs; links that never change
    DIR/..data ─▶ ..2026_11_16_…   one generation; replaced by renaming ..data_tmp over it
    DIR/..2026_11_16_…/name        the files

The rename is the only moment at which anything changes for a reader of `..data`, so a reader sees one generation, and a
writer that dies between any two steps leaves the old one or the new one. What such a writer leaves behind is removed by
the next write, which also finishes what was not finished: links to new files, and links of files that are gone.

Only what looks like ours is touched: `..data`, `..data_tmp`, directories with the name of a generation, and links to
`..data/…` of the same name. Anything else is left alone, and an error if it is in the way; nothing is written then.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from wigwag.background import BackgroundWorker
from wigwag.errors import WigwagError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DATA, _TEMPORARY = "..data", "..data_tmp"
_GENERATION = re.compile(r"\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d{6,}")
_NAME = re.compile(r"(?!\.{1,2}$|\.\.)[^/\0]{1,255}")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class OutputError(WigwagError):
    """The output directory cannot be written; what is there stays in force."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}; the last generation stays in force")


@dataclass(frozen=True, slots=True)
class DirectoryOptions:
    """Modes and limits of an output directory."""

    file_mode: int = 0o644
    directory_mode: int = 0o755
    most_files: int = 10_000
    most_bytes: int = 256 << 20
    """All files together."""


def is_file_name(name: str) -> bool:
    """Tell whether a file of an output directory can have this name; `..` at the beginning is for generations.

    >>> is_file_name("services.json"), is_file_name("a/b"), is_file_name("..data")
    (True, False, False)
    """
    return bool(_NAME.fullmatch(name)) and len(os.fsencode(name)) <= 255


class OutputFolder:
    """The steps of a write, each of them one change on disk. No decisions."""

    def __init__(self, path: Path, options: DirectoryOptions) -> None:
        self.path, self._options = path, options

    def make(self, name: str = "") -> None:
        """Make a directory of the output, or the output itself."""
        path = self.path / name
        path.mkdir(parents=not name, exist_ok=not name)
        if name:
            path.chmod(self._options.directory_mode)  # whatever the umask is

    def write(self, name: str, data: bytes) -> None:
        """Create a file."""
        handle = os.open(self.path / name, _CREATE, self._options.file_mode)
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, self._options.file_mode)
            file.write(data)

    def link(self, name: str, target: str) -> None:
        """Create a symbolic link."""
        (self.path / name).symlink_to(target)

    def rename(self, old: str, new: str) -> None:
        """Rename over whatever has the name."""
        (self.path / old).rename(self.path / new)

    def unlink(self, name: str) -> None:
        """Remove a link."""
        (self.path / name).unlink()

    def remove(self, name: str) -> None:
        """Remove a generation."""
        shutil.rmtree(self.path / name)


class OutputDirectory:
    """Writes files into one directory. Only one of them may write there."""

    def __init__(
        self,
        path: str | Path,
        options: DirectoryOptions = DirectoryOptions(),  # noqa: B008 - a frozen value
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        folder: Callable[[Path, DirectoryOptions], OutputFolder] = OutputFolder,
    ) -> None:
        self._path, self._options, self._now = Path(path).absolute(), options, now
        self._folder = folder(self._path, options)
        self._worker = BackgroundWorker("watt directory")

    async def write(self, files: Mapping[str, bytes]) -> bool:
        """Make these the files of the directory, in a thread; return whether they were others before."""
        return await self._worker.send(lambda: self.write_now(files))

    def close(self) -> None:
        """End the thread."""
        self._worker.dismiss()

    def write_now(self, files: Mapping[str, bytes]) -> bool:
        """Make these the files of the directory; `OutputError` if that is not possible."""
        self._check(files)
        try:
            self._folder.make()
            self._free(files)
            current = self._current()
            self._clean(current)
            changed = current is None or not self._equal(current, files)
            if changed:
                self._swap(files)
            self._links(files)
            if changed and current is not None:
                self._folder.remove(current)
        except OSError as error:
            raise OutputError(self._path, f"cannot be written: {error.strerror or error}") from error
        return changed

    def _check(self, files: Mapping[str, bytes]) -> None:
        for name in files:
            if not is_file_name(name):
                raise OutputError(self._path, f"{name[:60]!r} cannot be the name of a file")
        size = sum(map(len, files.values()))
        if len(files) > self._options.most_files or size > self._options.most_bytes:
            limits = f"{self._options.most_files} files or {self._options.most_bytes >> 20} MiB"
            raise OutputError(self._path, f"{len(files)} files of {size} bytes are more than {limits}")

    def _free(self, files: Mapping[str, bytes]) -> None:
        """See that nothing of others has a name that is needed."""
        for name in files:
            if os.path.lexists(self._path / name) and not self._ours(name):
                raise OutputError(self._path, f"{name!r} is there already, and not ours; move it away")
        for name in (DATA, _TEMPORARY):
            if os.path.lexists(self._path / name) and not (self._path / name).is_symlink():
                raise OutputError(self._path, f"{name!r} is no symbolic link; move it away")

    def _ours(self, name: str) -> bool:
        path = self._path / name
        return path.is_symlink() and os.fspath(path.readlink()) == f"{DATA}/{name}"

    def _current(self) -> str | None:
        """Return the name of the generation in force, if it is one of ours."""
        with suppress(FileNotFoundError):
            target = os.fspath((self._path / DATA).readlink())
            return target if self._is_generation(target) else None
        return None

    def _is_generation(self, name: str) -> bool:
        """Return whether this is a directory that only we can have made."""
        try:
            return bool(_GENERATION.fullmatch(name)) and stat.S_ISDIR((self._path / name).lstat().st_mode)
        except FileNotFoundError:
            return False

    def _clean(self, current: str | None) -> None:
        """Remove what writers that died have left."""
        for name in sorted(os.listdir(self._path)):  # noqa: PTH208 - names
            if name == _TEMPORARY:
                self._folder.unlink(name)
            elif name != current and self._is_generation(name):
                self._folder.remove(name)

    def _equal(self, generation: str, files: Mapping[str, bytes]) -> bool:
        """Return whether a generation has these files: names and sizes first, because contents may be large."""
        folder = self._path / generation
        with os.scandir(folder) as entries:
            sizes = {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries}
        return sizes == {name: len(data) for name, data in files.items()} and all(
            (folder / name).read_bytes() == data for name, data in files.items()
        )

    def _swap(self, files: Mapping[str, bytes]) -> None:
        """Write a generation and put it in force. The order of these lines is what makes it safe."""
        name = self._now().strftime("..%Y_%m_%d_%H_%M_%S.%f")
        while os.path.lexists(self._path / name):
            name += "0"
        self._folder.make(name)
        for file, data in files.items():
            self._folder.write(f"{name}/{file}", data)
        self._folder.link(_TEMPORARY, name)
        self._folder.rename(_TEMPORARY, DATA)

    def _links(self, files: Mapping[str, bytes]) -> None:
        """Link to files that are new, and remove links of files that are gone."""
        for name in files:
            if not os.path.lexists(self._path / name):
                self._folder.link(name, f"{DATA}/{name}")
        for name in sorted(os.listdir(self._path)):  # noqa: PTH208 - names
            if name not in files and self._ours(name):
                self._folder.unlink(name)
