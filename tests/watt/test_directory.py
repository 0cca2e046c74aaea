"""A directory that changes all at once, for readers of our own and for a writer that dies at any moment."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.dflag.kubelet import becomes
from tests.pipeline.fakes import run
from tests.sources.disk import reading
from wigwag import dflag
from wigwag.watt.outputs.directory import DirectoryOptions, OutputDirectory, OutputError, OutputFolder

OLD = {"both": b"1", "old": b"1"}
NEW = {"both": b"2", "new": b"2"}


def contents(path: Path) -> dict[str, bytes]:
    """What a reader of `..data` sees."""
    return {file.name: file.read_bytes() for file in (path / "..data").iterdir()}


def visible(path: Path) -> dict[str, bytes]:
    """What somebody sees who knows nothing about generations."""
    return {file.name: file.read_bytes() for file in path.iterdir() if not file.name.startswith("..")}


def names(path: Path) -> list[str]:
    """All names, hidden ones too."""
    return sorted(entry.name for entry in path.iterdir())


def test_files_are_links_into_one_generation(tmp_path: Path) -> None:
    output = OutputDirectory(tmp_path / "out", now=lambda: datetime(2026, 11, 16, 2, 3, 4, 567, UTC))
    assert output.write_now(OLD)
    found = names(tmp_path / "out")
    assert found == ["..2026_11_16_02_03_04.000567", "..data", "both", "old"]
    assert (tmp_path / "out" / "both").readlink() == Path("..data/both")
    assert (tmp_path / "out" / "..data").readlink() == Path(found[0])
    assert visible(tmp_path / "out") == OLD


def test_the_next_generation_replaces_the_files_and_the_generation_before(tmp_path: Path) -> None:
    output = OutputDirectory(tmp_path, now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    output.write_now(OLD)
    assert output.write_now(NEW)
    assert visible(tmp_path) == contents(tmp_path) == NEW
    assert names(tmp_path) == ["..2026_01_01_00_00_00.0000000", "..data", "both", "new"]
    assert output.write_now({})
    assert len(names(tmp_path)) == 2


def test_equal_content_is_not_written_even_by_another_process(tmp_path: Path) -> None:
    OutputDirectory(tmp_path).write_now(OLD)
    before = {path.name: path.lstat().st_mtime_ns for path in tmp_path.iterdir()}
    assert not OutputDirectory(tmp_path).write_now(OLD)
    assert {path.name: path.lstat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert OutputDirectory(tmp_path).write_now({**OLD, "old": b"2"})


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    was = os.umask(0o077)
    try:
        OutputDirectory(tmp_path / "a").write_now(OLD)
        OutputDirectory(tmp_path / "b", DirectoryOptions(file_mode=0o600, directory_mode=0o700)).write_now(OLD)
    finally:
        os.umask(was)
    modes = [oct((tmp_path / name).stat().st_mode & 0o777) for name in ("a/both", "a/..data", "b/both", "b/..data")]
    assert modes == ["0o644", "0o755", "0o600", "0o700"]


@pytest.mark.parametrize("name", ["", ".", "..", "..data", "..a", "a/b", "/a", "a\0b", "x" * 256, "ä" * 128])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    output = OutputDirectory(tmp_path)
    output.write_now(OLD)
    with pytest.raises(OutputError, match=r"cannot be the name of a file; the last generation stays in force"):
        output.write_now({name: b""})
    assert visible(tmp_path) == OLD


@pytest.mark.parametrize("options", [DirectoryOptions(most_files=1), DirectoryOptions(most_bytes=1)])
def test_too_much_is_refused(tmp_path: Path, options: DirectoryOptions) -> None:
    with pytest.raises(OutputError, match="2 files of 2 bytes are more than"):
        OutputDirectory(tmp_path, options).write_now(OLD)


def foreign(path: Path) -> None:
    (path / "mine").write_text("mine")
    (path / ".hidden").write_text("mine")
    (path / "..2026_01_01_00_00_00").mkdir()
    (path / "..2026_01_01_00_00_00.123456").write_text("a file, no generation")
    (path / "elsewhere").symlink_to("..data/other")
    (path / "folder").mkdir()


def test_what_belongs_to_others_stays(tmp_path: Path) -> None:
    foreign(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    output = OutputDirectory(tmp_path)
    for files in (OLD, NEW, {}):
        output.write_now(files)
    after = {path.name for path in tmp_path.iterdir()}
    assert before < after
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("name", ["mine", "folder", "elsewhere"])
def test_what_belongs_to_others_is_not_replaced_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    output = OutputDirectory(tmp_path)
    output.write_now(OLD)
    foreign(tmp_path)
    with pytest.raises(OutputError, match=f"'{name}' is there already, and not ours; move it away"):
        output.write_now({**NEW, name: b""})
    assert contents(tmp_path) == OLD


@pytest.mark.parametrize("name", ["..data", "..data_tmp"])
def test_a_directory_in_the_place_of_a_link_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(OutputError, match="is no symbolic link; move it away"):
        OutputDirectory(tmp_path).write_now(OLD)


def test_a_path_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written: File exists"):
        OutputDirectory(tmp_path / "file").write_now(OLD)


def test_a_generation_that_somebody_removed_is_written_again(tmp_path: Path) -> None:
    output = OutputDirectory(tmp_path)
    output.write_now(OLD)
    (tmp_path / "..data").unlink()
    assert output.write_now(OLD)
    (tmp_path / "..data").unlink()
    (tmp_path / "..data").symlink_to("..2026_01_01_00_00_00.999999")
    assert output.write_now(OLD)
    assert visible(tmp_path) == OLD
    assert len(names(tmp_path)) == 4


class Died(BaseException):
    """The process ends here."""


class Dying(OutputFolder):
    """A folder whose process dies before, or in the middle of, one of its steps."""

    def __init__(self, path: Path, options: DirectoryOptions, step: int, *, half: bool) -> None:
        super().__init__(path, options)
        self.left, self._half = step, half

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name not in ("make", "write", "link", "rename", "unlink", "remove"):
            return value
        self.left -= 1
        if self.left:
            return value
        return {"write": self.half_write, "remove": self.half_remove}.get(name, die) if self._half else die

    def half_write(self, name: str, data: bytes) -> None:
        super().write(name, b"")
        raise Died

    def half_remove(self, name: str) -> None:
        next(iter(sorted((self.path / name).iterdir()))).unlink()
        raise Died


def die(*arguments: object) -> None:
    raise Died


@pytest.mark.parametrize("half", [False, True])
def test_a_crash_before_or_in_any_step_leaves_one_generation_and_the_next_write_repairs_all(
    tmp_path: Path, half: bool
) -> None:
    seen = []
    for step in range(1, 100):
        path = tmp_path / str(step)
        OutputDirectory(path).write_now(OLD)
        dying = OutputDirectory(path, folder=lambda path, options: Dying(path, options, step, half=half))  # noqa: B023
        try:
            dying.write_now(NEW)
        except Died:
            seen.append(contents(path))
            assert seen[-1] in (OLD, NEW)
            # what a reader sees who does not know generations: of one, though perhaps not all of it
            for link in (entry for entry in path.iterdir() if entry.is_symlink()):
                assert link.name.startswith("..") or link.readlink() == Path("..data", link.name)
            last = NEW if step % 2 else {"third": b"3"}
            OutputDirectory(path).write_now(last)
            assert contents(path) == visible(path) == last
            assert len([name for name in names(path) if name.startswith("..")]) == 2
        else:
            break
    assert seen[0] == OLD
    assert seen[-1] == NEW
    assert len(seen) == 9  # mkdir, mkdir, write, write, link, rename, link, unlink, remove
    assert seen == sorted(seen, key=lambda content: content == NEW)


def test_a_crash_of_the_first_write_leaves_no_generation_or_a_whole_one(tmp_path: Path) -> None:
    for step in range(1, 8):
        path = tmp_path / str(step)
        with pytest.raises(Died):
            OutputDirectory(path, folder=lambda path, options: Dying(path, options, step, half=False)).write_now(OLD)  # noqa: B023
        assert not (path / "..data").exists() or contents(path) == OLD
        OutputDirectory(path).write_now(OLD)
        assert visible(path) == OLD


def generation(number: int) -> dict[str, bytes]:
    """Files of which each tells the number, and of which each generation has other ones."""
    names = ("number", f"odd{number % 2}", f"third{number % 3}", f"long{number % 5}")
    return dict.fromkeys(names, b"%d" % number)


def test_a_reader_never_sees_a_mixture_under_rapid_swaps(tmp_path: Path) -> None:
    last = 300

    async def main() -> None:
        path = tmp_path / "out.d"
        output = OutputDirectory(path)
        await output.write(generation(0))
        async with reading(path) as reader, asyncio.TaskGroup() as group:
            group.create_task(write(output))
            seen = [await reader.next()]
            while seen[-1].get("number") != b"%d" % last:
                seen.append(await reader.next())
        output.close()
        assert len(seen) > 5
        for content in seen:
            assert content == generation(int(content["number"]))

    async def write(output: OutputDirectory) -> None:
        for number in range(1, last + 1):
            assert await output.write(generation(number))

    run(main, timeout=150.0)


def test_dynamic_flags_follow_it(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    limit = flags.int("limit", 0)
    output = OutputDirectory(tmp_path)
    output.write_now({"limit": b"1"})
    with dflag.setup(flags, tmp_path) as updater:
        for number in range(2, 30):
            output.write_now({"limit": b"%d" % number})
            becomes(limit, number)
        assert (updater.errors, updater.warnings) == (0, 0)
