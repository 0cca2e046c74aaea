"""Evaluations of each flag and variant in the last minutes: samples of counters that exist anyway.

    counters ─ every 10 s ─▶ what was added, by variant ─▶ the last 30 samples

Evaluations pay nothing for it. A sample has only the counters that moved, as two numbers each, and at most so many of
them, so all samples together stay below two megabytes however many flags there are. Counters have a bounded number of
label sets; flags beyond them are counted together, and the console says so.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING, Any

from wigwag.pipeline.broadcast import Broadcast
from wigwag.pipeline.clock import sleep_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wigwag.observe import Cell
    from wigwag.pipeline.clock import Clock

    Counts = Iterable[tuple[str, str, Cell]]
    """The key, the variant and the counter of each."""

SECONDS = 10.0
SAMPLES = 30
_MOST_MOVED = 4_000


class EvaluationHistory:
    """The evaluations of the last minutes."""

    def __init__(self, counts: Callable[[], Counts], samples: int = SAMPLES) -> None:
        """`counts` returns the counters, in an order that stays: new ones come last."""
        self._counts = counts
        self._seen = array("d")
        self._samples: deque[array[float]] = deque(maxlen=samples)
        self.samples = Broadcast[None]()
        """Notifies of each sample."""

    async def run(self, clock: Clock) -> None:
        """Take a sample from time to time."""
        while True:
            await sleep_until(clock, clock.now() + SECONDS)
            self.sample()

    def sample(self) -> None:
        """Note what was added since the last sample: position and amount in turn."""
        moved = array("d")
        for position, (_, _, cell) in enumerate(self._counts()):
            count = cell[0]
            if position == len(self._seen):
                self._seen.append(0.0)
            if count != self._seen[position] and len(moved) < 2 * _MOST_MOVED:
                moved.extend((position, count - self._seen[position]))
            self._seen[position] = count
        self._samples.append(moved)
        self.samples.publish(None)

    def to_dict(self, keys: Callable[[str], bool]) -> dict[str, Any]:
        """Return the evaluations of flags as JSON: for each variant the total, and the samples, oldest first."""
        labels = [(key, variant, cell[0]) for key, variant, cell in self._counts()]
        flags: dict[str, dict[str, dict[str, Any]]] = {}
        for key, variant, count in labels:
            if keys(key):
                entry = flags.setdefault(key, {}).setdefault(variant, {"total": 0, "recent": [0] * len(self._samples)})
                entry["total"] += int(count)
        for number, moved in enumerate(self._samples):
            for position, amount in zip(moved[::2], moved[1::2], strict=True):
                key, variant, _ = labels[int(position)]
                if key in flags:
                    flags[key][variant]["recent"][number] += int(amount)
        return {"seconds": SECONDS, "flags": flags}
