"""An alarm for what runs out: one timer at most, for whatever is next."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Expiry:
    """Calls back after a while, in a thread of its own; it keeps no process from ending."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._timer: threading.Timer | None = None

    def renew(self) -> None:
        """Have no alarm: it was the parent's, in a process that was just forked."""
        self._timer = None

    def arm(self, delay: float | None) -> None:
        """Call back after so many seconds and not at the time given before; None: not at all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay is not None:
            self._timer = threading.Timer(delay, self._call)
            self._timer.daemon = True
            self._timer.start()
