"""The threads that call notifiers: in order for each flag, and without one flag delaying another.

Each flag has a queue. Any free thread of the pool takes the first change of a queue; so one flag's changes come in
order, and a notifier that blocks delays its own flag only, until as many block as there are threads. A queue that is
too long is shortened at its end: the last two changes become one, from the first's old value to the second's new one,
so the chain of values never breaks.

Threads start when there is work and end after a while without. They are daemons: a notifier that never returns must not
keep the process alive. If no thread can be started, the next change tries again.

The hard case is a fork. Only the thread that forked survives in the child, if it is one of these; it recognises the
child because the condition there is a new one, and ends. `resume` schedules the queues for new threads. Where threads
must not exist because of forks to come (`fork.deferred`), calls are made in each child, and here only by `flush`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any, NamedTuple

from wigwag.dflag.fork import deferred
from wigwag.errors import UsageError

BACKLOG = 1000
"""How many changes may wait for the notifiers of one flag."""
_THREADS = 8
_LINGER = 5.0
log = logging.getLogger("wigwag.dflag")


class ValueChange(NamedTuple):
    """A change from one value to the next."""

    old: Any
    new: Any
    equal: bool = False


class NotifierQueue:
    """The changes for the notifiers of one flag."""

    __slots__ = ("busy", "by", "call", "steps")

    def __init__(self, call: Callable[[ValueChange], None]) -> None:
        self.call, self.busy = call, False
        self.by: int | None = None
        """The thread that is calling the first of them."""
        self.steps: deque[ValueChange] = deque()


def push(steps: deque[ValueChange], step: ValueChange, most: int) -> None:
    """Append a change; if there are too many, merge it into the last one."""
    if len(steps) >= most:
        step = ValueChange(steps.pop().old, step.new)
    steps.append(step)


class NotifierPool:
    """At most `threads` threads, and the queues that are ready for them."""

    def __init__(self, threads: int = _THREADS, backlog: int = BACKLOG, linger: float = _LINGER) -> None:
        self._most, self._backlog, self._linger = threads, max(backlog, 2), linger
        self.errors = 0
        """How many times a notifier has raised."""
        self.reset()

    def reset(self) -> None:
        """Start without threads, as in the child of a fork."""
        self._changed = threading.Condition()
        self._ready: deque[NotifierQueue] = deque()
        self._threads: set[int] = set()
        self._running = self._idle = self._unfinished = 0
        self._failed_to_start = False

    def count_error(self) -> None:
        """Count a notifier that raised."""
        with self._changed:
            self.errors += 1

    def submit(self, queue: NotifierQueue, step: ValueChange) -> None:
        """Queue a change."""
        with self._changed:
            push(queue.steps, step, self._backlog)
            self._schedule(queue)

    def resume(self, queue: NotifierQueue) -> None:
        """Schedule a queue after `reset`. A call that was under way is made again, because nobody knows how far it got.

        But not one that this thread is making: it has forked, and would fork again.
        """
        with self._changed:
            if queue.by == get_ident():
                queue.steps.popleft()
            queue.busy, queue.by = False, None
            if queue.steps:
                self._schedule(queue)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all calls have been made; return False if the timeout comes first."""
        if get_ident() in self._threads:
            raise UsageError("flush() waits for the notifiers, so a notifier that calls it would wait for itself")
        with self._changed:
            self._wake()
        if deferred():
            self._work_here()
        with self._changed:
            return self._changed.wait_for(lambda: not self._unfinished, timeout)

    def _schedule(self, queue: NotifierQueue) -> None:
        if queue.busy and self._running:
            return
        if not queue.busy:
            queue.busy = True
            self._unfinished += 1
            self._ready.append(queue)
        self._wake()

    def _wake(self) -> None:
        """Wake a thread, or start one, for the queues that are ready."""
        if not self._ready:
            return
        if self._idle >= len(self._ready):
            self._changed.notify_all()
        elif self._running < self._most and not deferred():
            self._start_thread()

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._work, name="dflag notifiers", daemon=True).start()
        except RuntimeError as error:
            if not self._failed_to_start:
                log.error("no thread can be started for notifiers, so they are delayed: %s", error)  # noqa: TRY400
            self._failed_to_start = True
        else:
            self._running += 1
            self._failed_to_start = False

    def _work(self) -> None:
        changed, threads = self._changed, self._threads
        threads.add(get_ident())
        while (queue := self._next(changed)) is not None:
            queue.by = get_ident()
            queue.call(queue.steps[0])
            if self._changed is not changed:
                return
            self._finish(queue, changed)
        threads.discard(get_ident())

    def _work_here(self) -> None:
        """Make the calls in this thread."""
        changed = self._changed
        while self._ready:
            queue = self._ready.popleft()
            queue.by = get_ident()
            queue.call(queue.steps[0])
            self._finish(queue, changed)

    def _finish(self, queue: NotifierQueue, changed: threading.Condition) -> None:
        with changed:
            queue.by = None
            queue.steps.popleft()
            if queue.steps:
                self._ready.append(queue)
            else:
                queue.busy = False
                self._unfinished -= 1
                changed.notify_all()

    def _next(self, changed: threading.Condition) -> NotifierQueue | None:
        with changed:
            self._idle += 1
            ready = changed.wait_for(lambda: self._ready, self._linger)
            self._idle -= 1
            if ready:
                return self._ready.popleft()
            self._running -= 1
            return None
