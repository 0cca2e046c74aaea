"""The retry policy, on times that the test makes up."""

from __future__ import annotations

from itertools import count, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from wigwag.pipeline.backoff import Backoff, Retry

MIDDLE = Backoff(first=0.5, most=30.0)


def flapping(retry: Retry, seconds: float, up: float = 0.0) -> list[float]:
    """Return when a server is reconnected to that answers, stays up for a moment, and fails, again and again."""
    now, found = 0.0, list[float]()
    while now < seconds:
        found.append(now)
        retry.succeeded()
        now = retry.next(now + up)
    return found


def test_the_pause_doubles_up_to_a_ceiling_and_is_between_half_of_it_and_all_of_it() -> None:
    assert [MIDDLE.pause(n, lambda: 1.0) for n in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert [MIDDLE.pause(n, lambda: 0.0) for n in range(8)] == [0.25, 0.5, 1, 2, 4, 8, 15, 15]
    assert MIDDLE.pause(10**9, lambda: 0.0) == 15.0


def test_a_success_ends_the_row_of_failures() -> None:
    retry = Retry(MIDDLE, lambda: 1.0)
    for _ in range(10):
        retry.next(0.0)
    assert retry.failures == 10
    retry.succeeded()
    assert (retry.failures, retry.next(0.0), retry.next(0.0)) == (0, 0.5, 1.0)


def test_the_third_short_outage_within_a_minute_costs_no_more_than_the_first() -> None:
    for seed in range(200):
        retry, now = Retry(Backoff(), Random(seed).random), 0.0
        for _ in range(3):
            retry.succeeded()
            back = now + 2.0
            while now < back:
                now = retry.next(now)
            assert now - back <= 3.2
            now += 5.0


def test_a_server_that_answers_once_and_falls_over_is_reconnected_to_a_few_times_per_minute() -> None:
    for seed in range(50):
        times = flapping(Retry(Backoff(), Random(seed).random), 3600.0)
        assert times[5] < 2.0, "the first few are not limited"
        for minute in range(60):
            within = sum(60 * minute <= when < 60 * (minute + 1) for when in times)
            assert within <= (13 if minute == 0 else 8)
        assert len(times) >= 0.8 * 6 * 60, "and the limit is not much lower than it says"


def test_a_limited_fleet_stays_spread_out() -> None:
    fleet = [flapping(Retry(Backoff(), Random(seed).random), 120.0)[8] for seed in range(1000)]
    busiest = max(sum(start <= when < start + 1.0 for when in fleet) for start in map(float, range(120)))
    assert busiest < 250


def test_reconnects_that_are_far_apart_are_not_limited() -> None:
    retry = Retry(Backoff(), lambda: 1.0)
    for now in map(float, range(0, 3600, 11)):
        retry.succeeded()
        assert retry.next(now) == pytest.approx(now + 0.2)
        assert not retry.limited


def test_a_stretched_pause_says_so_and_is_never_longer_than_the_longest() -> None:
    retry = Retry(Backoff(first=0.02, most=0.05), lambda: 1.0)
    times = flapping(retry, 1.0)
    assert retry.limited
    assert all(later - sooner <= 0.05 + 1e-9 for sooner, later in pairwise(times))


@given(
    some.lists(some.tuples(some.booleans(), some.floats(0.0, 100.0)), max_size=60), some.randoms(use_true_random=False)
)
def test_whatever_happens_the_next_attempt_is_later_but_not_much(
    steps: list[tuple[bool, float]], chance: Random
) -> None:
    retry, now, seen = Retry(Backoff(), chance.random), 0.0, count()
    for success, lasted in steps:
        if success:
            retry.succeeded()
        now += lasted
        when = retry.next(now)
        assert now + 0.1 - 1e-9 <= when <= now + 30.0, next(seen)
        now = when
