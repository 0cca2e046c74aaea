"""A background thread for blocking work, so that the event loop never blocks.

The thread is a daemon, which a process does not wait for at its end: neither a collector that has stopped answering nor
a disk that hangs can keep the agent from stopping. A caller awaits the result for as long as it wants. The thread
starts with the first job.
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
    """Runs one job after the other. It is an executor, so an event loop can await its jobs."""

    def __init__(self, name: str) -> None:
        self._name, self._thread = name, False
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    async def send(self, job: Callable[[], T]) -> T:
        """Run a job in the thread and return its result. A job that is cancelled before it starts does not run."""
        return await asyncio.get_running_loop().run_in_executor(self, job)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a job for the thread; `RuntimeError` if the process cannot have more threads."""
        future: Future[T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001  it is raised where the result is awaited
                    future.set_exception(error)

        if not self._thread:
            Thread(target=self._work, name=self._name, daemon=True).start()
            self._thread = True
        self._jobs.put(work)
        return future

    def dismiss(self) -> None:
        """End the thread after the jobs in its queue, without waiting for it."""
        if self._thread:
            self._jobs.put(None)
        self._thread = False

    def _work(self) -> None:
        for job in iter(self._jobs.get, None):
            job()
            del job  # do not keep it alive until the next one comes
