"""What happens on disk, as editors and the kubelet do it, and a reader that a test can ask for the next value."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.pipeline.fakes import FakeClock, settle
from wigwag.pipeline.spec import UNCHANGED
from wigwag.sources.disk.directory import DirectoryWatch, watch_directory
from wigwag.sources.disk.file import FileWatch, watch_file
from wigwag.sources.disk.follow import FollowDeps

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder of somebody who may not read everything, and being that somebody: root may."""
    nobody, was = 65534, os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        if was == 0:
            os.chown(folder, nobody, nobody)
            os.seteuid(nobody)
        try:
            yield Path(folder)
        finally:
            os.seteuid(was)


def replace(path: Path, content: bytes) -> None:
    """Write beside it and rename, as careful programs do."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.rename(path)


class Mount:
    """A mounted ConfigMap, written in the order in which the kubelet writes."""

    def __init__(self, path: Path) -> None:
        self.path, self._number = path, count()
        path.mkdir(exist_ok=True)

    def write(self, content: Mapping[str, bytes]) -> None:
        link = self.path / "..data"
        old = self.path / link.readlink() if link.is_symlink() else None
        new = self.path / f"..2026_01_01_00_00_00.{next(self._number)}"
        new.mkdir()
        for name, data in content.items():
            (new / name).write_bytes(data)
        (self.path / "..data_tmp").symlink_to(new.name)
        (self.path / "..data_tmp").rename(link)
        for name in content:
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(f"..data/{name}")
        for visible in self.path.iterdir():
            if not visible.name.startswith("..") and visible.name not in content:
                visible.unlink()
        if old is not None:
            shutil.rmtree(old)


class Reader:
    """Reads a stream in the background; the test asks for what has come."""

    def __init__(self, stream: AsyncIterator[Any], clock: FakeClock) -> None:
        self._stream, self.clock = stream, clock
        self.seen: list[Any] = []
        self.confirmed = 0
        """How often it was told that the last value still holds."""
        self._came = asyncio.Event()

    async def read(self) -> None:
        try:
            async for item in self._stream:
                if item is UNCHANGED:
                    self.confirmed += 1
                    continue
                self.seen.append(item)
                self._came.set()
        finally:
            await self._stream.aclose()  # type: ignore[attr-defined]

    async def next(self) -> Any:
        """Return the next value, which must come by itself: this does not move the time."""
        while not self.seen:
            self._came.clear()
            await self._came.wait()
        return self.seen.pop(0)

    async def nothing(self) -> bool:
        """Tell whether nothing has come, after everybody had a chance to look at what the kernel told."""
        await settle()
        return not self.seen


@asynccontextmanager
async def reading(
    path: Path, *, inotify: bool = True, wall: float = float("inf"), **spec: Any
) -> AsyncIterator[Reader]:
    """Follow a file, or a directory if the path ends with `.d`, on a clock that stands still."""
    clock = FakeClock()
    deps = FollowDeps(clock, lambda: wall, inotify)
    directory = path.name.endswith(".d")
    stream: AsyncIterator[Any] = (
        watch_directory(DirectoryWatch(str(path), **spec), deps)
        if directory
        else watch_file(FileWatch(str(path), **spec), deps)
    )
    async with reading_stream(stream, clock) as reader:
        yield reader


@asynccontextmanager
async def reading_stream(stream: AsyncIterator[Any], clock: FakeClock) -> AsyncIterator[Reader]:
    """Read a stream beside the test."""
    reader = Reader(stream, clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.read())
        yield reader
        task.cancel()
