"""The timer for values that expire: at most one thread waits, for the next moment.

The hard case is a timer that cannot be started. A value that expires must not be set without one, so the timer is
started first (`by`), and the value is rejected if that fails. When a timer has fired, the next one is started before
any notifier is called (`then`), because a notifier may block. If no thread can be started then, this one goes on.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from wigwag.dflag.fork import deferred
from wigwag.dflag.values.numerals import parse_duration
from wigwag.errors import UsageError

Ttl: TypeAlias = float | timedelta | str
"""How long a value is valid: seconds, or a duration, which may be written as `10m`."""
_LONGEST = 3600.0
"""Seconds after which a timer fires in any case; the store then sets the next one."""
log = logging.getLogger("wigwag.dflag")


def seconds(ttl: Ttl) -> float:
    """Return how many seconds a value is valid.

    >>> seconds(1.5), seconds("10m"), seconds(timedelta(hours=1))
    (1.5, 600.0, 3600.0)
    """
    try:
        span = parse_duration(ttl) if isinstance(ttl, str) else ttl
        number = span.total_seconds() if isinstance(span, timedelta) else float(span)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"ttl is a number of seconds, or a duration such as '10m', not {ttl!r}") from None
    if not 0 < number < math.inf:
        raise UsageError(f"a value must live for more than 0 seconds, and not for ever (that is no ttl), not for {ttl}")
    return number


class _Timer(threading.Thread):
    """A thread that waits, calls and ends, unless `again` was called."""

    def __init__(self, due: float, wait: float, call: Callable[[], None]) -> None:
        super().__init__(name="dflag expiry", daemon=True)
        self.due, self.off = due, threading.Event()
        self._wait: float | None = wait
        self._call = call

    def again(self, due: float, wait: float) -> None:
        """Wait once more after the call. Called in the thread itself."""
        self.due, self._wait = due, wait

    def run(self) -> None:
        while self._wait is not None and not self.off.wait(self._wait):
            self._wait = None
            self._call()


class ExpiryTimer:
    """Calls back at a moment, in a daemon thread. Its user has a lock for it."""

    def __init__(self, call: Callable[[], None], clock: Callable[[], float]) -> None:
        self._call, self._clock = call, clock
        self._timer: _Timer | None = None

    def renew(self) -> None:
        """Forget the timer after a fork: its thread is in the parent."""
        self._timer = None

    def by(self, moment: float) -> None:
        """Call back at this moment or before; `RuntimeError` if no thread can be started."""
        timer = self._timer
        if timer is None or not self._clock() < timer.due <= moment or not timer.is_alive():
            self._set(moment)

    def then(self, moment: float | None) -> None:
        """Call back at this moment instead of the one before; None: not at all."""
        if moment is None:
            self._replace(None)
            return
        try:
            self._set(moment)
        except RuntimeError as error:
            timer = self._timer
            if timer is not None and timer is threading.current_thread():
                timer.again(moment, self._wait(moment))
            else:
                log.error("no thread can be started to end values that expire: %s", error)  # noqa: TRY400

    def _set(self, moment: float) -> None:
        if not deferred():
            timer = _Timer(moment, self._wait(moment), self._call)
            timer.start()  # before the old one is stopped: this may fail
            self._replace(timer)

    def _replace(self, timer: _Timer | None) -> None:
        if self._timer is not None:
            self._timer.off.set()
        self._timer = timer

    def _wait(self, moment: float) -> float:
        return min(max(moment - self._clock(), 0.0), _LONGEST)
