"""Files that must be in a directory, whatever links there are."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.pipeline.fakes import run
from tests.sources.disk import reading
from wigwag.pipeline.spec import Unavailable
from wigwag.sources.disk.read import open_beneath


def content(root: Path, path: Path) -> bytes:
    handle = open_beneath(str(root), str(path))
    try:
        return os.read(handle, 100)
    finally:
        os.close(handle)


def mounted(root: Path) -> Path:
    """A volume as the kubelet mounts it, in a directory."""
    generation = root / "..2024_1"
    generation.mkdir(parents=True)
    (generation / "flags.json").write_bytes(b"one")
    (root / "..data").symlink_to("..2024_1")
    (root / "flags.json").symlink_to("..data/flags.json")
    return root


def test_links_within_the_directory_are_followed(tmp_path: Path) -> None:
    root = mounted(tmp_path / "root")
    (root / "sub").mkdir()
    (root / "sub" / "up.json").symlink_to("../flags.json")
    (root / "sub" / "absolute.json").symlink_to(root / "flags.json")
    for name in ("flags.json", "..data/flags.json", "sub/up.json", "sub/absolute.json", "./sub/../flags.json"):
        assert content(root, root / name) == b"one", name


def test_the_root_itself_may_be_everything(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one")
    assert content(Path("/"), tmp_path / "f") == b"one"


@pytest.mark.parametrize("target", ["../outside", "{}/outside", "sub/../../outside", "away/outside"])
def test_links_that_lead_out_are_refused(tmp_path: Path, target: str) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"secret")
    (root / "away").symlink_to("..")
    (root / "link").symlink_to(target.format(tmp_path))
    with pytest.raises(PermissionError, match="leads out"):
        content(root, root / "link")


@pytest.mark.parametrize("name", ["rootier/f", "other"])
def test_a_path_outside_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "root").mkdir()
    with pytest.raises(OSError, match="leads out"):
        open_beneath(str(tmp_path / "root"), str(tmp_path / name))


def test_links_that_lead_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        open_beneath(str(tmp_path), str(tmp_path / "a"))


def test_no_handle_is_left_open(tmp_path: Path) -> None:
    root = mounted(tmp_path / "root")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("flags.json", "missing", "flags.json/x"):
        with suppress(OSError):
            content(root, root / name)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_file_that_is_turned_into_a_link_out_is_not_read(tmp_path: Path) -> None:
    """What was fine when it was chosen must be fine each time it is read."""

    async def main() -> None:
        root = tmp_path / "root"
        root.mkdir()
        (tmp_path / "secret").write_bytes(b"secret")
        (root / "f").write_bytes(b"one")
        async with reading(root / "f", root=str(root)) as reader:
            assert await reader.next() == b"one"
            (tmp_path / "link").symlink_to(tmp_path / "secret")
            (tmp_path / "link").replace(root / "f")
            await reader.nothing()
            await reader.clock.advance(1.1)
            await reader.clock.advance(1.1)
            trouble = await reader.next()
            assert isinstance(trouble, Unavailable)
            assert "leads out" in trouble.reason

    run(main)


def test_a_mounted_volume_is_followed_to_its_next_generation(tmp_path: Path) -> None:
    async def main() -> None:
        root = mounted(tmp_path / "root")
        async with reading(root / "flags.json", root=str(root)) as reader:
            assert await reader.next() == b"one"
            (root / "..2024_2").mkdir()
            (root / "..2024_2" / "flags.json").write_bytes(b"two")
            (root / "..data_tmp").symlink_to("..2024_2")
            (root / "..data_tmp").replace(root / "..data")
            assert await reader.next() == b"two"

    run(main)
