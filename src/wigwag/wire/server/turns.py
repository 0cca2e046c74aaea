"""How long each connection may work before others have their turn: the scheduler of all connections of a process.

    data arrives ─▶ admit ─ now ──▶ a slice of work ─▶ done ─ something left ─┐
                        └─ later ─▶ queues, one for each level of use ◀───────┘

One turn of the event loop works for about `BUDGET` seconds, however many clients there are and whatever they send; what
is left waits in a queue, and each connection in it gets one slice at a time (round robin). The more of the last second
a connection has used, the higher its level, and a lower level comes first: so one request of a quiet client waits for a
turn of the loop, and not for the backlog of those who flood.

While nothing is queued, which is nearly always, it costs two readings of the clock for each read. The time that was
used is added up, and reset by a callback of the loop, but only once it is worth one (`MARK`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

SLICE = 0.0005
"""Seconds that one connection works before the next one does."""
BUDGET = 0.004
"""Seconds that all connections together work in one turn of the loop."""
MARK = 0.001
NOTABLE = 0.00005
"""Seconds of work that are counted for the connection; what takes less could not hold up anybody."""
PERIOD = 1.0
"""Seconds for which use is remembered in full; after each it is halved."""
LEVELS = (SLICE, 4 * SLICE, 16 * SLICE, 64 * SLICE)
"""Seconds of use up to which a connection is of the first level, the second, the third, the fourth."""


class ScheduledConnection(Protocol):
    """A connection, as far as the scheduler knows it."""

    loop: asyncio.AbstractEventLoop
    share: TimeShare

    def work(self, until: float) -> bool:
        """Work until that time; return whether there is more that could be done now."""


class TimeShare:
    """What one connection has used of the time."""

    __slots__ = ("queued", "since", "used")

    def __init__(self) -> None:
        self.queued = False
        self.since = self.used = 0.0


class Turns:
    """The scheduler. `clock` gives seconds, as the event loop does, but not those of the last turn."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._queues: tuple[deque[ScheduledConnection], ...] = tuple(deque() for _ in range(len(LEVELS) + 1))
        self._waiting = 0
        self.spent, self._marked = 0.0, False
        """Seconds that were used in this turn of the loop, and perhaps a few before it."""
        self.crowded = False
        """Whether a connection has to ask before it works: something is queued, or the budget is used up."""

    def admit(self, worker: ScheduledConnection) -> float:
        """Return until when the worker may work now, and then calls `done`; 0: it is queued, `work` will be called."""
        if not self.crowded or (self.spent < BUDGET and self._comes_first(worker.share)):
            return self.clock() + SLICE
        self.later(worker)
        return 0.0

    def _comes_first(self, share: TimeShare) -> bool:
        """Return whether a connection that is not queued need not queue behind the others."""
        return not share.queued and not any(self._queues[: self._level(share, self.clock()) + 1])

    @staticmethod
    def _level(share: TimeShare, now: float) -> int:
        """Return the level of a connection by what it has used."""
        periods = int((now - share.since) / PERIOD)
        if periods > 0:
            share.since, share.used = now, share.used / (1 << min(periods, 30))
        return bisect_left(LEVELS, share.used)

    def later(self, worker: ScheduledConnection) -> None:
        """Call `work` in a later turn."""
        share = worker.share
        if not share.queued:
            share.queued = True
            self._waiting += 1
            self._queues[self._level(share, self.clock())].append(worker)
            self._mark(worker)

    def done(self, worker: ScheduledConnection, until: float, more: bool) -> None:
        """Note how long the worker took, and whether it has more to do."""
        used = self.clock() - until + SLICE
        self.spent += used
        self.note(worker, used, more)

    def note(self, worker: ScheduledConnection, used: float, more: bool) -> None:
        """Note that a worker took so long, which is in `spent` already, and whether it has more to do."""
        if more or used > NOTABLE:
            self._level(worker.share, self.clock())  # forgets what is long ago
            worker.share.used += used
        if more:
            self.later(worker)
        elif self.spent > MARK:
            self._mark(worker)

    def _mark(self, worker: ScheduledConnection) -> None:
        """See that the next turn of the loop begins with what is queued, and with a new budget."""
        self.crowded = self.spent >= BUDGET or self._waiting > 0
        if not self._marked:
            self._marked = True
            if self.spent < BUDGET:
                worker.loop.call_soon(self._run)
            else:  # it took long: first see who came meanwhile, since they may come first
                worker.loop.call_soon(worker.loop.call_soon, self._run)

    def _run(self) -> None:
        """Work on what is queued, for one turn of the loop."""
        self._marked, self.spent, self.crowded = False, 0.0, False
        worker = None
        try:
            while self._waiting and self.spent < BUDGET:
                worker, began = next(filter(None, self._queues)).popleft(), self.clock()
                self._waiting -= 1
                worker.share.queued = False
                more = worker.work(began + SLICE)
                used = self.clock() - began
                self.spent += used
                self.note(worker, used, more)
        finally:
            if worker is not None:
                self._mark(worker)
