"""A process that serves until it is told to stop: the loop it runs on, its signals, and its exit code.

The first signal asks it to stop gently, the second to stop at once. What goes wrong comes out as itself, and not as the
groups that tasks wrap it in.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from typing import TYPE_CHECKING, Any

from wigwag.pipeline.spec import cause

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

CUT_SHORT = 130
SETTLED_SECONDS = 1.0
"""After these, a process is set up."""
FEWER_SEARCHES = (5_000, 10, 20)
"""How often the garbage collector runs, by generation: hardly anything here needs to be found, and neither a change nor
the first load of a large set should wait for it. A full collection comes after a million new objects or later."""


def run_until_told(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> int:
    """Run until `main` is over, which is given an event that is set when it is time to stop; return the exit code."""
    try:
        _run(_until_told(main))
    except BaseExceptionGroup as group:
        raise cause(group) from None
    except asyncio.CancelledError:
        return CUT_SHORT
    return 0


def _run(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _until_told(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    stop, loop, task = asyncio.Event(), asyncio.get_running_loop(), asyncio.current_task()

    def told() -> None:
        """The first time, stop gently; the second time, at once."""
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told)
    gc.set_threshold(*FEWER_SEARCHES)
    loop.call_later(SETTLED_SECONDS, settle)
    await main(stop)


def settle() -> None:
    """Leave what is there now (the program, the first flags) out of all garbage collections to come."""
    gc.freeze()
