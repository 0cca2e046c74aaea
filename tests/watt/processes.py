"""What a test of hooks looks for: processes and open files that are left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.wire.served import LOOPS
from wigwag.pipeline.clock import LoopClock, sleep_until

T = TypeVar("T")


def run_on(loop: str, main: Callable[[], Coroutine[Any, Any, T]], timeout: float = 120.0) -> T:
    """Run a test on a kind of loop; see that no task, no child and no open file is left."""

    async def body() -> T:
        await asyncio.sleep(0)
        before = open_files()
        async with asyncio.timeout(timeout):
            result = await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        gc.collect()
        assert not open_files() - before  # another thread may have closed some
        assert children() == []
        return result

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(body())


def open_files() -> set[str]:
    """The open files of this process that are pipes or sockets; those of the loop itself do not change."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = os.fspath(link.readlink())
        except FileNotFoundError:  # that of the list itself
            continue
        if target.startswith(("pipe:", "socket:")):
            found.add(target)
    return found


def children() -> list[int]:
    """The children of this process, zombies included."""
    tasks = Path("/proc/self/task")
    return sorted(int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split())


def marked(marker: str) -> list[int]:
    """The living processes that have a word in their environment, wherever they hang in the tree."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                environment = (folder / "environ").read_bytes()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if f"MARKER={marker}".encode() in environment.split(b"\0") and state != "Z":
                found.append(int(folder.name))
    return found


async def until(condition: Callable[[], object]) -> None:
    """Wait until something holds that another process does."""
    clock = LoopClock()
    end = clock.now() + 60.0
    while not condition():
        assert clock.now() < end, "it did not happen"
        await sleep_until(clock, clock.now() + 0.005)


@contextmanager
def marker(name: str) -> Iterator[dict[str, str]]:
    """An environment by which all processes that have it can be found; at the end there is none left."""
    word = f"{name}-{os.getpid()}"
    try:
        yield {**os.environ, "MARKER": word}
    finally:
        end, pause = time.monotonic() + 20.0, threading.Event()
        while (left := marked(word)) and time.monotonic() < end:  # they were killed, and die in a moment
            pause.wait(0.002)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert left == []
