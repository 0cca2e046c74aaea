"""The one retry policy: how long to wait before the next attempt. Everything that retries uses it.

    attempt ─ fails ─▶ next(): pause, doubled with each failure in a row ─▶ attempt
       └─ delivers data: succeeded() ─▶ the next failure counts as the first one again

Only failures in a row count. An attempt that delivered data ends the row, so the third restart of a server within a
minute costs no more than the first one.

Jitter: half of a pause is fixed, the other half is random. A fleet that lost its server at one moment spreads out. But
no client can draw several short pauses in a row and so raise its own pause far beyond the outage, as it can when the
whole pause is random.

The hard case is a server that answers once and falls over: each attempt succeeds, and the pause would never grow. So
reconnects after a success are counted by a token bucket that holds one minute's worth: while it is empty, the pause
lasts until the next token, plus jitter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """The policy, in seconds.

    >>> [Backoff(first=1, most=5).ceiling(failures) for failures in range(5)]
    [1, 2, 4, 5, 5]
    """

    first: float = 0.2
    """The longest pause after the first failure."""
    most: float = 30.0
    """The longest pause of all, except for what a server asks for."""
    reconnects: float = 6.0
    """Reconnects after a success: so many at once, and so many per minute."""
    longest_retry_after: float = 300.0
    """What a server may ask for with Retry-After."""

    def ceiling(self, failures: int) -> float:
        """Return the longest pause after so many failures in a row before this one."""
        return min(self.most, self.first * (1 << min(failures, 60)))

    def pause(self, failures: int, random: Callable[[], float]) -> float:
        """Return a pause from half the ceiling to the ceiling; `random` returns a number from 0 to 1."""
        return self.ceiling(failures) * (0.5 + 0.5 * random())


class Retry:
    """The state of one thing that is retried.

    >>> retry = Retry(Backoff(first=1.0, most=8.0), random=lambda: 1.0)
    >>> retry.next(now=0.0), retry.next(now=10.0), retry.next(now=20.0)
    (1.0, 12.0, 24.0)
    >>> retry.succeeded()
    >>> retry.next(now=30.0), retry.next(now=40.0, retry_after=60.0)
    (31.0, 102.0)
    """

    def __init__(self, policy: Backoff, random: Callable[[], float]) -> None:
        self._policy, self._random = policy, random
        self._succeeded = False
        self._full = -math.inf
        self.failures = 0
        """Failures in a row."""
        self.limited = False
        """Whether the last pause was stretched because there were too many reconnects."""

    def succeeded(self) -> None:
        """Note that the current attempt delivered data."""
        self._succeeded, self.failures = True, 0

    def next(self, now: float, retry_after: float = 0.0) -> float:
        """Note that the attempt has failed or ended; return when to make the next one.

        `retry_after` is how many seconds the server asks for.
        """
        policy = self._policy
        pause = policy.pause(self.failures, self._random)
        wait = self._reconnect(now) if self._succeeded else 0.0
        self.limited = wait > 0.0
        if self.limited:
            pause = min(policy.most, max(pause, wait + MINUTE / policy.reconnects * self._random()))
        self.failures, self._succeeded = self.failures + 1, False
        return now + min(max(retry_after, 0.0), policy.longest_retry_after) + pause

    def _reconnect(self, now: float) -> float:
        """Take a token; return how long it takes until there is one. `_full` is when the bucket is full again."""
        self._full = min(max(self._full, now), now + MINUTE) + MINUTE / self._policy.reconnects
        return max(0.0, self._full - now - MINUTE)
