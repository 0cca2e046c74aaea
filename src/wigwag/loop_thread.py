"""A thread with an event loop of its own, for programs that have none.

The thread is a daemon, so a program that forgets to stop it can still end; and it is stopped when the interpreter
exits, so it never ends in the middle of something. After a fork it belongs to the parent: in the child its object is an
empty shell that must not touch the loop, because the loop shares its descriptors with the parent's.

The hard case is a fork just after `stop`. Before Python 3.13, `join` returns a little before the kernel has ended the
thread. In that moment OpenSSL frees what it kept for the thread, under a lock. A fork copies the lock as it is, and the
child's next TLS connection waits for ever. So `stop` waits until the kernel has none of the loop's threads any more.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

log = logging.getLogger("wigwag.loop_thread")
EXIT_TIMEOUT = 2.0
"""Seconds that the exit of the program waits for the thread. If it takes longer, it is in a callback of the user."""
KERNEL_TIMEOUT = 2.0
"""Seconds to wait for the kernel to end threads; they take microseconds, and nothing may hang because of them."""
_PAUSE = 0.0005
_TASKS = Path("/proc/self/task")


class LoopThread:
    """Runs a coroutine until it is stopped."""

    def __init__(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._main, self._process = main, os.getpid()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._threads: list[int] = []
        self.ended = False
        """Whether the coroutine has ended, in this process or, before a fork, in its parent."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the process cannot have more threads
            self._loop.close()
            raise
        atexit.register(self.stop, EXIT_TIMEOUT)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process == os.getpid() and self._thread.is_alive()

    @property
    def here(self) -> bool:
        """Whether the caller is in this thread."""
        return threading.current_thread() is self._thread

    def stop(self, timeout: float | None = None) -> None:
        """Cancel the coroutine and wait for its end; from within, only cancel it. A second call does nothing."""
        if self._process != os.getpid():
            return
        atexit.unregister(self.stop)
        if not self._stopping:
            self._stopping = True
            with suppress(RuntimeError):  # the loop is closed: the coroutine has ended by itself
                self._loop.call_soon_threadsafe(self._cancel)
        if not self.here:
            self._thread.join(timeout)
            if not self._thread.is_alive():
                wait_for_end(self._threads)
                self._threads = []

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._threads = note_threads(self._loop)
        try:
            self._task = self._loop.create_task(self._main())
            self._loop.run_until_complete(asyncio.wait([self._task]))
            if not self._task.cancelled():
                self._task.exception()  # retrieve it: the coroutine has reported it
            elif not self._stopping:
                log.error("the thread %r ended, but nobody stopped it", self._thread.name)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self.ended = True


def note_threads(loop: asyncio.AbstractEventLoop) -> list[int]:
    """Return the ids of the loop's threads: this one, and later those of its default executor as they start."""
    threads = [threading.get_native_id()]
    loop.set_default_executor(ThreadPoolExecutor(initializer=lambda: threads.append(threading.get_native_id())))
    return threads


def wait_for_end(threads: Collection[int], sleep: Callable[[float], object] = time.sleep, tasks: Path = _TASKS) -> None:
    """Wait until the kernel has none of these threads; where it does not list them, do not wait.

    >>> wait_for_end([0])
    """
    for _ in range(int(KERNEL_TIMEOUT / _PAUSE)):
        if not any((tasks / str(thread)).exists() for thread in threads):
            return
        sleep(_PAUSE)
