"""The state directory: generations, damage, versions, company, and tricks."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.state.writer import generation, intercepted
from wigwag.agent.state.directory import CURRENT, PREVIOUS, LoadedState, StateDir
from wigwag.agent.state.file import StateEntry, encode
from wigwag.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALL = (StateEntry("k", "n", b'{"flags":[]}', 1.0),)
OTHER = (StateEntry("k", "n", b'{"flags":[{}]}', 2.0),)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateDir]:
    opened = StateDir(tmp_path / "state")
    yield opened
    opened.close()


@pytest.fixture
def folder(store: StateDir, tmp_path: Path) -> Path:
    return tmp_path / "state"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "wigwag.lock")


def test_what_is_saved_is_loaded_by_the_next_process(store: StateDir, folder: Path) -> None:
    assert store.load() == LoadedState()
    assert store.save(generation(1)) == (folder / CURRENT).stat().st_size
    store.save(generation(2))
    store.close()
    again = StateDir(str(folder))
    assert again.load() == LoadedState(generation(2))
    assert names(folder) == [PREVIOUS, CURRENT]
    again.close()


def test_nobody_else_may_read_it(store: StateDir, folder: Path) -> None:
    store.save(SMALL)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_no_sources_are_something_to_save(store: StateDir) -> None:
    store.save(generation(1))
    store.save(())
    assert store.load() == LoadedState()


def test_a_damaged_file_is_set_aside_and_the_generation_before_is_used(store: StateDir, folder: Path) -> None:
    store.save(generation(1))
    store.save(generation(2))
    whole = (folder / CURRENT).read_bytes()
    damaged = whole[:-1] + bytes((whole[-1] ^ 1,))
    (folder / CURRENT).write_bytes(damaged)
    loaded = store.load()
    assert loaded.entries == generation(1)
    assert loaded.problems == (
        f"{folder / CURRENT}: not used: the file is damaged: its checksum is not that of its content",
    )
    assert (folder / "state-v1.0.corrupt").read_bytes() == damaged
    assert store.load() == LoadedState(generation(1))
    store.save(generation(3))
    assert store.load() == LoadedState(generation(3))
    assert names(folder) == ["state-v1.0.corrupt", PREVIOUS, CURRENT]


def test_wherever_a_byte_is_wrong_or_the_end_missing_it_is_the_generation_before(store: StateDir, folder: Path) -> None:
    whole = encode(OTHER)
    for place in range(len(whole)):
        for damaged in (whole[:place], whole[:place] + bytes((whole[place] ^ 0xFF,)) + whole[place + 1 :]):
            (folder / PREVIOUS).write_bytes(encode(SMALL))
            (folder / CURRENT).write_bytes(damaged)
            loaded = store.load()
            assert loaded.entries == SMALL
            assert len(loaded.problems) == 1


def test_if_both_generations_are_damaged_there_is_nothing_and_all_of_it_is_told(store: StateDir, folder: Path) -> None:
    for number in range(10):
        for name in (CURRENT, PREVIOUS):
            (folder / name).write_bytes(b"%d %s" % (number, name.encode()))
        loaded = store.load()
        assert loaded.entries == ()
        assert [CURRENT in loaded.problems[0], PREVIOUS in loaded.problems[1]] == [True, True]
    assert names(folder) == [f"state-v1.{number}.corrupt" for number in range(3)]
    assert (folder / "state-v1.0.corrupt").read_bytes() == b"9 " + PREVIOUS.encode()


def test_what_was_left_of_an_unfinished_write_goes_away(store: StateDir, folder: Path) -> None:
    store.close()
    (folder / "state-v1.new").write_bytes(b"unfinished")
    again = StateDir(folder)
    assert names(folder) == []
    assert again.load() == LoadedState()
    again.close()


def test_a_newer_wigwags_file_is_left_alone_and_told(store: StateDir, folder: Path) -> None:
    (folder / "state-v2.wigwag").write_bytes(b"from the future")
    store.save(SMALL)
    loaded = store.load()
    assert loaded.entries == SMALL
    assert loaded.problems == (f"{folder / 'state-v2.wigwag'}: left alone, as it is of version 2 of the format, not 1",)
    assert (folder / "state-v2.wigwag").read_bytes() == b"from the future"


@pytest.mark.parametrize("look_first", [True, False])
@pytest.mark.parametrize("name", [CURRENT, PREVIOUS])
def test_another_version_under_our_name_is_never_lost(
    store: StateDir, folder: Path, name: str, look_first: bool
) -> None:
    kept = []
    for number in range(6):
        whole = encode([StateEntry("k", "n", b"%d" % number, 1.0)])
        newer = whole[:8] + struct.pack(">I", 7) + whole[12:]
        (folder / CURRENT).write_bytes(encode(SMALL))
        (folder / name).write_bytes(newer)
        kept.append(newer)
        if look_first:
            store.load()
        for later in range(3):
            store.save(generation(later))
        assert store.load() == LoadedState(generation(2))
    found = [path.read_bytes() for path in folder.iterdir() if path.name.endswith(".version-7")]
    assert sorted(found) == sorted(kept)


def test_a_second_agent_reads_and_does_not_write_until_the_first_is_gone(store: StateDir, folder: Path) -> None:
    store.save(generation(1))
    second = StateDir(folder)
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    loaded = second.load()
    assert len(list(Path("/proc/self/fd").iterdir())) <= open_files
    assert loaded.entries == generation(1)
    assert loaded.problems == (f"{folder}: another agent keeps its flags there, so this one's are not saved",)
    with pytest.raises(StateError, match="another agent"):
        second.save(generation(2))
    store.save(generation(3))
    assert second.load().entries == generation(3)
    store.close()
    second.save(generation(4))
    assert second.load() == LoadedState(generation(4))
    second.close()


def test_a_second_agent_sets_nothing_aside(store: StateDir, folder: Path) -> None:
    store.save(generation(1))
    (folder / CURRENT).write_bytes(b"damaged")
    second = StateDir(folder)
    assert len(second.load().problems) == 2
    assert names(folder) == [CURRENT]
    second.close()


def test_what_is_too_large_is_neither_written_nor_read(tmp_path: Path) -> None:
    store = StateDir(tmp_path, most=10_000)
    store.save(SMALL)
    with pytest.raises(StateError, match="more than the 10000 that are kept"):
        store.save([StateEntry("k", "n", b"x" * 10_000, 1.0)])
    assert store.load() == LoadedState(SMALL)
    with (tmp_path / CURRENT).open("r+b") as file:
        file.truncate(1 << 40)
    loaded = store.load()
    assert loaded.entries == ()
    assert "larger than the limit of 10000 bytes" in loaded.problems[0]
    store.save(OTHER)
    assert store.load() == LoadedState(OTHER)
    store.close()


@pytest.mark.parametrize("look_first", [True, False])
@pytest.mark.parametrize("name", [CURRENT, PREVIOUS, "state-v1.new", "state-v1.0.corrupt"])
def test_no_link_leads_out_of_the_directory(
    store: StateDir, folder: Path, tmp_path: Path, name: str, look_first: bool
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(encode(OTHER))
    (folder / name).symlink_to(outside)
    if look_first:
        assert store.load().entries == ()
    for number in range(3):
        store.save(generation(number))
    (folder / CURRENT).write_bytes(b"damaged")
    store.load()
    store.save(generation(4))
    assert store.load() == LoadedState(generation(4))
    assert outside.read_bytes() == encode(OTHER)
    assert not (folder / CURRENT).is_symlink()


def test_a_link_that_somebody_puts_there_in_the_last_moment_is_not_followed(
    store: StateDir, folder: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")

    def quick(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **named: Any) -> Any:
            if name == "open" and arguments[0] == "state-v1.new":
                (folder / "state-v1.new").symlink_to(outside)
            return call(*arguments, **named)

        return instead

    with intercepted(quick), pytest.raises(StateError, match="could not be saved: File exists"):
        store.save(SMALL)
    assert outside.read_text() == "mine"
    store.save(SMALL)
    assert store.load() == LoadedState(SMALL)


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    state = tmp_path / "state"
    state.mkdir()
    (state / CURRENT).write_bytes(encode(SMALL))
    (state / "wigwag.lock").symlink_to(outside)
    store = StateDir(state)
    loaded = store.load()
    assert loaded.entries == SMALL
    assert "cannot be used" in loaded.problems[0]
    assert not outside.exists()
    store.close()


@pytest.mark.parametrize("look_first", [True, False])
@pytest.mark.parametrize("name", [CURRENT, PREVIOUS])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_set_aside(store: StateDir, folder: Path, name: str, make: object, look_first: bool) -> None:
    if name == PREVIOUS:
        store.save(generation(1))
    make(folder / name)  # type: ignore[operator]
    if look_first and name == CURRENT:
        assert "not used" in store.load().problems[0]
    store.save(generation(2))
    store.save(generation(3))
    assert store.load() == LoadedState(generation(3))
    assert (folder / PREVIOUS).is_file()


def test_the_directory_itself_may_be_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    store = StateDir(tmp_path / "link")
    store.save(SMALL)
    store.close()
    assert (tmp_path / "real" / CURRENT).read_bytes() == encode(SMALL)
