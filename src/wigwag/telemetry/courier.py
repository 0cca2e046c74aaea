"""A thread for what may take its time, so that the loop never does.

The thread is a daemon, the one kind that a process does not wait for at its end: a collector that has stopped answering
must not keep the agent from stopping. Whoever wants a result waits for as long as it likes, and no longer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Courier:
    """Does one thing after the other."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._work, name=name, daemon=True).start()

    async def send(self, job: Callable[[], T]) -> T:
        """Have something done in the thread; return what it returns."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                settle, result = future.set_result, job()
            except Exception as error:  # noqa: BLE001  it is raised where the job came from
                settle, result = future.set_exception, error  # type: ignore[assignment]
            with suppress(RuntimeError):  # nobody waits any more: the loop is closed
                loop.call_soon_threadsafe(_settle, future, settle, result)

        self._jobs.put(work)
        return await future

    def dismiss(self) -> None:
        """Let the thread end after what it still has to do."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _settle(future: asyncio.Future[T], settle: Callable[[T], None], result: T) -> None:
    if not future.done():
        settle(result)
