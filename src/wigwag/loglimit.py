"""Log lines that a client can cause are limited: the first few of each kind per period, then one line with a count.

    limiter = LogLimiter(logging.getLogger("wigwag.wire"))
    limiter.log(logging.WARNING, now, "connection refused: there are %d", count)

The kind of a line is its format string, so a limiter knows as many kinds as the code has calls. Time is an argument.
The count of the lines that were left out is logged with the first line of the next period, or by `summarise`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger


class LogLimiter:
    """Limits the lines of one logger."""

    __slots__ = ("_kinds", "_logger", "_most", "_period")

    def __init__(self, logger: Logger, most: int = 10, period: float = 10.0) -> None:
        """`most` lines of a kind are logged in `period` seconds."""
        self._logger, self._most, self._period = logger, most, period
        self._kinds: dict[str, tuple[float, int, int]] = {}
        """By format string: when the period began, how many lines came since, and the level of the last one."""

    def log(
        self, level: int, now: float, message: str, *args: object, error: BaseException | None = None, lines: int = 1
    ) -> bool:
        """Log a line, with the traceback of the error if there is one; return false if it is only counted.

        `lines`: how many lines it stands for.
        """
        since, count, _ = self._kinds.get(message, (now, 0, level))
        if now - since >= self._period:
            self._summary(message)
            since, count = now, 0
        self._kinds[message] = since, count + lines, level
        if count >= self._most:
            return False
        self._logger.log(level, message, *args, exc_info=error)
        return True

    def summarise(self, now: float) -> None:
        """Log the counts of the periods that are over, so that the last lines of a burst are not lost."""
        for message in [kind for kind, (since, _, _) in self._kinds.items() if now - since >= self._period]:
            self._summary(message)

    def _summary(self, message: str) -> None:
        _, count, level = self._kinds.pop(message)
        if count > self._most:
            self._logger.log(level, "%d more lines in %g s like: %s", count - self._most, self._period, message)
