"""Flags of a file, for programs that use wigwag as a library: loaded once, and watched by a thread or a loop."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

import pytest

import wigwag
from wigwag.watched import WatchedState

PATIENCE = 20.0
BROKEN = "{"


def document(value: object) -> str:
    return json.dumps({"flags": {"size": {"state": "ENABLED", "variants": {"a": value}, "defaultVariant": "a"}}})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    path.write_text(document(1))
    return path


def test_a_file_is_loaded_by_its_extension_and_is_its_own_source(tmp_path: Path) -> None:
    path = tmp_path / "flags.yml"
    path.write_text("flags: {size: {state: ENABLED, variants: {a: 0o17}, defaultVariant: a}}")
    flags = wigwag.load_file(path)
    assert flags.integer("size", 0) == 15
    assert flags.layers[0].setting.source == str(path)


def test_the_options_of_load_count_for_files_too(path: Path) -> None:
    path.write_text(document(3.5))
    assert wigwag.load_file(path, numbers="lossless").resolve("size", "integer", 0).error == "TYPE_MISMATCH"
    with pytest.raises(OSError, match="larger than the limit of 10 bytes"):
        wigwag.load_file(path, limits=wigwag.Limits(document_bytes=10))


def test_a_file_that_cannot_be_used_says_which_it_is(path: Path, tmp_path: Path) -> None:
    path.write_text(BROKEN)
    with pytest.raises(wigwag.DocumentError, match=str(path)):
        wigwag.load_file(path)
    with pytest.raises(FileNotFoundError):
        wigwag.load_file(tmp_path / "missing.json")


@pytest.mark.parametrize("content", [None, BROKEN])
def test_a_watch_starts_only_with_flags(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "flags.json"
    if content is not None:
        path.write_text(content)
    before = threading.active_count()
    with pytest.raises((FileNotFoundError, wigwag.DocumentError)), wigwag.watch_file(path):
        raise AssertionError
    assert threading.active_count() == before


def test_a_watched_file_always_has_the_newest_good_set(path: Path) -> None:
    states: SimpleQueue[WatchedState] = SimpleQueue()
    with wigwag.watch_file(path, on_change=states.put) as watched:
        first = watched.flags
        path.write_text(document(2))
        assert states.get(timeout=PATIENCE).flags is watched.flags
        assert (first.integer("size", 0), watched.flags.integer("size", 0)) == (1, 2)


def test_a_bad_edit_keeps_the_last_good_set_and_is_visible_until_it_is_mended(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    states: SimpleQueue[WatchedState] = SimpleQueue()
    with wigwag.watch_file(path, on_change=states.put) as watched:
        good = watched.flags
        path.write_text(BROKEN)
        assert states.get(timeout=PATIENCE) == (good, watched.error)
        assert str(path) in (watched.error or "")
        assert watched.flags is good
        assert any(str(path) in record.getMessage() for record in caplog.records)
        path.write_text(document(1))  # the same as before: what is news is that nothing is wrong
        assert states.get(timeout=PATIENCE).error is None
        assert watched.error is None


def test_a_bad_flag_keeps_its_last_good_definition_and_is_among_the_problems(path: Path) -> None:
    states: SimpleQueue[WatchedState] = SimpleQueue()
    with wigwag.watch_file(path, on_change=states.put) as watched:
        path.write_text('{"flags": {"size": {"variants": []}}}')
        assert states.get(timeout=PATIENCE).flags.integer("size", 0) == 1
        assert [problem.code for problem in watched.flags.problems if problem.severity == "error"] == ["flag-shape"]


def test_a_deleted_file_changes_no_flag(path: Path) -> None:
    states: SimpleQueue[WatchedState] = SimpleQueue()
    with wigwag.watch_file(path, on_change=states.put) as watched:
        path.unlink()
        assert "No such file" in (states.get(timeout=PATIENCE).error or "")
        assert watched.flags.integer("size", 0) == 1


def test_the_thread_ends_with_the_block_and_the_flags_stay(path: Path) -> None:
    before = set(threading.enumerate())
    with wigwag.watch_file(path) as watched:
        assert len(set(threading.enumerate()) - before) == 1
    assert set(threading.enumerate()) - before == set()
    assert watched.flags.integer("size", 0) == 1
    assert "the file is no longer watched" in (watched.error or "")
    watched.close()


def test_it_can_be_started_without_a_block_and_again_after_its_end(path: Path) -> None:
    watched = wigwag.watch_file(path).start()
    with pytest.raises(wigwag.UsageError, match="watched already"):
        watched.start()
    watched.close()
    path.write_text(document(5))
    with watched:
        assert watched.flags.integer("size", 0) == 5


def test_there_are_no_flags_before_it_starts(path: Path) -> None:
    with pytest.raises(wigwag.UsageError, match="not watched yet"):
        _ = wigwag.watch_file(path).flags


def test_a_callback_that_raises_is_logged_and_called_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    states: SimpleQueue[WatchedState] = SimpleQueue()

    def fail(state: WatchedState) -> None:
        states.put(state)
        raise LookupError("mine")

    with wigwag.watch_file(path, on_change=fail) as watched:
        for value in (2, 3):
            path.write_text(document(value))
            assert states.get(timeout=PATIENCE).error is None
        assert watched.flags.integer("size", 0) == 3
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [str(record.exc_info and record.exc_info[1]) for record in errors] == ["mine", "mine"]


FORK = """
import os, sys, wigwag
with wigwag.watch_file(sys.argv[1]) as watched:
    if os.fork() == 0:
        print(watched.flags.integer("size", 0), watched.error, flush=True)
        os._exit(0)
    os.wait()
    print(watched.error)
"""


def test_a_forked_child_keeps_the_flags_and_knows_that_nobody_follows_the_file_there(path: Path) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, str(path)]
    child, parent = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert child.startswith("1 the process has forked: the flags stay as they were")
    assert parent == "None"


def save(path: Path, text: str) -> None:
    path.write_text(text)


async def follow(path: Path) -> list[tuple[int, bool]]:
    seen = []
    texts = [document(2), BROKEN, document(3)]
    async with wigwag.watch_file(path) as watched:
        async for state in watched.changes():
            seen.append((state.flags.integer("size", 0), state.error is None))
            if not texts:
                break
            save(path, texts.pop(0))
    return seen


def test_a_loop_follows_a_file_without_a_thread(path: Path) -> None:
    before = set(threading.enumerate())
    assert asyncio.run(follow(path)) == [(1, True), (2, True), (2, False), (3, True)]
    assert set(threading.enumerate()) == before


def test_what_the_block_of_a_loop_raises_is_raised_as_it_is(path: Path) -> None:
    async def fail() -> None:
        async with wigwag.watch_file(path):
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        asyncio.run(fail())


def test_changes_are_for_a_loop(path: Path) -> None:
    async def ask(watched: wigwag.WatchedFile) -> WatchedState:
        return await anext(aiter(watched.changes()))

    with wigwag.watch_file(path) as watched, pytest.raises(wigwag.UsageError, match="async with"):
        asyncio.run(ask(watched))
