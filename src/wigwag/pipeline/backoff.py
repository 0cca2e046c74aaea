"""How long to wait before trying again: exponential, with full jitter.

The pause is drawn evenly from nothing to a ceiling that doubles with every failure in a row, so that a fleet that lost
the same server at the same moment does not come back at the same moment. One good value does not prove health (a watch
that answers once and falls over would be hammered); only staying up for `healthy` seconds does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Backoff:
    """The shape of the pauses.

    >>> [Backoff(first=1, most=5).ceiling(failures) for failures in range(5)]
    [1, 2, 4, 5, 5]
    """

    first: float = 0.2
    """The longest pause after the first failure, in seconds."""
    most: float = 30.0
    """The longest pause of all."""
    healthy: float = 120.0
    """Seconds without a failure after which the next one counts as the first."""

    def ceiling(self, failures: int) -> float:
        """Return the longest pause after so many failures in a row before this one."""
        return min(self.most, self.first * (1 << min(failures, 60)))

    def pause(self, failures: int, random: Callable[[], float]) -> float:
        """Return a pause; `random` gives a number from 0 to 1."""
        return self.ceiling(failures) * random()
