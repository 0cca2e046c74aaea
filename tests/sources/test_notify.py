"""The kernel's own words."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.fakes import run
from wigwag.sources.notify import CLOSE_WRITE, CREATE, IGNORED, MODIFY, Inotify, Notice

if TYPE_CHECKING:
    from pathlib import Path


def test_what_happens_in_a_watched_directory_is_told_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        heard: list[Notice] = []
        inotify = Inotify(heard.append)
        watch = inotify.add(str(tmp_path), CREATE | MODIFY | CLOSE_WRITE)
        assert inotify.add(str(tmp_path), CREATE | MODIFY | CLOSE_WRITE) == watch
        (tmp_path / "é").write_bytes(b"x")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [(notice.mask, notice.name) for notice in heard] == [(CREATE, "é"), (MODIFY, "é"), (CLOSE_WRITE, "é")]
        inotify.remove(watch)
        inotify.remove(watch)
        (tmp_path / "b").touch()
        inotify.drain()
        assert heard[3:] == [Notice(watch, IGNORED, "")]
        inotify.close()

    run(main)


def test_only_directories_can_be_watched(tmp_path: Path) -> None:
    async def main() -> None:
        inotify = Inotify(lambda notice: None)
        (tmp_path / "f").touch()
        with pytest.raises(NotADirectoryError, match="f"):
            inotify.add(str(tmp_path / "f"), CREATE)
        with pytest.raises(FileNotFoundError, match="missing"):
            inotify.add(str(tmp_path / "missing"), CREATE)
        inotify.close()

    run(main)
