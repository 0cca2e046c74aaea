"""The kernel's own words."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.fakes import FakeClock, run, settle
from tests.sources.disk import reading_stream
from wigwag.sources.disk.file import FileWatch, watch_file
from wigwag.sources.disk.follow import FollowDeps
from wigwag.sources.disk.notify import CLOSE_WRITE, CREATE, IGNORED, MODIFY, FileEvent, Inotify, Notifier

if TYPE_CHECKING:
    from collections.abc import Callable


def test_what_happens_in_a_watched_directory_is_told_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        heard: list[FileEvent] = []
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
        assert heard[3:] == [FileEvent(watch, IGNORED, "")]
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


def instances() -> int:
    """How many inotify instances this process has."""
    return sum("inotify" in str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink())


def test_who_follows_many_files_takes_one_instance(tmp_path: Path) -> None:
    async def main() -> None:
        before, notifier, clock = instances(), Notifier(), FakeClock()
        async with AsyncExitStack() as stack:
            readers = []
            for number in range(20):
                path = tmp_path / f"{number}.json"
                path.write_bytes(b"old")
                stream = watch_file(FileWatch(str(path)), FollowDeps(clock, lambda: float("inf"), notifier=notifier))
                readers.append(await stack.enter_async_context(reading_stream(stream, clock)))
                assert await readers[-1].next() == b"old"
            assert instances() == before + 1
            (tmp_path / "7.json").write_bytes(b"new")
            assert await readers[7].next() == b"new"
            assert await readers[8].nothing()
        assert instances() == before, "the last one closes it"

    run(main)


def test_a_subscriber_hears_of_its_own_names_only(tmp_path: Path) -> None:
    async def main() -> None:
        notifier, mine, others = Notifier(), list[FileEvent](), list[FileEvent]()
        one, two = notifier.subscribe(mine.append), notifier.subscribe(others.append)
        assert one
        assert two
        watch = one.add(str(tmp_path), CLOSE_WRITE, ["a"])
        assert two.add(str(tmp_path), CREATE, ["b"]) == watch
        (tmp_path / "a").write_bytes(b"x")
        notifier.drain()
        assert [notice.name for notice in mine if notice.mask == CLOSE_WRITE] == ["a"], "the masks of both count"
        assert not others
        one.retain({})
        (tmp_path / "b").touch()
        notifier.drain()
        assert CREATE in [notice.mask for notice in others], "it goes on for who is left"
        one.close()
        two.close()

    run(main)


def test_a_directory_that_goes_is_told_to_all_who_listen_there(tmp_path: Path) -> None:
    async def main() -> None:
        folder, notifier, heard = tmp_path / "d", Notifier(), list[FileEvent]()
        for _ in range(2):
            folder.mkdir()
            subscription = notifier.subscribe(heard.append)
            assert subscription
            subscription.add(str(folder), CREATE, ["a"])
            folder.rmdir()
            notifier.drain()
            assert heard.pop().mask == IGNORED
            subscription.close()

    run(main)


def refusing(code: int, left: list[int]) -> Callable[[Callable[[FileEvent], None]], Inotify]:
    """Open no instance for so many times."""

    def opened(heard: Callable[[FileEvent], None]) -> Inotify:
        if left[0]:
            left[0] -= 1
            raise OSError(code, os.strerror(code))
        return Inotify(heard)

    return opened


def test_without_an_instance_files_are_polled_once_a_second(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Told once, however many there are; nothing is looked at between two polls."""

    async def main() -> None:
        clock, path, tries = FakeClock(), tmp_path / "f", [1 << 30]
        notifier = Notifier(refusing(errno.EMFILE, tries))
        path.write_bytes(b"old")
        async with AsyncExitStack() as stack:
            readers = []
            for _ in range(10):
                stream = watch_file(FileWatch(str(path)), FollowDeps(clock, lambda: float("inf"), notifier=notifier))
                readers.append(await stack.enter_async_context(reading_stream(stream, clock)))
                assert await readers[-1].next() == b"old"
            used = tries[0]
            for _ in range(100):
                await asyncio.sleep(0)
            assert tries[0] == used, "it does not spin"
            path.write_bytes(b"new")
            await settle()
            assert await readers[0].nothing()
            await clock.advance(1.1)
            assert [await reader.next() for reader in readers] == [b"new"] * 10

    with caplog.at_level(logging.WARNING):
        run(main)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "Too many open files" in message
    assert "max_user_instances" in message


def test_an_instance_that_is_free_later_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        clock, path = FakeClock(), tmp_path / "f"
        path.write_bytes(b"old")
        notifier = Notifier(refusing(errno.EMFILE, [1]))
        stream = watch_file(FileWatch(str(path)), FollowDeps(clock, lambda: float("inf"), notifier=notifier))
        async with reading_stream(stream, clock) as reader:
            assert await reader.next() == b"old"
            path.write_bytes(b"new")
            await clock.advance(1.1)
            assert await reader.next() == b"new"
            path.write_bytes(b"newer")
            assert await reader.next() == b"newer", "heard, and not polled: the clock stands still"

    run(main)
