"""A log line that a client can cause: the first few of a period are logged, the rest are counted.

The count of what was left out goes out with the first line of the next period. Time is an argument, so nothing here
needs a timer, and a quiet limiter costs nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST, PERIOD_SECONDS = 5, 10.0


class LogLimiter:
    """At most `most` lines in `period` seconds, then one that says how many were suppressed.

    >>> limited = LogLimiter(lambda message, *values: print(message % values), most=1, period=10.0)
    >>> for now in (0.0, 1.0, 2.0, 11.0):
    ...     limited(now, "refused %s", "team-a")
    refused team-a
    2 similar messages were suppressed in the last 11 s
    refused team-a
    """

    def __init__(
        self, log: Callable[..., None] | logging.Logger, most: int = MOST, period: float = PERIOD_SECONDS
    ) -> None:
        self._log = log.warning if isinstance(log, logging.Logger) else log
        self._most, self._period = most, period
        self._began = float("-inf")
        self._lines = self._suppressed = 0

    def __call__(self, now: float, message: str, *values: object, **extra: Any) -> None:
        """Log a message, or count it."""
        if now - self._began >= self._period:
            if self._suppressed:
                seconds = now - self._began
                self._log("%d similar messages were suppressed in the last %.0f s", self._suppressed, seconds)
            self._began, self._lines, self._suppressed = now, 0, 0
        if self._lines < self._most:
            self._lines += 1
            self._log(message, *values, **extra)
        else:
            self._suppressed += 1
