"""Following a directory: always one generation, never a mixture."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.fakes import run
from tests.sources.disk import Mount, reading, replace, unprivileged
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.pipeline.watch import closing
from wigwag.sources.disk.directory import DirectoryWatch, watch_directory
from wigwag.sources.disk.follow import FollowDeps, FollowTiming

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_plain_directory_is_followed_file_by_file(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "conf.d"
        path.mkdir()
        (path / "a").write_bytes(b"1")
        (path / "sub").mkdir()
        (path / ".hidden").write_bytes(b"")
        (path / "dangling").symlink_to("nowhere")
        async with reading(path) as reader:
            assert await reader.next() == {"a": b"1"}
            (path / "b").write_bytes(b"2")
            assert await reader.next() == {"a": b"1", "b": b"2"}
            replace(path / "a", b"3")
            assert await reader.next() == {"a": b"3", "b": b"2"}
            (path / ".hidden").write_bytes(b"x")
            assert await reader.nothing()
            (path / "b").unlink()
            await reader.clock.advance(0.02)
            assert await reader.next() == {"a": b"3"}

    run(main)


def test_one_file_that_is_being_written_holds_back_the_others(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "conf.d"
        path.mkdir()
        async with reading(path) as reader:
            assert await reader.next() == {}
            with (path / "a").open("wb", buffering=0) as file:
                file.write(b"half")
                (path / "b").write_bytes(b"whole")
                assert await reader.nothing()
                file.write(b" half")
            assert await reader.next() == {"a": b"half half", "b": b"whole"}

    run(main)


def test_a_file_that_is_young_at_the_start_is_given_a_moment_but_not_in_a_swapped_directory(tmp_path: Path) -> None:
    async def main() -> None:
        path, mount = tmp_path / "plain.d", Mount(tmp_path / "mount.d")
        path.mkdir()
        (path / "a").write_bytes(b"1")
        now = (path / "a").stat().st_mtime
        async with reading(path, wall=now + 0.01) as reader:
            assert await reader.nothing()
        mount.write({"a": b"1"})
        async with reading(mount.path, wall=(mount.path / "a").stat().st_mtime) as reader:
            assert await reader.next() == {"a": b"1"}

    run(main)


def test_a_missing_directory_is_trouble_until_it_comes(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "mnt" / "conf.d"
        async with reading(path) as reader:
            assert await reader.next() == Unavailable(f"FileNotFoundError: {path}: No such file or directory")
            path.parent.mkdir()
            mount = Mount(path)
            assert await reader.next() == {}
            mount.write({"a": b"1"})
            assert await reader.next() == {"a": b"1"}

    run(main)


def test_a_mounted_config_map_is_read_at_every_swap_with_keys_that_come_and_go(tmp_path: Path) -> None:
    async def main() -> None:
        mount = Mount(tmp_path / "conf.d")
        mount.write({"a": b"1"})
        async with reading(mount.path) as reader:
            for content in {"a": b"1"}, {"a": b"2", "b": b"2"}, {"b": b"3"}, {}, {"a": b"5"}:
                if content != {"a": b"1"}:
                    mount.write(content)
                assert await reader.next() == content

    run(main)


def test_a_swap_without_a_change_is_no_news(tmp_path: Path) -> None:
    async def main() -> None:
        mount = Mount(tmp_path / "conf.d")
        mount.write({"a": b"1"})
        async with reading(mount.path) as reader:
            await reader.next()
            mount.write({"a": b"1"})
            assert await reader.nothing()
            mount.write({"a": b"2"})
            assert await reader.next() == {"a": b"2"}

    run(main)


def test_a_volume_whose_data_leads_nowhere_is_trouble_and_not_empty(tmp_path: Path) -> None:
    async def main() -> None:
        mount = Mount(tmp_path / "conf.d")
        (mount.path / "..data").symlink_to("..gone")
        (mount.path / "a").symlink_to("..data/a")
        async with reading(mount.path) as reader:
            assert "..data leads nowhere" in (await reader.next()).reason
            (mount.path / "..gone").mkdir()
            assert await reader.next() == {}

    run(main)


def test_all_files_together_have_a_limit(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "conf.d"
        path.mkdir()
        for name in "ab":
            (path / name).write_bytes(b"123")
        async with reading(path, most=5) as reader:
            assert (await reader.next()).reason == f"OSError: {path}: larger than the limit of 5 bytes"
            (path / "b").write_bytes(b"12")
            assert await reader.next() == {"a": b"123", "b": b"12"}

    run(main)


def test_a_file_that_may_not_be_read_is_trouble_and_not_missing() -> None:
    async def main() -> None:
        with unprivileged() as folder:
            path = folder / "conf.d"
            path.mkdir()
            (path / "a").write_bytes(b"1")
            (path / "a").chmod(0)
            async with reading(path) as reader:
                assert (await reader.next()).reason == f"PermissionError: {path}/a: Permission denied"

    run(main)


def test_without_events_the_net_catches_a_swap(tmp_path: Path) -> None:
    async def main() -> None:
        mount = Mount(tmp_path / "conf.d")
        mount.write({"a": b"1"})
        async with reading(mount.path, inotify=False) as reader:
            assert await reader.next() == {"a": b"1"}
            mount.write({"a": b"2"})
            assert await reader.nothing()
            await reader.clock.advance(1.0)
            assert await reader.next() == {"a": b"2"}

    run(main)


def generations(random: Random) -> Iterator[dict[str, bytes]]:
    """Contents of one generation have the same number in every file, and tell how many files there are."""
    for number in range(200):
        names = random.sample("abcdefgh", random.randint(1, 8))
        yield {name: b"%d of %d " % (number, len(names)) * random.randint(1, 500) for name in names}


def check(content: dict[str, bytes]) -> int:
    """See that this is one whole generation, and return its number."""
    words = {tuple(data.split()[:3]) for data in content.values()}
    ((number, _, total),) = words
    assert int(total) == len(content)
    return int(number)


@pytest.mark.parametrize("inotify", [True, False])
def test_of_200_random_swaps_every_content_seen_is_of_one_generation_and_the_last_arrives(
    tmp_path: Path, inotify: bool
) -> None:
    async def main() -> None:
        mount, contents = Mount(tmp_path / "conf.d"), list(generations(Random(1)))
        mount.write(contents[0])

        def swap() -> None:
            for content in contents[1:]:
                mount.write(content)

        seen: list[int] = []
        spec = DirectoryWatch(str(mount.path), timing=FollowTiming(poll=0.01, poll_alone=0.0001))
        async with (
            closing(watch_directory(spec, FollowDeps(inotify=inotify))) as stream,
            asyncio.TaskGroup() as group,
        ):
            async for content in stream:
                assert not isinstance(content, Unavailable), content
                if content is UNCHANGED:
                    continue
                if not seen:
                    group.create_task(asyncio.to_thread(swap))
                seen.append(check(content))
                if content == contents[-1]:
                    break
        assert seen == sorted(seen)
        assert len(set(seen)) > 1

    run(main)
