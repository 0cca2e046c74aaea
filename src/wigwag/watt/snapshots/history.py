"""The last snapshots, by number. The first is 1, and each one after it counts one up, as in the original.

    add ─▶ number, changes ─▶ kept, the oldest dropped ─▶ Broadcast

A snapshot shares its entries with the one after it, so an old one costs only what was replaced since: the bodies of
those entries, and a reference per entry of each table that is another one now. That is charged to the old snapshot when
its successor comes. An entry that several old snapshots share is charged to the newest of them, which goes last; so
the sum of all charges is what the past costs.

The hard case is a change of everything. The newest snapshot is never dropped, whatever its size; old ones are, until
they fit into the budget.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wigwag.pipeline.broadcast import Broadcast

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.watt.snapshots.snapshot import WattSnapshot

COUNT = 10
BUDGET = 64 << 20
_REFERENCE = 100
"""Bytes of an entry in a table that is not shared, and of a delta."""


@dataclass(slots=True)
class _Kept:
    snapshot: WattSnapshot
    cost: int = 0


class WattHistory:
    """At most `count` snapshots; those before the newest cost at most `budget` bytes together."""

    def __init__(self, count: int = COUNT, budget: int = BUDGET, now: Callable[[], float] = time.time) -> None:
        self._count, self._budget, self._now = max(1, count), budget, now
        self._kept: deque[_Kept] = deque()
        self.snapshots: Broadcast[WattSnapshot] = Broadcast()
        self.cost = 0
        """Bytes that the snapshots before the newest hold, about."""

    def add(self, snapshot: WattSnapshot) -> WattSnapshot:
        """Number a snapshot and publish it; return it with its number and changes."""
        before = self.latest
        number = 1 if before is None else before.id + 1
        newest = snapshot.numbered(number, self._now(), before)
        if before is not None:
            self._kept[-1].cost = replaced_bytes(before, newest)
            self.cost += self._kept[-1].cost
        self._kept.append(_Kept(newest))
        while len(self._kept) > 1 and (len(self._kept) > self._count or self.cost > self._budget):
            self.cost -= self._kept.popleft().cost
        self.snapshots.publish(newest)
        return newest

    @property
    def latest(self) -> WattSnapshot | None:
        """The newest snapshot; None before the first."""
        return self._kept[-1].snapshot if self._kept else None

    def get(self, number: int) -> WattSnapshot | None:
        """Return a snapshot; None if it is not kept, or not there yet."""
        at = number - self._kept[0].snapshot.id if self._kept else -1
        return self._kept[at].snapshot if 0 <= at < len(self._kept) else None

    def ids(self) -> list[int]:
        """Return the numbers of the snapshots that are kept, the oldest first."""
        return [each.snapshot.id for each in self._kept]


def replaced_bytes(before: WattSnapshot, after: WattSnapshot) -> int:
    """Return about how many bytes a snapshot holds that the one after it does not."""
    bodies = 0
    for delta in after.deltas:
        if delta.type != "add":
            bodies += len(before.tables[delta.table].entries[delta.key].body)
    copied = (part for table, part in before.tables.items() if after.tables.get(table) is not part)
    return bodies + _REFERENCE * (sum(len(part.entries) for part in copied) + len(before.deltas))
