"""When flags are written, what of them, and what becomes of a write that fails. Time stands still unless moved."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import wigwag
from tests.pipeline.fakes import FakeClock, run, settle
from wigwag.agent.state.directory import LoadedState, StateDir
from wigwag.agent.state.file import StateEntry
from wigwag.agent.state.keeper import Keeper, KeeperStatus, KeptFlags, SaveTiming
from wigwag.errors import StateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

WALL = 5000.0


def flags(value: Any = 1, source: str = "s", **options: Any) -> wigwag.FlagSet:
    flag = {"state": "ENABLED", "variants": {"on": value}, "defaultVariant": "on"}
    return wigwag.load({"flags": {"a": flag}}, source=source, **options)


class Memory:
    """A store that remembers what was saved and when, and can be made to fail or to take its time."""

    def __init__(self, clock: FakeClock, entries: tuple[StateEntry, ...] = (), problems: tuple[str, ...] = ()) -> None:
        self._clock, self._loaded = clock, LoadedState(entries, problems)
        self.saves: list[dict[str, StateEntry]] = []
        self.times: list[float] = []
        self.error = ""
        self.raises: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.inside = self.most_inside = 0

    def load(self) -> LoadedState:
        return self._loaded

    def save(self, entries: Iterable[StateEntry]) -> int:
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        self.times.append(self._clock.now())
        assert self.gate.wait(10)
        self.inside -= 1
        if self.error or self.raises:
            raise self.raises or StateError(self.error)
        self.saves.append({entry.key: entry for entry in entries})
        return 100 + len(self.saves)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what a thread does; the time does not move."""
    while not condition():  # noqa: ASYNC110 - a thread sets no event of the loop
        await asyncio.sleep(0)


class Case:
    def __init__(self, *entries: StateEntry, **options: Any) -> None:
        self.clock = FakeClock()
        self.memory = Memory(self.clock, entries)
        self.keeper = Keeper(self.memory, self.clock, lambda: WALL, **options)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.keeper.run())
            yield
            task.cancel()

    async def idle(self) -> None:
        """Let it do all that it has to do at present."""
        await settle()
        await until(lambda: self.keeper._writing is None)
        await settle()

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await self.idle()


def test_flags_are_written_at_once_and_then_once_a_second_the_newest_of_them() -> None:
    case = Case()

    async def main() -> None:
        async with case.running():
            for number in range(33):
                case.keeper.note({"k": KeptFlags(flags(number), float(number))})
                await case.idle()
                await case.advance(0.125)
            await case.advance(10)
        assert [entry["k"].saved for entry in case.memory.saves] == [0, 7, 15, 23, 31, 32]
        assert all(later - earlier >= 1 for earlier, later in pairwise(case.memory.times))
        last = case.memory.saves[-1]["k"]
        assert wigwag.load(last.document).resolve("a").value == 32
        assert last.name == "s"

    run(main)


def test_nothing_is_written_unless_something_is_noted() -> None:
    case = Case(StateEntry("k", "s", b"", 1.0))

    async def main() -> None:
        case.keeper.restore({"k"})
        async with case.running():
            await case.advance(1000)
            case.keeper.note({})
            await case.advance(1000)
        await case.keeper.close()
        assert case.memory.saves == []
        assert case.keeper.status == KeeperStatus()

    run(main)


def test_a_source_that_answers_replaces_its_own_flags_only() -> None:
    dead, gone = StateEntry("dead", "d", b"{}", 1.0), StateEntry("gone", "g", b"{}", 2.0)
    case = Case(StateEntry("live", "s", b"{}", 3.0), dead, gone)

    async def main() -> None:
        found = case.keeper.restore({"live", "dead", "new"})
        assert [entry.key for entry in found.entries] == ["live", "dead"]
        async with case.running():
            case.keeper.note({"live": KeptFlags(flags("live"), 10.0)})
            await case.idle()
            await case.advance(1)
            case.keeper.note({"new": KeptFlags(flags("new"), 11.0)})
            await case.idle()
        assert [sorted(save) for save in case.memory.saves] == [["dead", "live"], ["dead", "live", "new"]]
        assert case.memory.saves[-1]["dead"] == dead
        assert wigwag.load(case.memory.saves[-1]["live"].document).resolve("a").value == "live"

    run(main)


