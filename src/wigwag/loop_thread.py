"""A thread of our own with an event loop of its own, for programs that have none.

It is a daemon, because a program that forgets to stop it must still be able to end; and it is stopped when the
interpreter exits, so that it never ends in the middle of something. After a fork it is the parent's: whoever has it in
the child has an empty shell, which must not touch the loop, for that shares its descriptors with the parent's.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from wigwag.ending import note_threads, wait_for_end

log = logging.getLogger("wigwag.loop_thread")
_LAST_PATIENCE = 2.0
"""Seconds that the end of the program waits for it; one that takes longer is in a notifier of the user."""


class LoopThread:
    """Runs a coroutine until it is stopped."""

    def __init__(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._main, self._process = main, os.getpid()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._threads: list[int] = []
        self.ended = False
        """Whether it has come to its end, in this process or, before a fork, in its parent."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # there is no thread to be had
            self._loop.close()
            raise
        atexit.register(self.stop, _LAST_PATIENCE)

    @property
    def alive(self) -> bool:
        """Whether it runs still."""
        return self._process == os.getpid() and self._thread.is_alive()

    @property
    def here(self) -> bool:
        """Whether this is its thread."""
        return threading.current_thread() is self._thread

    def stop(self, patience: float | None = None) -> None:
        """Cancel the coroutine and wait for its end; from within, only cancel it. A second time does nothing."""
        if self._process != os.getpid():
            return
        atexit.unregister(self.stop)
        if not self._stopping:
            self._stopping = True
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._cancel)
        if not self.here:
            self._thread.join(patience)
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
                self._task.exception()  # it has been told of by whoever it happened to
            elif not self._stopping:
                log.error("the thread %r has ended, though nobody has stopped it", self._thread.name)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self.ended = True
