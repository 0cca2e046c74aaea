"""An alarm for what runs out: one thread at most waits, for whatever is next.

The hard case is an alarm that cannot be set. A value with an end must not come in without one, so the alarm is set
first (`by`), and what cannot have one is refused. When one has gone off, the next is set before anybody is told of the
change (`then`): it is a notifier that may take for ever. If there is no thread for it, the one that went off stays.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from wigwag.dflag.fork import deferred
from wigwag.dflag.values.duration import parse_duration
from wigwag.errors import UsageError

Ttl: TypeAlias = float | timedelta | str
"""For how long a value holds: seconds, or a duration, which may be written as `10m`."""
_LONGEST = 3600.0
"""Seconds after which an alarm goes off in any case; whoever is called looks, and sets it again."""
log = logging.getLogger("wigwag.dflag")


def seconds(ttl: Ttl) -> float:
    """Return for how many seconds a value holds.

    >>> seconds(1.5), seconds("10m"), seconds(timedelta(hours=1))
    (1.5, 600.0, 3600.0)
    """
    try:
        span = parse_duration(ttl) if isinstance(ttl, str) else ttl
        found = span.total_seconds() if isinstance(span, timedelta) else float(span)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"ttl is a number of seconds, or a duration such as '10m', not {ttl!r}") from None
    if not 0 < found < math.inf:
        raise UsageError(f"a value must live for more than 0 seconds, and not for ever (that is no ttl), not for {ttl}")
    return found


class _Alarm(threading.Thread):
    """A thread that waits and calls; after that it is gone, unless it was given another while to wait."""

    def __init__(self, due: float, wait: float, call: Callable[[], None]) -> None:
        super().__init__(name="dflag alarm", daemon=True)
        self.due, self.off = due, threading.Event()
        self._wait: float | None = wait
        self._call = call

    def again(self, due: float, wait: float) -> None:
        """Wait once more when the call is over. For the thread itself."""
        self.due, self._wait = due, wait

    def run(self) -> None:
        while self._wait is not None and not self.off.wait(self._wait):
            self._wait = None
            self._call()


class ExpiryTimer:
    """Calls back after a while, in a thread of its own; it keeps no process from ending. Its user has a lock for it."""

    def __init__(self, call: Callable[[], None], clock: Callable[[], float]) -> None:
        self._call, self._clock = call, clock
        self._alarm: _Alarm | None = None

    def renew(self) -> None:
        """Have no alarm: it was the parent's, in a process that was just forked."""
        self._alarm = None

    def by(self, moment: float) -> None:
        """Call back at some moment or before; `RuntimeError` if no thread is to be had."""
        alarm = self._alarm
        if alarm is None or not self._clock() < alarm.due <= moment or not alarm.is_alive():
            self._set(moment)

    def then(self, moment: float | None) -> None:
        """Call back at some moment and not at the one given before; None: not at all."""
        if moment is None:
            self._replace(None)
            return
        try:
            self._set(moment)
        except RuntimeError as error:
            alarm = self._alarm
            if alarm is not None and alarm is threading.current_thread():
                alarm.again(moment, self._wait(moment))
            else:
                log.error("no thread is to be had to end what runs out: %s", error)  # noqa: TRY400

    def _set(self, moment: float) -> None:
        if not deferred():
            alarm = _Alarm(moment, self._wait(moment), self._call)
            alarm.start()  # and only then is the old one let go
            self._replace(alarm)

    def _replace(self, alarm: _Alarm | None) -> None:
        if self._alarm is not None:
            self._alarm.off.set()
        self._alarm = alarm

    def _wait(self, moment: float) -> float:
        return min(max(moment - self._clock(), 0.0), _LONGEST)