def test_that_flags_still_hold_is_written_every_minute_and_only_if_they_do() -> None:
    case = Case()

    async def main() -> None:
        same = flags()
        async with case.running():
            for second in range(150):
                case.keeper.note({"k": KeptFlags(same, 100.0 + second)})
                await case.advance(1)
            await case.advance(1000)
        assert [entry["k"].saved for entry in case.memory.saves] == [100, 159, 219, 249]
        assert len({entry["k"].document for entry in case.memory.saves}) == 1

    run(main)


def test_that_two_clocks_do_not_quite_agree_is_no_news() -> None:
    case = Case()

    async def main() -> None:
        same = flags()
        async with case.running():
            for turn in range(20):
                case.keeper.note({"k": KeptFlags(same, 100.0 + turn / 1e3)})
                await case.advance(20)
        await case.keeper.close()
        assert len(case.memory.saves) == 1

    run(main)


def test_one_write_at_a_time_and_what_comes_meanwhile_is_written_after_it() -> None:
    case = Case()

    async def main() -> None:
        case.memory.gate.clear()
        async with case.running():
            case.keeper.note({"k": KeptFlags(flags(0), 0.0)})
            await until(lambda: case.memory.inside == 1)
            for number in range(1, 6):
                case.keeper.note({"k": KeptFlags(flags(number), float(number))})
                await case.clock.advance(2)
            assert (len(case.memory.times), case.keeper.status.saves) == (1, 0)
            case.memory.gate.set()
            await until(lambda: case.keeper.status.saves == 2)
        assert [entry["k"].saved for entry in case.memory.saves] == [0, 5]
        assert case.memory.most_inside == 1

    run(main)


def test_the_last_word_is_written_at_the_end() -> None:
    case = Case()

    async def main() -> None:
        same = flags(1)
        async with case.running():
            case.keeper.note({"k": KeptFlags(same, 1.0)})
            await case.idle()
            case.keeper.note({"k": KeptFlags(flags(2), 2.0)})
        await case.keeper.close()
        assert [entry["k"].saved for entry in case.memory.saves] == [1, 2]
        await case.keeper.close()
        assert len(case.memory.saves) == 2

    run(main)


def test_a_write_under_way_at_the_end_is_waited_for_and_followed_by_the_last() -> None:
    case = Case()

    async def main() -> None:
        case.memory.gate.clear()
        async with case.running():
            case.keeper.note({"k": KeptFlags(flags(1), 1.0)})
            await until(lambda: case.memory.inside == 1)
            case.keeper.note({"k": KeptFlags(flags(2), 2.0)})
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(case.keeper.close())
            await settle()
            assert not closing.done()
            case.memory.gate.set()
        assert [entry["k"].saved for entry in case.memory.saves] == [1, 2]
        assert case.memory.most_inside == 1

    run(main)


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_disk_that_hangs_holds_up_the_end_only_so_long(cancelled: bool, caplog: pytest.LogCaptureFixture) -> None:
    case = Case()

    async def main() -> None:
        case.memory.gate.clear()
        try:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(case.keeper.run())
                case.keeper.note({"k": KeptFlags(flags(1), 1.0)})
                await until(lambda: case.memory.inside == 1)
                case.keeper.note({"k": KeptFlags(flags(2), 2.0)})
                if cancelled:
                    running.cancel()
                closing = group.create_task(case.keeper.close())
                await case.clock.advance(2.9)
                assert not closing.done()
                await case.clock.advance(0.1)
                assert closing.result() is False, "whoever closes must leave alone what is in use"
        finally:
            case.memory.gate.set()
        await until(lambda: case.memory.inside == 0)
        assert len(case.memory.times) == 1, "a second write must not begin while the first is under way"
        assert caplog.messages == ["the flags were not saved: the disk has not answered for 3 s"]

    run(main)


