"""Whether a client takes what waits for it: by amount, because a byte now and then is no progress."""

from __future__ import annotations


class Progress:
    """What a client had taken when it last made progress, and when that was."""

    __slots__ = ("_mark", "since")

    def __init__(self) -> None:
        self._mark, self.since = -1, 0.0

    def stalled(self, taken: int, now: float, least: int) -> float:
        """Return for how long less than `least` bytes were taken; `taken` is how much was so far."""
        if self._mark < 0 or taken < self._mark or taken - self._mark >= max(1, least):
            self._mark, self.since = taken, now
        return now - self.since
