"""Threads that have ended are gone before anything else happens."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from wigwag.loop_thread import KERNEL_TIMEOUT, LoopThread, note_threads, wait_for_end


def test_a_thread_that_is_still_there_is_waited_for(tmp_path: Path) -> None:
    task, pauses = tmp_path / "7", list[float]()
    task.touch()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            task.unlink()

    wait_for_end([6, 7], sleep, tmp_path)
    assert len(pauses) == 3


def test_one_that_stays_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    pauses: list[float] = []
    (tmp_path / "7").touch()
    wait_for_end([7], pauses.append, tmp_path)
    assert 0 < sum(pauses) <= KERNEL_TIMEOUT


def test_where_the_kernel_does_not_tell_nobody_waits(tmp_path: Path) -> None:
    wait_for_end([7], lambda _: 1 / 0, tmp_path / "none")


def test_the_threads_of_a_loop_are_noted_and_can_be_waited_for() -> None:
    async def main() -> tuple[list[int], int]:
        found = note_threads(asyncio.get_running_loop())
        return found, await asyncio.to_thread(threading.get_native_id)

    found, worker = asyncio.run(main())
    assert found == [threading.get_native_id(), worker]
    wait_for_end([worker])
    assert not Path(f"/proc/self/task/{worker}").exists()


def test_a_background_that_is_stopped_has_no_thread_left_for_a_fork_to_fall_into() -> None:
    """`join` alone leaves one behind every other time."""
    for _ in range(50):
        threads: list[int] = []
        ready = threading.Event()

        async def main(threads: list[int] = threads, ready: threading.Event = ready) -> None:
            threads += [threading.get_native_id(), await asyncio.to_thread(threading.get_native_id)]
            ready.set()
            await asyncio.Event().wait()

        background = LoopThread(main, "test")
        assert ready.wait(20.0)
        background.stop()
        assert [thread for thread in threads if Path(f"/proc/self/task/{thread}").exists()] == []
