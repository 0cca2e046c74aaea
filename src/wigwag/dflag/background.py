"""A thread of our own with an event loop of its own, for programs that have none.

It is a daemon, because a program that forgets to stop it must still be able to end; and it is stopped when the
interpreter exits, so that it never ends in the middle of something.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any


class Background:
    """Runs a coroutine until it is stopped."""

    def __init__(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._main = main
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        atexit.register(self.stop)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it runs still."""
        return self._thread.is_alive()

    @property
    def here(self) -> bool:
        """Whether this is its thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Cancel the coroutine and wait for its end; from within, only cancel it. A second time does nothing."""
        atexit.unregister(self.stop)
        if not self._stopping:
            self._stopping = True
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._cancel)
        if not self.here:
            self._thread.join()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._task = self._loop.create_task(self._main())
            self._loop.run_until_complete(asyncio.wait([self._task]))
            if not self._task.cancelled():
                self._task.exception()  # it has been told of by whoever it happened to
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
