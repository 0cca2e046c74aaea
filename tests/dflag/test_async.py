"""The updater in the program's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.dflag.kubelet import Heard, Volume
from tests.pipeline.fakes import FakeClock, run
from wigwag import dflag
from wigwag.dflag import Directory, Policy
from wigwag.dflag.updating.following import persist
from wigwag.dflag.updating.places import Names
from wigwag.errors import StartError, UsageError
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.watch import WatchPolicy


def run_uvloop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 20))


LOOPS = pytest.mark.parametrize("run", [run, run_uvloop], ids=["asyncio", "uvloop"])


def example() -> tuple[dflag.FlagSet, dflag.DynFlag[int]]:
    flags = dflag.FlagSet("test")
    return flags, flags.int("rate", 10)


@LOOPS
def test_flags_are_followed_in_the_loop_without_a_thread(tmp_path: Path, run: Any) -> None:
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})

    async def main() -> None:
        threads = threading.active_count()
        heard = Heard()

        async def hear(old: int, new: int) -> None:
            heard(old, new)

        rate.on_change(hear)
        async with dflag.watching(flags, volume.path) as updater:
            assert (rate.get(), updater.generation, updater.running) == (20, 1, True)
            for number in range(21, 31):
                volume.write({"rate": str(number)})
                assert await rate.wait_for(number.__eq__) == number
            assert threading.active_count() <= threads
            with pytest.raises(UsageError, match="started already"):
                updater.start()
        assert not updater.running
        volume.write({"rate": "50"})
        await asyncio.sleep(0)
        assert rate.get() == 30
        assert heard.steps == [(10, 20), *((number - 1, number) for number in range(21, 31))]

    run(main)


def test_an_error_of_the_block_comes_out_as_it_is(tmp_path: Path) -> None:
    flags, _ = example()

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with dflag.watching(flags, Volume(tmp_path / "conf", {}).path):
                raise ZeroDivisionError

    run(main)


def test_what_is_wrong_at_the_start_is_raised(tmp_path: Path) -> None:
    flags, _ = example()

    async def main() -> None:
        with pytest.raises(StartError, match="No such file"):
            async with dflag.watching(flags, tmp_path / "none"):
                pass
        updater = dflag.Updater(flags, tmp_path / "none")
        with pytest.raises(StartError, match=r"cannot watch the flags: .*No such file"):
            async with updater.beside():
                pass

    run(main)


def test_an_optional_directory_may_come_later(tmp_path: Path) -> None:
    flags, rate = example()

    async def main() -> None:
        async with dflag.watching(flags, Directory(str(tmp_path / "conf"), optional=True)):
            Volume(tmp_path / "conf", {"rate": "20"})
            await rate.wait_for(lambda value: value == 20)

    run(main)


def test_it_can_be_stopped_from_within(tmp_path: Path) -> None:
    flags, _ = example()

    async def main() -> None:
        async with dflag.watching(flags, Volume(tmp_path / "conf", {"rate": "20"}).path) as updater:
            updater.stop()
            updater.stop()
            assert updater.running  # it is told, and has not ended yet
            with pytest.raises(UsageError, match="started already"):
                updater.start()
        assert not updater.running

    run(main)


@LOOPS
def test_it_can_be_stopped_from_another_thread(tmp_path: Path, run: Any) -> None:
    """Nothing else wakes the loop: the directory is looked at once an hour."""
    flags, _ = example()
    updater = dflag.Updater(flags, Volume(tmp_path / "conf", {"rate": "20"}).path, policy=Policy(poll=3600.0))
    ready, ended = threading.Event(), threading.Event()

    async def main() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.create_task(updater.run(ready.set))
        ended.set()

    thread = threading.Thread(target=run, args=(main,), daemon=True)
    thread.start()
    assert ready.wait(10.0)
    updater.stop()
    assert ended.wait(10.0)
    thread.join(20.0)
    assert (thread.is_alive(), updater.running) == (False, False)
    updater.stop()


def test_an_updater_that_fails_is_begun_again_in_the_loop(tmp_path: Path) -> None:
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    broken = True

    class Fragile(Directory):
        @property
        def names(self) -> Names:
            if broken:
                raise ZeroDivisionError("oh")
            return super().names

    async def main() -> None:
        nonlocal broken
        broken = False
        async with dflag.watching(flags, Fragile(str(volume.path))) as updater:
            broken = True
            volume.write({"rate": "21"})
            while not updater.problems:  # noqa: ASYNC110 - there is nothing to wait for
                await asyncio.sleep(0.002)
            broken = False
            assert await rate.wait_for(lambda value: value == 21) == 21
            assert (updater.errors, updater.running) == (1, True)

    run(main)


def test_pauses_between_failures_grow_until_it_was_well_for_a_while() -> None:
    clock, told = FakeClock(), list[float]()

    async def attempt() -> None:
        if len(told) == 4:
            await sleep_until(clock, clock.now() + 200.0)
        raise ExceptionGroup("tasks", [ExceptionGroup("inner", [ZeroDivisionError("oh")])])

    def failed(error: BaseException) -> None:
        assert isinstance(error, ZeroDivisionError)
        told.append(clock.now() - 1000.0)

    async def main() -> None:
        task = asyncio.create_task(
            persist(attempt, failed, WatchPolicy(Backoff(first=1.0, most=5.0), clock, lambda: 1.0))
        )
        for _ in range(220):
            await clock.advance(1.0)
        task.cancel()
        await asyncio.wait([task])

    run(main)
    assert told == [0.0, 1.0, 3.0, 7.0, 212.0, 213.0, 215.0, 219.0]


def test_it_can_run_in_a_task_group_of_the_program(tmp_path: Path) -> None:
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(dflag.Updater(flags, volume.path).run())
            await rate.wait_for(lambda value: value == 20)
            task.cancel()

    run(main)
