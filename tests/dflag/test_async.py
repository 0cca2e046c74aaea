"""The updater in the program's own loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.dflag.kubelet import Heard, Volume
from tests.pipeline.fakes import run
from wigwag import dflag
from wigwag.dflag import Directory
from wigwag.errors import StartError, UsageError


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
        from wigwag.dflag.updating.following import beside

        with pytest.raises(StartError, match=r"cannot watch the flags: .*No such file"):
            async with beside(updater):
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
            assert not updater.running

    run(main)


def test_it_can_run_in_a_task_group_of_the_program(tmp_path: Path) -> None:
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(dflag.Updater(flags, volume.path).run())
            await rate.wait_for(lambda value: value == 20)
            task.cancel()

    run(main)
