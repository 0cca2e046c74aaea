"""Following a file with the kernel's own events. The clock stands still, so what comes in time comes by an event."""

from __future__ import annotations

import asyncio
import gzip
import os
import resource
import shutil
from pathlib import Path

import pytest

from tests.pipeline.fakes import run
from tests.sources.disk import Mount, reading, replace, unprivileged
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Unavailable, Wanted
from wigwag.sources.disk.compressed import decompressed
from wigwag.sources.disk.file import FileWatch, watch_file
from wigwag.sources.disk.follow import FollowTiming

QUEUE = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


def missing(path: Path) -> Unavailable:
    return Unavailable(f"FileNotFoundError: {path}: No such file or directory")


def test_it_yields_the_content_at_once_and_every_change(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"1")
        async with reading(path) as reader:
            assert await reader.next() == b"1"
            path.write_bytes(b"2")
            assert await reader.next() == b"2"
            replace(path, b"3")
            assert await reader.next() == b"3"
            assert reader.clock.now() == 1000.0

    run(main)


def test_a_compressed_file_yields_what_it_holds(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(gzip.compress(b"1"))
        async with reading(path) as reader:
            assert await reader.next() == b"1"
            replace(path, gzip.compress(b"2" * 100))
            assert await reader.next() == b"2" * 100
            replace(path, b"3")
            assert await reader.next() == b"3"

    run(main)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(b"1" * 101), "larger than the limit of 100 bytes"),
        (gzip.compress(b"1")[:-1], "not one whole gzip stream"),
        (gzip.compress(b"1") + b"2", "not one whole gzip stream"),
        (b"\x1f\x8b" + b"?" * 20, "cannot be decompressed"),
    ],
    ids=["large", "short", "long", "garbage"],  # the time of compression is in the content
)
def test_a_compressed_file_that_is_broken_or_too_large_is_an_error(content: bytes, reason: str) -> None:
    assert decompressed(gzip.compress(b"1" * 100), "flags.json", 100) == b"1" * 100
    with pytest.raises(OSError, match=reason):
        decompressed(content, "flags.json", 100)


def test_unchanged_content_is_not_yielded_again(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"1")
        async with reading(path) as reader:
            await reader.next()
            path.write_bytes(b"1")
            replace(path, b"1")
            os.utime(path)
            path.chmod(0o600)
            assert await reader.nothing()
            await reader.clock.advance(60)
            assert await reader.nothing()
            assert reader.confirmed >= 60 // FollowTiming().poll - 1  # but known to hold
            path.write_bytes(b"2")
            assert await reader.next() == b"2"

    run(main)


def test_a_file_written_in_pieces_is_yielded_when_it_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"old")
        async with reading(path) as reader:
            await reader.next()
            with path.open("wb", buffering=0) as file:
                for piece in b"a", b"b", b"c":
                    assert await reader.nothing()
                    file.write(piece)
                assert await reader.nothing()
            assert await reader.next() == b"abc"

    run(main)


def test_a_file_that_is_never_closed_is_yielded_when_it_is_left_alone(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"old")
        async with reading(path) as reader:
            await reader.next()
            with path.open("wb", buffering=0) as file:
                file.write(b"half")
                await reader.clock.advance(0.015)
                file.write(b" and half")
                await reader.clock.advance(0.015)
                assert await reader.nothing()
                await reader.clock.advance(0.005)
                assert await reader.next() == b"half and half"

    run(main)


def test_someone_who_never_stops_writing_is_read_once_in_a_while(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"")
        async with reading(path) as reader:
            await reader.next()
            with path.open("wb", buffering=0) as file:
                for _ in range(250):
                    file.write(b"x")
                    await reader.clock.advance(0.01)
                assert 1 <= len(reader.seen) <= 3

    run(main)


def test_a_file_that_is_young_at_the_start_is_given_a_moment(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"1")
        async with reading(path, wall=path.stat().st_mtime + 0.01) as reader:
            assert await reader.nothing()
            await reader.clock.advance(0.02)
            assert await reader.nothing()  # this wall clock stands still: the file stays young until patience ends
            await reader.clock.advance(1.0)
            assert await reader.next() == b"1"

    run(main)


