"""A process that serves until a signal stops it: its log, its limits, its event loop and its exit code.

The first signal drains it, the second stops it at once. An error is raised as itself, not as the groups that tasks wrap
it in.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from typing import TYPE_CHECKING, Any

from wigwag.observe import set_up_logging
from wigwag.pipeline.spec import cause
from wigwag.serve.face.capacity import raise_open_files

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

CUT_SHORT = 130
SETTLED_SECONDS = 1.0
"""How long a process takes to start."""
FEWER_SEARCHES = (5_000, 10, 20)
"""How often the garbage collector runs, by generation. There are few cycles to collect, and neither a change nor the
first load of a large set should wait for it. A full collection comes after a million new objects or later."""


def run_process(
    main: Callable[[asyncio.Event], Coroutine[Any, Any, None]], log_format: str, open_files: int, *, debug: bool
) -> int:
    """Run until `main` is over, which is given an event that is set when it is time to stop; return the exit code.

    `open_files` is how many files the process would like to open at a time.
    """
    set_up_logging(log_format, debug=debug)
    logging.getLogger("wigwag.pipeline.watch").setLevel(logging.ERROR)  # the face logs statuses by `log_statuses`
    raise_open_files(open_files)
    try:
        _run(_until_stopped(main))
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


async def _until_stopped(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    stop, loop, task = asyncio.Event(), asyncio.get_running_loop(), asyncio.current_task()

    def signalled() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled)
    gc.set_threshold(*FEWER_SEARCHES)
    loop.call_later(SETTLED_SECONDS, settle)
    await main(stop)


def settle() -> None:
    """Exclude what is in memory now (the program, the first flags) from all later garbage collections."""
    gc.freeze()
