"""A remote that cannot push, asked from time to time: the loop, and where its time and chance come from.

    schedule ─▶ ask ─▶ Document, or UNCHANGED ─▶ the next moment of the schedule
                  └──▶ Unavailable ─▶ back-off, and no sooner than the remote asked for

Whatever a remote does is trouble of the moment, never the end. Whoever asks remembers what came last, and alone can
tell whether a remote that has recovered has news; that is why the loop is here, and a source is not started again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import random
from time import time
from typing import TYPE_CHECKING, TypeAlias

from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import Clock, LoopClock, sleep_until
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.sources.document import Document
from wigwag.sources.remote.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from wigwag.flags.document import Format

Answer: TypeAlias = Document | Unavailable | Unchanged
_FORMATS: dict[str, Format] = {"json": "json", "yaml": "yaml", "x-yaml": "yaml", "yml": "yaml"}


@dataclass(frozen=True, slots=True)
class PollTiming:
    """Where time and chance come from."""

    clock: Clock = LoopClock()
    wall: Callable[[], float] = time
    """The time that polls are aligned to."""
    random: Callable[[], float] = random


async def poll(
    ask: Callable[[], Awaitable[tuple[Answer, float | None]]], interval: float, seed: str, times: PollTiming
) -> AsyncIterator[Answer]:
    """Yield what is found whenever it is time. With trouble, `ask` may tell how many seconds it wants to be left alone.

    Without a seed, the moments are drawn by lot.
    """
    schedule, clock = Schedule.of(interval, seed, times.random), times.clock
    retry = Retry(poll_backoff(interval), times.random)
    while True:
        began = clock.now()
        found, asked = await ask()
        yield found
        if isinstance(found, Unavailable):
            when = retry.next(clock.now(), asked or 0.0)
        else:
            retry.succeeded()
            when = clock.now() + schedule.pause(times.wall(), clock.now() - began)
        await sleep_until(clock, when)


def poll_backoff(interval: float) -> Backoff:
    """Return the retry policy of a remote that is polled: it is retried no more often than it is polled.

    >>> poll_backoff(5.0).reconnects, poll_backoff(3600.0).most
    (12.0, 3600.0)
    """
    usual = Backoff(first=0.5)
    return replace(usual, most=max(interval, usual.most), reconnects=max(60.0 / interval, usual.reconnects))


def format_of_media(content_type: str) -> Format | None:
    """Return the format that a media type stands for, or None.

    >>> format_of_media("Application/vnd.flags+json; charset=utf-8"), format_of_media("text/plain")
    ('json', None)
    """
    media = content_type.partition(";")[0].strip().lower()
    return _FORMATS.get(media.rpartition("/")[2].rpartition("+")[2])