def test_an_emptied_file_is_given_a_moment_to_be_filled(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"1")
        async with reading(path, wall=0.0) as reader:
            await reader.next()
            path.write_bytes(b"")
            os.utime(path, (0, 0))
            assert await reader.nothing()
            path.write_bytes(b"2")
            assert await reader.next() == b"2"
            path.write_bytes(b"")
            assert await reader.next() == b""

    run(main)


def test_editors_that_move_the_old_file_away_first_do_not_disturb(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"1")
        async with reading(path) as reader:
            await reader.next()
            path.rename(tmp_path / "flags.json~")
            assert await reader.nothing()
            path.write_bytes(b"2")
            assert await reader.next() == b"2"

    run(main)


def test_a_missing_file_is_trouble_and_is_picked_up_when_it_comes(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        async with reading(path) as reader:
            assert await reader.next() == missing(path)
            path.write_bytes(b"1")
            assert await reader.next() == b"1"

    run(main)


def test_a_file_that_goes_and_comes_back_the_same_is_news_because_it_ends_the_trouble(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"1")
        async with reading(path) as reader:
            await reader.next()
            path.unlink()
            await reader.clock.advance(0.04)
            assert await reader.next() == missing(path)
            path.write_bytes(b"1")
            assert await reader.next() == b"1"

    run(main)


def test_missing_directories_are_followed_as_they_come(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "a" / "b" / "flags.json"
        async with reading(path) as reader:
            assert await reader.next() == missing(path)
            path.parent.parent.mkdir()
            assert await reader.nothing()
            path.parent.mkdir()
            assert await reader.nothing()
            path.write_bytes(b"1")
            assert await reader.next() == b"1"

    run(main)


def test_directories_that_come_with_the_file_in_them_are_found(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "a" / "b" / "flags.json"
        async with reading(path) as reader:
            await reader.next()
            path.parent.mkdir(parents=True)
            path.write_bytes(b"1")
            assert await reader.next() == b"1"

    run(main)


def test_a_directory_that_is_replaced_is_followed(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "a" / "b" / "flags.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"1")
        async with reading(path) as reader:
            await reader.next()
            (tmp_path / "new" / "b").mkdir(parents=True)
            (tmp_path / "new" / "b" / "flags.json").write_bytes(b"2")
            (tmp_path / "a").rename(tmp_path / "old")
            (tmp_path / "new").rename(tmp_path / "a")
            assert await reader.next() == b"2"
            (tmp_path / "old" / "b" / "flags.json").write_bytes(b"not this one")
            assert await reader.nothing()
            path.write_bytes(b"3")
            assert await reader.next() == b"3"
            shutil.rmtree(tmp_path / "a")
            await reader.clock.advance(0.02)
            assert await reader.next() == missing(path)
            path.parent.mkdir(parents=True)
            path.write_bytes(b"4")
            assert await reader.next() == b"4"

    run(main)


def test_a_linked_file_is_followed_at_both_ends(tmp_path: Path) -> None:
    async def main() -> None:
        for name in "here", "there", "elsewhere":
            (tmp_path / name).mkdir()
        path, target, other = (
            tmp_path / "here/link",
            tmp_path / "there/flags.json",
            tmp_path / "elsewhere/flags.json",
        )
        target.write_bytes(b"1")
        other.write_bytes(b"3")
        path.symlink_to("../there/flags.json")
        async with reading(path) as reader:
            assert await reader.next() == b"1"
            target.write_bytes(b"2")
            assert await reader.next() == b"2"
            (tmp_path / "here/next").symlink_to(other)
            (tmp_path / "here/next").rename(path)
            assert await reader.next() == b"3"
            target.write_bytes(b"not this one")
            replace(other, b"4")
            assert await reader.next() == b"4"

    run(main)


def test_a_key_of_a_mounted_config_map_is_followed_through_its_swaps(tmp_path: Path) -> None:
    async def main() -> None:
        mount = Mount(tmp_path / "config")
        mount.write({"flags.json": b"0", "other": b""})
        async with reading(mount.path / "flags.json", wall=0.0) as reader:
            assert await reader.next() == b"0"
            for number in range(1, 20):
                mount.write({"flags.json": b"%d" % number})
                assert await reader.next() == b"%d" % number

    run(main)


def test_links_that_go_round_in_circles_are_trouble(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "loop"
        path.symlink_to("loop")
        async with reading(path) as reader:
            assert "Too many levels of symbolic links" in (await reader.next()).reason
            path.unlink()
            path.write_bytes(b"1")
            assert await reader.next() == b"1"

    run(main)


def test_what_may_not_be_read_is_trouble_with_a_clear_text(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "directory").mkdir()
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "large").write_bytes(b"12345")
        for name, text in [
            ("directory", "IsADirectoryError: {}: a directory, where a file is expected"),
            ("pipe", "OSError: {}: not a regular file"),
            ("large", "OSError: {}: larger than the limit of 4 bytes"),
        ]:
            async with reading(tmp_path / name, most=4) as reader:
                assert (await reader.next()).reason == text.format(tmp_path / name)
        async with reading(tmp_path / "large", most=4) as reader:
            await reader.next()
            (tmp_path / "large").write_bytes(b"1234")
            assert await reader.next() == b"1234"

    run(main)


def test_a_file_without_permission_is_trouble_until_it_has_it() -> None:
    async def main() -> None:
        with unprivileged() as folder:
            path = folder / "flags.json"
            path.write_bytes(b"1")
            path.chmod(0)
            async with reading(path) as reader:
                assert await reader.next() == Unavailable(f"PermissionError: {path}: Permission denied")
                path.chmod(0o600)
                await reader.clock.advance(0.02)
                assert await reader.next() == b"1"

    run(main)


def test_a_large_file_is_read_whole(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"x" * (3 << 20))
        async with reading(path) as reader:
            assert len(await reader.next()) == 3 << 20

    run(main)


def test_without_events_the_net_catches_changes(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        async with reading(path, inotify=False) as reader:
            assert await reader.next() == missing(path)
            path.write_bytes(b"1")
            assert await reader.nothing()
            await reader.clock.advance(1.0)
            assert await reader.next() == b"1"
            replace(path, b"2")
            await reader.clock.advance(1.0)
            assert await reader.next() == b"2"
            path.unlink()
            await reader.clock.advance(1.02)
            assert await reader.next() == missing(path)

    run(main)


def test_an_overflow_of_the_kernels_queue_is_a_reason_to_look(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"0")
        async with reading(path) as reader:
            await reader.next()
            for _ in range(QUEUE // 3):  # of each of which the kernel tells four things
                (tmp_path / "a").touch()
                (tmp_path / "a").unlink()
            path.write_bytes(b"1")
            assert await reader.next() == b"1"

    run(main)


def test_where_no_watch_can_be_had_it_looks_by_itself(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"1")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with (tmp_path / "probe").open("wb") as probe:
            resource.setrlimit(resource.RLIMIT_NOFILE, (probe.fileno(), hard))  # no handle left for inotify
            try:
                stream = reading(path)
                reader = await stream.__aenter__()
                assert isinstance(await reader.next(), Unavailable)  # nor for the file
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await reader.clock.advance(1.0)
        assert await reader.next() == b"1"
        await stream.__aexit__(None, None, None)

    run(main)


def test_nothing_stays_open(tmp_path: Path) -> None:
    def handles() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    async def main() -> None:
        path = tmp_path / "flags.json"
        path.write_bytes(b"1")
        before = handles()
        for _ in range(5):
            async with reading(path) as reader:
                await reader.next()
                assert handles() == before + 1
        assert handles() == before

    run(main)


def test_several_files_become_one_picture(tmp_path: Path) -> None:
    async def main() -> None:
        paths = [tmp_path / name for name in ("low.json", "high.json")]
        specs = [FileWatch(str(path)) for path in paths]
        pipeline: Pipeline[FileWatch, bytes, tuple[bytes, ...]] = Pipeline(
            map(Wanted, specs), watch_file, lambda values: tuple(values.values())
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(pipeline.run())
            paths[1].write_bytes(b"high")
            while [status.state for status in pipeline.statuses()] != ["failing", "live"]:
                await pipeline.status_changes.after(pipeline.status_changes.serial)
            assert pipeline.published.serial == 0
            paths[0].write_bytes(b"low")
            assert await pipeline.published.after(0) == (1, (b"low", b"high"))
            replace(paths[1], b"higher")
            assert await pipeline.published.after(1) == (2, (b"low", b"higher"))
            running.cancel()

    run(main)
