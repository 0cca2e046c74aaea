"""Limiters: how often a pipeline may publish. A limiter is a function of the times at which it is called.

It is called at every change and returns

    0     act now
    > 0   call again after so many seconds: the trailing edge
    < 0   nothing to do: a time to call again was given before and lies ahead

At the given time the caller asks again, and gets 0; so a change is never lost, and the action at the trailing edge
counts like any other. (watt's timer acted without asking, which allowed two actions per interval.) Times do not
decrease.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Limiter: TypeAlias = Callable[[float], float]

_EARLY = 1e-6
"""Seconds by which an action may come early: sums of floats are not exact."""
_NEVER = float("-inf")


def unlimited(now: float) -> float:
    """Act at once, always.

    >>> unlimited(0.0)
    0.0
    """
    return 0.0


class Interval:
    """At most one action per interval: the first at once, the last at the end of the interval.

    >>> limit = Interval(1.0)
    >>> limit(0.0), limit(0.25), limit(0.5), limit(1.0)
    (0.0, 0.75, -1.0, 0.0)
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = self._promised = _NEVER

    def __call__(self, now: float) -> float:
        if now >= self._next - _EARLY:
            self._next, self._promised = now + self._seconds, _NEVER
            return 0.0
        if self._promised > now:
            return -1.0
        self._promised = self._next
        return self._next - now


class Burst:
    """A token bucket: `size` actions at once, then one per `seconds`; the bucket fills up again at that pace.

    >>> limit = Burst(2, 1.0)
    >>> limit(0.0), limit(0.0), limit(0.0), limit(0.5), limit(1.0), limit(1.0)
    (0.0, 0.0, 1.0, -1.0, 0.0, 1.0)
    """

    def __init__(self, size: int, seconds: float) -> None:
        self._debt, self._seconds = (size - 1) * seconds, seconds
        self._full = self._promised = _NEVER

    def __call__(self, now: float) -> float:
        """`_full` is when the bucket would be full; each action puts that off by one token's time."""
        ready = self._full - self._debt
        if now >= ready - _EARLY:
            self._full, self._promised = max(self._full, now) + self._seconds, _NEVER
            return 0.0
        if self._promised > now:
            return -1.0
        self._promised = ready
        return ready - now


class Composite:
    """One limiter for `delay` seconds from the first question on, then another.

    watt's own is `Composite(unlimited, Interval(i), i)`: while it starts, everything at once.

    >>> limit = Composite(unlimited, Interval(1.0), 1.0)
    >>> limit(0.0), limit(0.5), limit(1.0), limit(1.5)
    (0.0, 0.0, 0.0, 0.5)
    """

    def __init__(self, first: Limiter, second: Limiter, delay: float) -> None:
        self._first, self._second, self._delay = first, second, delay
        self._until: float | None = None

    def __call__(self, now: float) -> float:
        if self._until is None:
            self._until = now + self._delay
        return self._first(now) if now < self._until else self._second(now)