def test_a_disk_that_hangs_at_the_last_write_holds_up_the_end_only_so_long() -> None:
    case = Case()

    async def main() -> None:
        case.memory.gate.clear()
        try:
            async with asyncio.TaskGroup() as group:
                case.keeper.note({"k": KeptFlags(flags(1), 1.0)})
                closing = group.create_task(case.keeper.close())
                await until(lambda: case.memory.inside == 1)
                await case.clock.advance(3.0)
                assert closing.result() is False
        finally:
            case.memory.gate.set()
        await until(lambda: case.memory.inside == 0)

    run(main)


def test_an_end_that_is_cut_short_does_not_wait_for_the_disk() -> None:
    case = Case()

    async def main() -> None:
        case.memory.gate.clear()
        try:
            async with asyncio.TaskGroup() as group:
                case.keeper.note({"k": KeptFlags(flags(1), 1.0)})
                closing = group.create_task(case.keeper.close())
                await until(lambda: case.memory.inside == 1)
                closing.cancel()
        finally:
            case.memory.gate.set()
        assert closing.cancelled()
        assert case.clock.pending() == []

    run(main)


def test_closing_ends_a_run_that_nobody_cancelled() -> None:
    case = Case()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(case.keeper.run())
            case.keeper.note({"k": KeptFlags(flags(1), 1.0)})
            await case.idle()
            case.keeper.note({"k": KeptFlags(flags(2), 2.0)})
            await case.keeper.close()
        assert [entry["k"].saved for entry in case.memory.saves] == [1, 2]

    run(main)


