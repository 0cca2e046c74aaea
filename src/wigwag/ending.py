"""Threads that have ended for Python, but not yet for the kernel.

Before Python 3.13, `join` returns a little before a thread is gone. In that moment OpenSSL clears away what it kept for
the thread, under a lock of its own. A fork that falls into it copies the lock as it is, and in the child whoever makes
a TLS connection waits for ever. So whoever has had threads that may have used TLS waits until they are gone.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PATIENCE = 2.0
"""Seconds that are waited. What takes longer is not the moment that is meant, and nobody is to hang because of it."""
_PAUSE = 0.0005
_TASKS = Path("/proc/self/task")


def note_threads(loop: asyncio.AbstractEventLoop) -> list[int]:
    """Return this thread, which is a loop's, and have those noted there that will do the loop's blocking work."""
    found = [threading.get_native_id()]
    workers = ThreadPoolExecutor(initializer=lambda: found.append(threading.get_native_id()))
    loop.set_default_executor(workers)
    return found


def wait_for_end(threads: Collection[int], sleep: Callable[[float], object] = time.sleep, tasks: Path = _TASKS) -> None:
    """Wait until the kernel has none of these threads; where it does not say which it has, do not wait.

    >>> wait_for_end([0])
    """
    for _ in range(int(PATIENCE / _PAUSE)):
        if not any((tasks / str(thread)).exists() for thread in threads):
            return
        sleep(_PAUSE)
