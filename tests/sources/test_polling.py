"""The loop of whoever has to ask: when it asks, whatever comes back."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from tests.pipeline.fakes import FakeClock, run
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.pipeline.watch import closing
from wigwag.sources.document import Document
from wigwag.sources.remote.polling import PollResult, PollTiming, format_of_media, poll

BAD, GOOD = (Unavailable("no"), None), (Document(b"{}"), None)


def pauses(*answers: tuple[PollResult, float | None], interval: float = 10.0, seed: str = "") -> list[float]:
    """Give these answers; return how long it was from each question to the next, with chance at its largest."""
    left, asked, seen = list(answers), list[float](), list[PollResult]()
    clock, over = FakeClock(1003.0), asyncio.Event()

    async def ask() -> tuple[PollResult, float | None]:
        asked.append(clock.now())
        if not left:
            over.set()
            await asyncio.Event().wait()
        return left.pop(0)

    async def follow() -> None:
        async with closing(poll(ask, interval, seed, PollTiming(clock, clock.now, lambda: 1.0))) as found:
            async for each in found:
                seen.append(each)

    async def main() -> None:
        following = asyncio.ensure_future(follow())
        await clock.advance(10_000)
        assert over.is_set()
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        assert clock.pending() == []

    run(main)
    assert seen == [answer for answer, _ in answers]
    return [round(after - before, 3) for before, after in pairwise(asked)]


def test_it_asks_at_once_and_then_at_the_moments_of_the_schedule() -> None:
    assert pauses(GOOD, (UNCHANGED, None), GOOD) == [7.0, 10.0, 10.0]
    assert pauses(GOOD, GOOD, interval=5.0, seed="pod-7") == [5.0, 5.0]


def test_trouble_is_asked_about_soon_and_then_less_often_until_it_is_over() -> None:
    assert pauses(BAD, BAD, BAD, GOOD, BAD) == [0.5, 1.0, 2.0, 5.0, 0.5]
    assert pauses(*[BAD] * 10)[-2:] == [30.0, 30.0]
    assert pauses(*[BAD] * 10, interval=60.0)[-1] == 60.0


def test_a_remote_that_asks_to_be_left_alone_is_within_reason() -> None:
    assert pauses((Unavailable("busy"), 120.0), (Unavailable("busy"), 9e9), BAD) == [120.5, 301.0, 2.0]


@pytest.mark.parametrize(
    ("media", "format"),
    [("text/yml", "yaml"), ("application/x-yaml", "yaml"), ("a/b+YAML ;x", "yaml"), ("json", "json"), ("", None)],
)
def test_a_media_type_stands_for_a_format(media: str, format: str | None) -> None:
    assert format_of_media(media) == format
