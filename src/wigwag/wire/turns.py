"""How long each connection may work before others have their turn: the scheduler of all connections of a process.

    data arrives ─▶ admit ─ now ──▶ a slice of work ─▶ done ─ something left ─┐
                        └─ later ─▶ queues: light connections, then heavy ones ◀┘

One turn of the event loop works for about `BUDGET` seconds, however many clients there are and whatever they send; what
is left waits in a queue, and each connection in it gets one slice at a time (round robin). A connection that has used
more than a slice within the last `PERIOD` is heavy and comes after all others, so one request of a quiet client waits
for a turn of the loop at most, and not for the backlog of those who flood.

While nothing is queued, which is nearly always, the price is two looks at the clock for each read. The time that was
used is added up, and reset by a callback of the loop, but only once it is worth one: `MARK`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

SLICE = 0.0005
"""Seconds that one connection works before the next one does."""
BUDGET = 0.004
"""Seconds that all connections together work in one turn of the loop."""
MARK = 0.001
PERIOD = 0.1


class Worker(Protocol):
    """A connection, as far as the scheduler knows it."""

    loop: asyncio.AbstractEventLoop
    share: Share

    def work(self, until: float) -> bool:
        """Work until that time; return whether there is more that could be done now."""


class Share:
    """What one connection has used of the time."""

    __slots__ = ("queued", "since", "used")

    def __init__(self) -> None:
        self.queued = False
        self.since = self.used = 0.0


class Turns:
    """The scheduler. `clock` gives seconds, from any start."""

    __slots__ = ("_heavy", "_light", "_marked", "_spent", "clock")

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock
        self._light: deque[Worker] = deque()
        self._heavy: deque[Worker] = deque()
        self._spent, self._marked = 0.0, False

    def admit(self, worker: Worker) -> float:
        """Return until when the worker may work now, and then calls `done`; 0: it is queued, `work` will be called."""
        now, share = self.clock(), worker.share
        if self._spent < BUDGET and not share.queued:
            if not self._heavy and not self._light:
                return now + SLICE
            if now - share.since > PERIOD or share.used <= SLICE:
                return now + SLICE
        self.later(worker)
        return 0.0

    def later(self, worker: Worker) -> None:
        """Call `work` in a later turn."""
        share = worker.share
        if not share.queued:
            heavy = share.used > SLICE and self.clock() - share.since <= PERIOD
            share.queued = True
            (self._heavy if heavy else self._light).append(worker)
            self._mark(worker)

    def done(self, worker: Worker, until: float, more: bool) -> None:
        """Note how long the worker took, and whether it has more to do."""
        self._spent += self._used(worker.share, until - SLICE, self.clock())
        if more and not worker.share.queued:
            worker.share.queued = True
            self._heavy.append(worker)
            self._mark(worker)
        elif self._spent > MARK:
            self._mark(worker)

    @staticmethod
    def _used(share: Share, began: float, now: float) -> float:
        used = now - began
        if began - share.since > PERIOD:
            share.since, share.used = began, used
        else:
            share.used += used
        return used

    def _mark(self, worker: Worker) -> None:
        """See that the next turn of the loop begins with what is queued, and with a new budget."""
        if not self._marked:
            self._marked = True
            worker.loop.call_soon(self._run)

    def _run(self) -> None:
        """Work on what is queued, for one turn of the loop."""
        self._marked, self._spent = False, 0.0
        worker = None
        while (queue := self._light or self._heavy) and self._spent < BUDGET:
            worker, began = queue.popleft(), self.clock()
            share = worker.share
            share.queued = False
            more = worker.work(began + SLICE)
            self._spent += self._used(share, began, self.clock())
            if more and not share.queued:
                share.queued = True
                self._heavy.append(worker)
        if worker is not None:
            self._mark(worker)
