"""A disk that is full, read-only, gone, or fails at any system call: the state that was there can still be loaded."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.state.writer import generation, intercepted
from tests.sources.disk import unprivileged
from wigwag.agent.state.directory import CURRENT, PREVIOUS, StateDir
from wigwag.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.agent.state.file import StateEntry


def left(folder: Path) -> tuple[StateEntry, ...]:
    """What an agent would start with."""
    store = StateDir(folder)
    loaded = store.load()
    store.close()
    assert loaded.problems == ()
    return loaded.entries


class Fault:
    """Has the system call of a number fail, and those after it if they shall."""

    def __init__(self, at: int, code: int, *, ever_after: bool) -> None:
        self._calls, self._at, self._code, self._ever_after = count(1), at, code, ever_after
        self.hit = False

    def before(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **named: Any) -> Any:
            number = next(self._calls)
            if number != self._at and not (self._ever_after and number > self._at):
                return call(*arguments, **named)
            if name == "close":
                call(*arguments, **named)  # a handle is closed even if that fails
            self.hit = True
            raise OSError(self._code, os.strerror(self._code))

        return instead


def handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("ever_after", [False, True], ids=["once", "for-good"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES], ids=lambda code: errno.errorcode[code])
def test_whichever_system_call_of_a_save_fails_nothing_is_lost(code: int, ever_after: bool, tmp_path: Path) -> None:
    open_before, failures = handles(), 0
    for at in count(1):
        folder, fault = tmp_path / str(at), Fault(at, code, ever_after=ever_after)
        store = StateDir(folder)
        store.save(generation(1))
        store.save(generation(2))
        done = True
        with intercepted(fault.before):
            try:
                store.save(generation(3))
            except StateError as error:
                assert str(folder) in str(error)
                done = False
        store.close()
        assert left(folder) in ([generation(3)] if done else [generation(2), generation(3)])
        store = StateDir(folder)
        store.save(generation(4))
        store.close()
        assert left(folder) == generation(4)
        assert sorted(path.name for path in folder.iterdir()) == [PREVIOUS, CURRENT, "wigwag.lock"]
        failures += not done
        if not fault.hit:
            break
    assert at > 12
    assert failures >= 9
    assert handles() <= open_before


def test_a_save_is_on_the_disk_before_it_gets_its_name_and_the_name_before_it_returns(tmp_path: Path) -> None:
    store, calls = StateDir(tmp_path), []
    store.save(generation(1))

    def noting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **named: Any) -> Any:
            if name in ("write", "fsync", "rename"):
                calls.append((name, *(argument for argument in arguments if isinstance(argument, str))))
            return call(*arguments, **named)

        return instead

    with intercepted(noting):
        store.save(generation(2))
    store.close()
    new = "state-v1.new"
    assert calls == [
        ("write",),
        ("fsync",),
        ("rename", CURRENT, PREVIOUS),
        ("rename", new, CURRENT),
        ("fsync",),
    ]


def test_a_full_disk_is_told_and_the_next_save_works_when_there_is_room(tmp_path: Path) -> None:
    """A limit on the size of files ends a write in the middle, as a full disk does."""
    store = StateDir(tmp_path)
    store.save(generation(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(StateError, match="could not be saved: File too large; raise the limit"):
            store.save(generation(11))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(path.name for path in tmp_path.iterdir()) == [CURRENT, "wigwag.lock"]
    assert store.load().entries == generation(1)
    store.save(generation(11))
    assert store.load().entries == generation(11)
    store.close()


def test_a_read_only_directory_is_read_and_told_and_written_when_that_is_over() -> None:
    with unprivileged() as folder:
        store = StateDir(folder)
        store.save(generation(1))
        store.close()
        folder.chmod(0o500)
        try:
            store = StateDir(folder)
            assert store.load().entries == generation(1)
            with pytest.raises(StateError, match=f"{folder}: the flags could not be saved: .*right to write there"):
                store.save(generation(2))
            assert store.load().entries == generation(1)
        finally:
            folder.chmod(0o700)
        store.save(generation(2))
        assert store.load().entries == generation(2)
        store.close()


def test_a_directory_that_cannot_be_made_keeps_nobody_from_starting() -> None:
    with unprivileged() as folder:
        folder.chmod(0o500)
        store = StateDir(folder / "state")
        loaded = store.load()
        assert loaded.entries == ()
        assert "state directory cannot be used: Permission denied" in loaded.problems[0]
        with pytest.raises(StateError, match="cannot be used"):
            store.save(generation(1))
        folder.chmod(0o700)
        store.save(generation(1))
        assert store.load().entries == generation(1)
        store.close()


def test_permission_that_is_lost_while_running_loses_no_flag_and_may_come_back() -> None:
    with unprivileged() as folder:
        store = StateDir(folder / "state")
        store.save(generation(1))
        folder.chmod(0)
        try:
            with pytest.raises(StateError, match="cannot be used: Permission denied"):
                store.save(generation(2))
        finally:
            folder.chmod(0o700)
        assert store.load().entries == generation(1)
        store.save(generation(3))
        assert store.load().entries == generation(3)
        store.close()


def test_a_directory_that_is_deleted_while_running_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    store = StateDir(folder)
    store.save(generation(1))
    shutil.rmtree(tmp_path / "a")
    store.save(generation(2))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert store.load().entries == generation(2)
    second = StateDir(folder)
    assert "another agent" in second.load().problems[0]
    for each in (store, second):
        each.close()


def test_another_directory_in_its_place_is_used_from_then_on(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    store = StateDir(folder)
    store.save(generation(1))
    folder.rename(tmp_path / "old")
    folder.mkdir()
    store.save(generation(2))
    store.close()
    assert left(folder) == generation(2)
    assert left(tmp_path / "old") == generation(1)


def test_a_file_where_the_directory_should_be_is_told(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("mine")
    store = StateDir(path)
    assert store.load().problems == (f"{path}: the state directory cannot be used: Not a directory; name a directory",)
    assert path.read_text() == "mine"
