"""Threads that call notifiers: in order for each flag, and none of them in the way of the others.

A strand is what waits for one flag's notifiers. Its items are taken one by one, each by whichever thread of the crew is
free; so one flag's changes come in order, and a notifier that blocks holds up its own flag only, until as many block
as there are threads. A strand that is too long is shortened from the middle: two neighbours become one, from the
first's old value to the second's new one, so the chain of values never breaks.

Threads come when there is work and go when there is none for a while. They are daemons: a notifier that never returns
must not keep the process from ending. Where no thread is to be had, what waits is tried again with the next change.

After a fork nothing is left of them but the one thread that forked, if it is one of them. It knows by the condition it
began with: the child has another. What is left to do there is for new threads. Where there must be no threads because
of forks to come (`fork.deferred`), what waits is called in each child, and here only by who asks for it (`flush`).
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
    """From one value to the next."""

    old: Any
    new: Any
    equal: bool = False


class NotifierQueue:
    """The changes that wait for one flag's notifiers."""

    __slots__ = ("busy", "by", "call", "steps")

    def __init__(self, call: Callable[[ValueChange], None]) -> None:
        self.call, self.busy = call, False
        self.by: int | None = None
        """The thread that calls the first of them now."""
        self.steps: deque[ValueChange] = deque()


def push(steps: deque[ValueChange], step: ValueChange, most: int) -> None:
    """Add a step; if there are too many, make one of the last two."""
    if len(steps) >= most:
        step = ValueChange(steps.pop().old, step.new)
    steps.append(step)


class NotifierPool:
    """The threads."""

    def __init__(self, threads: int = _THREADS, backlog: int = BACKLOG, linger: float = _LINGER) -> None:
        self._most, self._backlog, self._linger = threads, max(backlog, 2), linger
        self.reset()

    def reset(self) -> None:
        """Begin without threads, as a process does that was just forked."""
        self._changed = threading.Condition()
        self._ready: deque[NotifierQueue] = deque()
        self._threads: set[int] = set()
        self._running = self._idle = self._unfinished = 0
        self._short = False

    def submit(self, queue: NotifierQueue, step: ValueChange) -> None:
        """Have a step called, after those that wait already."""
        with self._changed:
            push(queue.steps, step, self._backlog)
            self._schedule(queue)

    def resume(self, queue: NotifierQueue) -> None:
        """After `reset`: go on with what waited. What was being called is called again, for it may not have got far.

        But not what this very thread is calling: it has forked, and would fork again, and so on without end.
        """
        with self._changed:
            if queue.by == get_ident():
                queue.steps.popleft()
            queue.busy, queue.by = False, None
            if queue.steps:
                self._schedule(queue)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until nothing waits or is being called; tell whether that came in time."""
        if get_ident() in self._threads:
            raise UsageError("flush() waits for the notifiers, so a notifier that calls it would wait for itself")
        with self._changed:
            self._staff()
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
        self._staff()

    def _staff(self) -> None:
        """See that somebody comes for what is ready."""
        if not self._ready:
            return
        if self._idle >= len(self._ready):
            self._changed.notify_all()
        elif self._running < self._most and not deferred():
            self._hire()

    def _hire(self) -> None:
        try:
            threading.Thread(target=self._work, name="dflag notifiers", daemon=True).start()
        except RuntimeError as error:
            if not self._short:
                log.error("no thread is to be had for notifiers, which have to wait: %s", error)  # noqa: TRY400
            self._short = True
        else:
            self._running += 1
            self._short = False

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
        """Call what waits, in this thread."""
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
            came = changed.wait_for(lambda: self._ready, self._linger)
            self._idle -= 1
            if came:
                return self._ready.popleft()
            self._running -= 1
            return None
