"""A work queue of keys, with the semantics of client-go's: nothing is lost, and one key is in one worker at a time.

    add ──▶ ready, in order ──take──▶ in work ──finish──▶ gone, or ready again if it was added meanwhile
     ▲                                   │
    delayed, by time ◀── add_at, retry ◀─┘

A key stands for "look at this object", never for a change. So adding one that is ready already does nothing, and adding
one that is in work makes it ready again when that work ends: what was added is always looked at *after* it was added.

`KeyQueue` decides; time is an argument. `WorkQueue` has the clock and lets workers wait. The hard case is a key that
fails for ever: it has a back-off of its own, which `forget` ends, so it holds up no other key. The limiter counts all
keys that are taken, not only retries as client-go's does: a change of a thousand objects is paced as well. Keys can be
in groups that take turns, so that ten thousand keys of one tenant do not hold up the one of another.

A key that is added as `urgent` is taken before all others, and without asking the limiter. It stays urgent until work
on it succeeds. Who adds such keys limits how many there are.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from random import random
from typing import TYPE_CHECKING, Generic, TypeVar

from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import Clock, LoopClock, wait_event
from wigwag.pipeline.limit import Limiter, unlimited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable

K = TypeVar("K", bound="Hashable")


class KeyQueue(Generic[K]):
    """The decisions of a work queue.

    >>> queue = KeyQueue[str]()
    >>> queue.add("a"); queue.add("a"); queue.take(now=0.0)
    'a'
    >>> queue.add("a"); queue.take(now=0.0) is None  # it is in work
    True
    >>> queue.finish("a"); queue.take(now=0.0)
    'a'
    """

    def __init__(
        self,
        backoff: Backoff = Backoff(),  # noqa: B008 - a frozen value
        random: Callable[[], float] = random,
        limit: Limiter = unlimited,
        group: Callable[[K], Hashable] = lambda _: None,
    ) -> None:
        """`limit` has state, so each queue needs its own. Groups of keys take turns; by default all are one group."""
        self._backoff, self._random, self._limit, self._group = backoff, random, limit, group
        self._ready: OrderedDict[Hashable, OrderedDict[K, None]] = OrderedDict()
        """The keys of each group. (A plain dict whose first key is often deleted gets slow.)"""
        self._urgent: OrderedDict[K, None] = OrderedDict()
        """Keys to be taken first, as soon as they are ready."""
        self._expedited: set[K] = set()
        """Keys that were urgent when they were taken, and have not succeeded since."""
        self._again: set[K] = set()
        """Added while in work."""
        self._in_work: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        """The delayed keys by time; an entry counts if `_due` has its time."""
        self._serial = 0
        self._retries: dict[K, Retry] = {}
        self._resume = -math.inf
        """When the limiter wants to be asked again."""

    def __len__(self) -> int:
        """Return how many keys are ready."""
        return sum(map(len, self._ready.values())) + len(self._again)

    @property
    def in_work(self) -> int:
        """How many keys workers have."""
        return len(self._in_work)

    @property
    def delayed(self) -> int:
        """How many keys become ready later."""
        return len(self._due)

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Have a key worked on; before all others if it is urgent."""
        if urgent:
            self._urgent[key] = None
        if key in self._in_work:
            self._again.add(key)
        else:
            self._ready.setdefault(self._group(key), OrderedDict())[key] = None

    def add_at(self, key: K, when: float) -> None:
        """Add a key at a time. Of several times the earliest counts."""
        if when < self._due.get(key, math.inf):
            self._due[key] = when
            self._serial += 1
            heappush(self._heap, (when, self._serial, key))

    def retry(self, key: K, now: float, retry_after: float = 0.0) -> float:
        """Add a key that has failed after its back-off; return when that is."""
        if key in self._expedited:
            self._urgent[key] = None
        retry = self._retries.setdefault(key, Retry(self._backoff, self._random))
        when = retry.next(now, retry_after)
        self.add_at(key, when)
        return when

    def forget(self, key: K) -> None:
        """Note a success: the next failure counts as the first."""
        self._retries.pop(key, None)
        self._expedited.discard(key)

    def take(self, now: float, *, urgent_only: bool = False) -> K | None:
        """Return the next key to work on, which must be given back with `finish`; None if there is none now."""
        while self._heap and self._heap[0][0] <= now:
            when, _, key = heappop(self._heap)
            if self._due.get(key) == when:
                del self._due[key]
                self.add(key)
        if (urgent := next(filter(self._is_ready, self._urgent), None)) is not None:
            del self._urgent[urgent]
            self._withdraw(urgent)
            self._in_work.add(urgent)
            self._expedited.add(urgent)
            return urgent
        if urgent_only or not self._ready or now < self._resume:
            return None
        wait = self._limit(now)
        if wait:
            self._resume = now + wait
            return None
        group, keys = self._ready.popitem(last=False)
        key, _ = keys.popitem(last=False)
        if keys:
            self._ready[group] = keys  # behind the others
        self._in_work.add(key)
        return key

    def _is_ready(self, key: K) -> bool:
        return key in self._ready.get(self._group(key), ())

    def _withdraw(self, key: K) -> None:
        """Take a key out of its group."""
        group = self._group(key)
        del self._ready[group][key]
        if not self._ready[group]:
            del self._ready[group]

    def finish(self, key: K) -> None:
        """Note that the work on a key has ended."""
        self._in_work.remove(key)
        if key in self._again:
            self._again.remove(key)
            self.add(key)

    def next_at(self, *, urgent_only: bool = False) -> float:
        """Return when `take` may have a key, unless one is added or finished before; infinity: never."""
        delayed = self._heap[0][0] if self._heap else math.inf
        return min(delayed, self._resume) if self._ready and not urgent_only else delayed


class WorkQueue(Generic[K]):
    """A work queue in which workers wait.

    queue = WorkQueue[str]()
    queue.add("a")
    async with queue.next() as key: ...
    """

    def __init__(self, keys: KeyQueue[K] | None = None, clock: Clock = LoopClock()) -> None:  # noqa: B008
        self.keys: KeyQueue[K] = KeyQueue() if keys is None else keys
        """The state, to be read."""
        self.clock = clock
        self._changed = asyncio.Event()

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Have a key worked on, as soon as possible; before all others if it is urgent."""
        self.keys.add(key, urgent=urgent)
        self._changed.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Have a key worked on in a while, or earlier if it is added again."""
        self.keys.add_at(key, self.clock.now() + seconds)
        self._changed.set()

    def retry(self, key: K, retry_after: float = 0.0) -> float:
        """Have a key that has failed worked on after its back-off; return when, by the clock."""
        when = self.keys.retry(key, self.clock.now(), retry_after)
        self._changed.set()
        return when

    def forget(self, key: K) -> None:
        """Note a success."""
        self.keys.forget(key)

    @asynccontextmanager
    async def next(self, *, urgent_only: bool = False) -> AsyncIterator[K]:
        """Wait for the next key. At the end of the block its work is done; if that raises, it is ready again."""
        while (key := self.keys.take(self.clock.now(), urgent_only=urgent_only)) is None:
            at = self.keys.next_at(urgent_only=urgent_only)
            if at < math.inf:
                await wait_event(self.clock, self._changed, at)
            else:
                await self._changed.wait()
                self._changed.clear()
        try:
            yield key
        except BaseException:  # also a worker that is cancelled, because this replica leads no longer
            self.keys.add(key)
            raise
        finally:
            self.keys.finish(key)
            self._changed.set()
