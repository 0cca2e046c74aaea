"""When to ask a remote that cannot push: at moments of the wall clock, so that a fleet can be kept in step, or apart.

The moments are `offset + n · interval`. The offset is the hash of a seed, as in flagd, so that it survives a restart;
without a seed it is drawn by lot, so that a fleet spreads. A wait is measured by the monotonic clock and is never
longer than an interval, nor does it end before half of one has passed since the last question began: whatever happens
to the wall clock, nothing is asked in a burst, and nothing is forgotten. The hard case is two clocks that drift apart,
so that a wait ends just before its moment: that moment counts as reached, or each would be asked at twice.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from wigwag.golang import fnv1a32

if TYPE_CHECKING:
    from collections.abc import Callable

_EARLY = 0.05
_DATE = "%a, %d %b %Y %H:%M:%S GMT"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The moments to ask at.

    >>> schedule = Schedule.of(5.0, "pod-7", lambda: 0.0)
    >>> schedule.offset
    3.0
    >>> schedule.pause(wall=1001.0, since=5.0), schedule.pause(wall=1002.0, since=0.5), schedule.pause(1002.9, 0.5)
    (2.0, 2.0, 5.0)
    """

    interval: float
    offset: float

    @classmethod
    def of(cls, interval: float, seed: str, random: Callable[[], float]) -> Schedule:
        """`random` gives a number from 0 to 1."""
        return cls(interval, math.fmod(fnv1a32([seed]), interval) if seed else interval * random())

    def pause(self, wall: float, since: float) -> float:
        """Return how long to wait, at a time of the wall clock, so many seconds after the last question."""
        early = self.interval * _EARLY
        due = early + self.interval - (wall + early - self.offset) % self.interval
        return min(max(due, self.interval / 2 - since), self.interval)


def retry_after(value: str, wall: float) -> float | None:
    """Read a Retry-After: seconds, or a date.

    >>> retry_after("120", 0.0), retry_after("Thu, 01 Jan 1970 00:02:00 GMT", 60.0), retry_after("soon", 0.0)
    (120.0, 60.0, None)
    """
    if re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return float(value)
    date = http_date(value)
    return None if date is None else date - wall


def http_date(value: str) -> float | None:
    """Read a date of HTTP, in seconds since the epoch.

    >>> http_date("Thu, 01 Jan 1970 00:01:00 GMT"), http_date("yesterday")
    (60.0, None)
    """
    try:
        return datetime.strptime(value.strip(), _DATE).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
