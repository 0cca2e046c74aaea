"""Threads that call notifiers: in order for each flag, and none of them in the way of the others.

A strand is what waits for one flag's notifiers. Its items are taken one by one, each by whichever thread of the crew is
free; so one flag's changes come in order, and a notifier that blocks holds up its own flag only, until as many block
as there are threads. A strand that is too long is shortened from the middle: two neighbours become one, from the
first's old value to the second's new one, so the chain of values never breaks.

Threads come when there is work and go when there is none for a while. They are daemons: a notifier that never returns
must not keep the process from ending.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

BACKLOG = 1000
"""How many changes may wait for the notifiers of one flag."""
_THREADS = 8
_LINGER = 5.0


class Step(NamedTuple):
    """From one value to the next."""

    old: Any
    new: Any
    equal: bool = False


class Strand:
    """The changes that wait for one flag's notifiers."""

    __slots__ = ("busy", "call", "steps")

    def __init__(self, call: Callable[[Step], None]) -> None:
        self.call, self.busy = call, False
        self.steps: deque[Step] = deque()


def push(steps: deque[Step], step: Step, most: int) -> None:
    """Add a step; if there are too many, make one of the last two."""
    if len(steps) >= most:
        step = Step(steps.pop().old, step.new)
    steps.append(step)


class Crew:
    """The threads."""

    def __init__(self, threads: int = _THREADS, backlog: int = BACKLOG, linger: float = _LINGER) -> None:
        self._most, self._backlog, self._linger = threads, max(backlog, 2), linger
        self.reset()

    def reset(self) -> None:
        """Begin without threads, as a process does that was just forked."""
        self._changed = threading.Condition()
        self._ready: deque[Strand] = deque()
        self._running = self._idle = self._unfinished = 0

    def submit(self, strand: Strand, step: Step) -> None:
        """Have a step called, after those that wait already."""
        with self._changed:
            push(strand.steps, step, self._backlog)
            self._schedule(strand)

    def resume(self, strand: Strand) -> None:
        """After `reset`: go on with what waited; what was being called is called again, for it may not have got far."""
        with self._changed:
            self._schedule(strand)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until nothing waits or is being called; tell whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unfinished, timeout)

    def _schedule(self, strand: Strand) -> None:
        if strand.busy:
            return
        strand.busy = True
        self._unfinished += 1
        self._ready.append(strand)
        if self._idle >= len(self._ready):
            self._changed.notify_all()
        elif self._running < self._most:
            self._running += 1
            threading.Thread(target=self._work, name="dflag notifiers", daemon=True).start()

    def _work(self) -> None:
        changed = self._changed
        while (strand := self._next(changed)) is not None:
            strand.call(strand.steps[0])
            with changed:
                strand.steps.popleft()
                if strand.steps:
                    self._ready.append(strand)
                else:
                    strand.busy = False
                    self._unfinished -= 1
                    changed.notify_all()

    def _next(self, changed: threading.Condition) -> Strand | None:
        with changed:
            self._idle += 1
            came = changed.wait_for(lambda: self._ready, self._linger)
            self._idle -= 1
            if came:
                return self._ready.popleft()
            self._running -= 1
            return None
