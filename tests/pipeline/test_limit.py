"""Limiters, by times alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.pipeline.limit import Burst, Composite, Interval, Limiter, unlimited

WATT = [
    (0, 0),
    (1, 999),
    (500, -1),
    (999, -1),
    (1000, 0),
    (1001, 999),
    (1500, -1),
    (1999, -1),
    (2000, 0),
    (2500, 500),
    (2999, -1),
    (3000, 0),
]


def test_the_interval_answers_as_watts_own_vector() -> None:
    limit = Interval(1.0)
    answers = [(now, limit(now / 1000)) for now, _ in WATT]
    assert [now for now, _ in answers] == [now for now, _ in WATT]
    for (now, answer), (_, expected) in zip(answers, WATT, strict=True):
        assert (answer * 1000 if expected > 0 else answer) == pytest.approx(expected), now


def test_unlimited_is_unlimited() -> None:
    assert [unlimited(now / 10) for now in range(5)] == [0.0] * 5


def test_watts_composite_lets_everything_through_for_one_interval_and_then_one_per_interval() -> None:
    limit = Composite(unlimited, Interval(0.25), 0.25)
    assert [limit(now) for now in (10.0, 10.1, 10.2, 10.25, 10.3, 10.4, 10.5)] == pytest.approx(
        [0, 0, 0, 0, 0.2, -1, 0]
    )


def test_a_burst_is_spent_and_fills_up_again() -> None:
    limit = Burst(3, 1.0)
    assert [limit(0.0) for _ in range(4)] == [0, 0, 0, 1.0]
    assert [limit(1.0), limit(1.0)] == [0, 1.0]
    assert [limit(10.0) for _ in range(4)] == [0, 0, 0, 1.0]


def acted(limit: Limiter, events: list[float]) -> list[float]:
    """Return when a loop that comes back when told acts on these events."""
    actions, due, queue = [], None, sorted(events)
    while queue or due is not None:
        timer = due is not None and (not queue or due <= queue[0])
        now = due if timer else queue.pop(0)
        assert now is not None
        due = None if timer else due
        answer = limit(now)
        if answer == 0:
            actions.append(now)
            due = None
        elif answer > 0:
            due = now + answer
        else:
            assert due is not None, "told to wait for a time that was not given"
    return actions


times = st.lists(st.floats(0, 20, allow_nan=False), min_size=1, max_size=40)


@given(times, st.sampled_from([0.1, 0.25, 1.0, 3.0]))
def test_an_interval_keeps_its_distance_and_loses_nothing(events: list[float], seconds: float) -> None:
    actions = acted(Interval(seconds), events)
    assert all(later - earlier >= seconds - 1e-5 for earlier, later in pairwise(actions))
    assert actions[0] == min(events)
    assert max(events) <= actions[-1] <= max(events) + seconds + 1e-5


@pytest.mark.parametrize("limit", [Interval(1.0), Burst(1, 1.0)])
def test_an_action_that_comes_a_breath_early_keeps_the_promise_that_was_given(limit: Limiter) -> None:
    assert [limit(now) for now in (1e-9, 0.5, 1.0)] == pytest.approx([0, 0.5, 0])
    assert limit(1.0) == pytest.approx(1.0)


@given(times, st.integers(1, 4))
def test_a_burst_never_exceeds_its_bucket_and_loses_nothing(events: list[float], size: int) -> None:
    actions = acted(Burst(size, 1.0), events)
    for first, last in zip(actions, actions[size:], strict=False):
        assert last - first >= 1.0 - 1e-4
    assert max(events) <= actions[-1] <= max(events) + 1.0 + 1e-5
