"""Poll a remote that cannot push: when to poll, and the loop.

    schedule ─▶ fetch ─▶ Document, or UNCHANGED ─▶ the next time of the schedule
                  └────▶ Unavailable ─▶ back-off, at least the remote's Retry-After

Polls are at `offset + n · interval` of the wall clock, so that a fleet can be kept in step, or apart. The offset is the
hash of a seed, as in flagd, so it survives a restart; without a seed it is random. A wait is measured by the monotonic
clock. It is at most one interval, and ends no sooner than half an interval after the last poll began: whatever happens
to the wall clock, there is no burst of polls, and none is forgotten. The hard case is two clocks that drift apart, so
that a wait ends just before its time: that time counts as reached, or each would be polled twice.

No failure of a remote ends the loop. Retries are here, because only the poller remembers the last response, and can
tell whether a remote that has recovered has a new document.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from random import random
from time import time
from typing import TYPE_CHECKING, TypeAlias

from wigwag.golang import fnv1a32
from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import Clock, LoopClock, sleep_until
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.sources.document import Document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from wigwag.flags.document import Format

PollResult: TypeAlias = Document | Unavailable | Unchanged
_FORMATS: dict[str, Format] = {"json": "json", "yaml": "yaml", "x-yaml": "yaml", "yml": "yaml"}
_EARLY = 0.05
_DATE = "%a, %d %b %Y %H:%M:%S GMT"


@dataclass(frozen=True, slots=True)
class PollTiming:
    """The clocks and random numbers of a poll loop; tests replace them."""

    clock: Clock = LoopClock()
    wall: Callable[[], float] = time
    """The clock that polls are aligned to."""
    random: Callable[[], float] = random


async def poll(
    fetch: Callable[[], Awaitable[tuple[PollResult, float | None]]], interval: float, seed: str, timing: PollTiming
) -> AsyncIterator[PollResult]:
    """Yield what `fetch` returns, on schedule. Its second value is a Retry-After in seconds, or None."""
    schedule, clock = Schedule.of(interval, seed, timing.random), timing.clock
    retry = Retry(poll_backoff(interval), timing.random)
    while True:
        began = clock.now()
        result, retry_after = await fetch()
        yield result
        if isinstance(result, Unavailable):
            when = retry.next(clock.now(), retry_after or 0.0)
        else:
            retry.succeeded()
            when = clock.now() + schedule.pause(timing.wall(), clock.now() - began)
        await sleep_until(clock, when)


def poll_backoff(interval: float) -> Backoff:
    """Return the retry policy: a remote is retried no more often than it is polled.

    >>> poll_backoff(5.0).reconnects, poll_backoff(3600.0).most
    (12.0, 3600.0)
    """
    usual = Backoff(first=0.5)
    return replace(usual, most=max(interval, usual.most), reconnects=max(60.0 / interval, usual.reconnects))


def format_of_media(content_type: str) -> Format | None:
    """Return the format of a media type, or None.

    >>> format_of_media("Application/vnd.flags+json; charset=utf-8"), format_of_media("text/plain")
    ('json', None)
    """
    media = content_type.partition(";")[0].strip().lower()
    return _FORMATS.get(media.rpartition("/")[2].rpartition("+")[2])


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times of the polls.

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
        """`random` returns a number from 0 to 1."""
        return cls(interval, math.fmod(fnv1a32([seed]), interval) if seed else interval * random())

    def pause(self, wall: float, since: float) -> float:
        """Return how long to wait at a time of the wall clock, `since` seconds after the last poll began."""
        early = self.interval * _EARLY
        due = early + self.interval - (wall + early - self.offset) % self.interval
        return min(max(due, self.interval / 2 - since), self.interval)


def retry_after(value: str, wall: float) -> float | None:
    """Return the seconds of a Retry-After header, which may be a date.

    >>> retry_after("120", 0.0), retry_after("Thu, 01 Jan 1970 00:02:00 GMT", 60.0), retry_after("soon", 0.0)
    (120.0, 60.0, None)
    """
    if re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return float(value)
    date = http_date(value)
    return None if date is None else date - wall


def http_date(value: str) -> float | None:
    """Return an HTTP date in seconds since the epoch.

    >>> http_date("Thu, 01 Jan 1970 00:01:00 GMT"), http_date("yesterday")
    (60.0, None)
    """
    try:
        return datetime.strptime(value.strip(), _DATE).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
