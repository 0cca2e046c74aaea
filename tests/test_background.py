"""A thread that nobody has to wait for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest

from tests.pipeline.fakes import run
from wigwag.background import BackgroundWorker


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_an_error_in_the_thread_is_raised_where_the_job_came_from() -> None:
    async def scenario() -> None:
        worker = BackgroundWorker("test")
        with pytest.raises(ZeroDivisionError):
            await worker.send(lambda: 1 / 0)
        assert await worker.send(lambda: 2) == 2
        worker.dismiss()

    run(scenario)


def test_there_is_one_thread_from_the_first_job_until_it_is_dismissed() -> None:
    async def scenario() -> None:
        worker = BackgroundWorker("test-one")
        worker.dismiss()
        assert threads("test-one") == []
        done = await asyncio.gather(*(worker.send(threading.get_ident) for _ in range(5)))
        (thread,) = threads("test-one")
        assert set(done) == {thread.ident}
        assert thread.daemon
        worker.dismiss()
        thread.join(10)
        assert not thread.is_alive()
        assert await worker.send(lambda: 2) == 2, "it can be sent again"
        worker.dismiss()

    run(scenario)


def test_what_is_cancelled_before_it_is_begun_is_not_done() -> None:
    async def scenario() -> None:
        worker, gate, done = BackgroundWorker("test"), threading.Event(), list[int]()
        first = asyncio.ensure_future(worker.send(gate.wait))
        second = asyncio.ensure_future(worker.send(lambda: done.append(2)))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        gate.set()
        await first
        await worker.send(lambda: done.append(3))
        assert done == [3]
        worker.dismiss()

    run(scenario)


def test_what_is_done_is_not_held_on_to() -> None:
    class Large:
        def __call__(self) -> None: ...

    async def scenario() -> None:
        worker, job = BackgroundWorker("test"), Large()
        gone = weakref.ref(job)
        await worker.send(job)
        del job
        await worker.send(lambda: None)
        worker.dismiss()
        assert gone() is None

    run(scenario)


HANGING = """
import asyncio, threading
from wigwag.background import BackgroundWorker

async def main():
    worker = BackgroundWorker("test")
    try:
        async with asyncio.timeout(0.1):
            await worker.send(threading.Event().wait)
    except TimeoutError:
        print("given up")

asyncio.run(main())
"""


def test_a_process_ends_though_the_thread_hangs() -> None:
    done: subprocess.CompletedProcess[Any] = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "given up\n", "")