def test_a_write_that_fails_is_told_once_and_tried_again_with_the_next_change(caplog: pytest.LogCaptureFixture) -> None:
    case = Case()
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with case.running():
            case.memory.error = "/state: no room"
            for number in range(3):
                case.keeper.note({"k": KeptFlags(flags(number), float(number))})
                await case.advance(1)
            assert case.keeper.status == KeeperStatus(None, "/state: no room", 0, 0, 3)
            case.memory.error = ""
            case.keeper.note({"k": KeptFlags(flags(7), 7.0)})
            await case.idle()
            assert case.keeper.status == KeeperStatus(WALL, None, 101, 1, 3)
        assert [record.getMessage() for record in caplog.records] == ["/state: no room", "the flags are saved again"]

    run(main)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("odd"), "RuntimeError: odd"),
        (MemoryError(), "MemoryError"),
        (OSError(5, "Input/output error"), "OSError: [Errno 5] Input/output error"),
    ],
)
def test_whatever_goes_wrong_in_a_write_is_told_and_ends_nothing(
    error: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case()

    async def main() -> None:
        async with case.running():
            case.memory.raises = error
            case.keeper.note({"k": KeptFlags(flags(1), 1.0)})
            await case.idle()
            assert case.keeper.status.last_error == f"the flags could not be saved: {words}"
            assert caplog.messages == [f"the flags could not be saved: {words}"]
            case.memory.raises = None
            case.keeper.note({"k": KeptFlags(flags(2), 2.0)})
            await case.advance(1)
            assert case.keeper.status == KeeperStatus(WALL, None, 101, 1, 1)

    run(main)


def test_that_there_can_be_no_thread_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        async with case.running():
            with monkeypatch.context() as exhausted:
                exhausted.setattr(threading.Thread, "start", refuse)
                case.keeper.note({"k": KeptFlags(flags(1), 1.0)})
                await case.idle()
            told = "the flags could not be saved: RuntimeError: can't start new thread"
            assert case.keeper.status == KeeperStatus(None, told, 0, 0, 1)
            await case.advance(59)
            assert case.memory.times == []
            await case.advance(1)
            assert case.keeper.status == KeeperStatus(WALL, None, 101, 1, 1)
        await case.keeper.close()

    run(main)


def test_flags_that_cannot_be_written_down_keep_no_others_from_disk() -> None:
    case = Case()

    async def main() -> None:
        broken: Any = object()
        async with case.running():
            case.keeper.note({"bad": KeptFlags(broken, 1.0), "good": KeptFlags(flags(), 1.0)})
            await case.idle()
        assert [sorted(saved) for saved in case.memory.saves] == [["good"]]
        assert "AttributeError" in (case.keeper.status.last_error or "")

    run(main)


def test_without_a_change_a_write_that_failed_is_tried_again_after_a_minute() -> None:
    case = Case()

    async def main() -> None:
        async with case.running():
            case.memory.error = "/state: no room"
            case.keeper.note({"k": KeptFlags(flags(), 1.0)})
            await case.advance(59)
            assert len(case.memory.times) == 1
            case.memory.error = ""
            await case.advance(1)
            assert case.keeper.status.last_error is None
            await case.advance(1000)
            assert len(case.memory.saves) == 1

    run(main)


def test_flags_that_are_too_large_keep_neither_others_nor_what_there_was_of_them_from_disk() -> None:
    case = Case(StateEntry("big", "s", b"{}", 1.0))

    async def main() -> None:
        case.keeper.restore({"big", "small"})
        small_limit = wigwag.Limits(document_bytes=150)
        big = flags("x" * 60, limits=small_limit)
        async with case.running():
            case.keeper.note({"big": KeptFlags(big, 2.0), "small": KeptFlags(flags(), 3.0)})
            await case.idle()
        (saved,) = case.memory.saves
        assert saved["big"] == StateEntry("big", "s", b"{}", 1.0)
        assert saved["small"].saved == 3.0
        status = case.keeper.status
        assert (status.saves, status.failures) == (1, 1)
        assert "take more than 150 bytes" in (status.last_error or "")

    run(main)


def test_only_what_changed_is_made_into_a_document_again() -> None:
    case = Case()

    async def main() -> None:
        one, two = flags(1), flags(2)
        async with case.running():
            case.keeper.note({"a": KeptFlags(one, 1.0), "b": KeptFlags(two, 1.0)})
            await case.advance(1)
            case.keeper.note({"a": KeptFlags(flags(3), 2.0), "b": KeptFlags(two, 2.0)})
            await case.idle()
        first, second = case.memory.saves
        assert second["b"].document is first["b"].document
        assert second["a"].document != first["a"].document
        assert second["b"].saved == 2.0

    run(main)


def test_the_pace_can_be_chosen() -> None:
    case = Case(timing=SaveTiming(5.0, 7.0))

    async def main() -> None:
        same = flags()
        async with case.running():
            for second in range(20):
                case.keeper.note({"k": KeptFlags(same if second else flags(0), float(second))})
                await case.advance(1)
        assert [entry["k"].saved for entry in case.memory.saves] == [0, 4, 11, 18]

    run(main)


def test_on_a_real_disk_it_all_comes_back(tmp_path: Path) -> None:
    async def first() -> None:
        store = StateDir(tmp_path)
        keeper = Keeper(store, FakeClock(), lambda: WALL)
        assert keeper.restore({"a", "b"}) == LoadedState()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(keeper.run())
            keeper.note({"a": KeptFlags(flags(1, "one"), 1.0), "b": KeptFlags(flags(2, "two"), 2.0)})
            await until(lambda: keeper.status.saves == 1)
            keeper.note({"a": KeptFlags(flags(3, "one"), 3.0)})
            running.cancel()
        await keeper.close()
        assert keeper.status == KeeperStatus(WALL, None, (tmp_path / "state-v1.wigwag").stat().st_size, 2, 0)
        store.close()

    async def second() -> None:
        store = StateDir(tmp_path)
        found = Keeper(store, FakeClock(), lambda: WALL).restore({"a", "b"})
        restored = [wigwag.load(entry.document, source=entry.name) for entry in found.entries]
        assert [flags.resolve("a").value for flags in restored] == [3, 2]
        assert [entry.saved for entry in found.entries] == [3.0, 2.0]
        assert restored[0].id == flags(3, "one").id
        store.close()

    run(first)
    run(second)
