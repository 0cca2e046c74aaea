"""How often a caller may send requests, and how many streams it may have open.

The rate limit is a token bucket, kept as one number: the time at which it is full again. A request moves that time by
one interval; if it is too far ahead already, the request is refused. A caller that has been quiet long enough has a
full bucket, which is the same as none, so the table can forget it.

The hard case is a caller with a million addresses. The table has a fixed size and drops the caller that was quiet
longest: such a caller is not limited by it (no table could), but it fills no memory and takes nothing from others.
IPv6 addresses count by their /64, the smallest network that one site is given.
"""

from __future__ import annotations

from functools import lru_cache

from wigwag.wire.peer import host_of, network_of

MOST_CALLERS = 10_000
UNKNOWN = "unknown"
_ROUNDING = 1e-9


class Throttle:
    """At most `rate` requests a second from each caller, and `burst` at once."""

    def __init__(self, rate: float, burst: int, most: int = MOST_CALLERS) -> None:
        self._interval = 1 / rate
        self._slack = (burst - 1) * self._interval + _ROUNDING
        self._full: dict[str, float] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._full)

    def take(self, caller: str, now: float) -> float:
        """Count a request and return 0, or return after how many seconds there is room for it.

        >>> throttle = Throttle(rate=2, burst=1)
        >>> throttle.take("a", 10.0), throttle.take("a", 10.1), throttle.take("b", 10.1), throttle.take("a", 10.5)
        (0.0, 0.4, 0.0, 0.0)
        """
        full = self._full.pop(caller, now)  # put back at the end: the first is whoever was quiet longest
        full = max(full, now)
        wait = full - now - self._slack
        self._full[caller] = full if wait > 0 else full + self._interval
        if len(self._full) > self._most:
            del self._full[next(iter(self._full))]
        return round(wait, 6) if wait > 0 else 0.0


class Slots:
    """At most `most` things at once for each caller. Who has none takes no room."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def free(self, caller: str) -> bool:
        """Return whether there is one left."""
        return self._taken.get(caller, 0) < self.most

    def take(self, caller: str) -> bool:
        """Take one, if there is one left."""
        if not self.free(caller):
            return False
        self._taken[caller] = self._taken.get(caller, 0) + 1
        return True

    def give_back(self, caller: str) -> None:
        """Be done with one."""
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]


@lru_cache(maxsize=1024)
def place(address: str) -> str:
    """Return whom an address and port stand for: one machine, or one site.

    >>> place("192.0.2.7:4000"), place("::ffff:192.0.2.7:4000"), place("2001:db8:1:2:3::4:4000"), place("unix")
    ('192.0.2.7', '192.0.2.7', '2001:db8:1:2::/64', 'unix')
    """
    return network_of(host_of(address)) or UNKNOWN
