"""Running a coroutine from code that is not async, whether or not an event loop runs in this thread.

It runs in a thread and a loop of its own, so it has no effect on the loop of the caller.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from wigwag.ending import note_threads, wait_for_end

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


def outside(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return what a coroutine function returns, or raise what it raises. An interrupted caller does not wait for it.

    >>> async def answer():
    ...     return 42
    >>> outside(answer)
    42
    """
    done: Future[T] = Future()
    threads: list[int] = []

    async def main() -> T:
        nonlocal threads
        threads = note_threads(asyncio.get_running_loop())
        return await work()

    def run() -> None:
        try:
            done.set_result(asyncio.run(main()))
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller
            done.set_exception(error)

    thread = threading.Thread(target=run, name="dflag reader", daemon=True)
    thread.start()
    try:
        return done.result()
    finally:
        if done.done():
            thread.join()
            wait_for_end(threads)
