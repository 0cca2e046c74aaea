"""A thread for what may take its time, so that the loop never does.

The thread is a daemon, the one kind that a process does not wait for at its end: neither a collector that has stopped
answering nor a disk that hangs may keep the agent from stopping. Whoever wants a result waits for as long as it likes,
and no longer. There is no thread before there is something to do.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class BackgroundWorker(Executor):
    """Does one thing after the other. It is an executor, so a loop knows how to wait for it."""

    def __init__(self, name: str) -> None:
        self._name, self._thread = name, False
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    async def send(self, job: Callable[[], T]) -> T:
        """Have something done in the thread; return what it returns. Cancelled before it is begun, it is not done."""
        return await asyncio.get_running_loop().run_in_executor(self, job)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have something done in the thread; `RuntimeError` if there can be no more threads."""
        future: Future[T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001  it is raised where the job came from
                    future.set_exception(error)

        if not self._thread:
            Thread(target=self._work, name=self._name, daemon=True).start()
            self._thread = True
        self._jobs.put(work)
        return future

    def dismiss(self) -> None:
        """Let the thread end after what it still has to do. It is not waited for."""
        if self._thread:
            self._jobs.put(None)
        self._thread = False

    def _work(self) -> None:
        for job in iter(self._jobs.get, None):
            job()
            del job  # and all that it holds, until the next one comes
