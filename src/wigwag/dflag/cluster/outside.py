"""Running a coroutine from code that is not async, whether or not an event loop runs in this thread.

It runs in a thread and a loop of its own, so it has no effect on the loop of the caller.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from wigwag.loop_thread import LoopThread

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

    async def main() -> None:
        try:
            done.set_result(await work())
        except BaseException as error:  # noqa: BLE001 - is raised in the caller
            done.set_exception(error)

    thread = LoopThread(main, "dflag reader")
    try:
        return done.result()
    finally:
        thread.stop(None if done.done() else 0.0)
