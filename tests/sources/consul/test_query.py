"""Which question is put next, whatever the answers were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wigwag.sources.consul.query import LONG_OUTAGE, SHORT_WAIT, BlockingQuery, Cursor, QueryTiming

answers = st.integers(0, 1 << 64)
events = st.one_of(answers, st.tuples(st.floats(0, 100), st.booleans()))


@given(st.lists(events, max_size=30))
def test_a_question_never_waits_for_an_index_that_is_not_the_last_one_seen(
    given: list[int | tuple[float, bool]],
) -> None:
    cursor, last, now = Cursor(), 0, 0.0
    for event in given:
        if isinstance(event, int):
            cursor, last = cursor.answered(event), event
        else:
            now += event[0]
            cursor = cursor.failed(now, forget=event[1])
        query = cursor.query(60.0)
        assert query.index in (0, max(last, 1))
        assert query.wait <= 60.0
        assert bool(query.wait) == bool(query.index)


@given(answers, answers)
def test_an_index_that_goes_back_is_forgotten_and_one_that_is_missing_is_the_first(before: int, after: int) -> None:
    found = Cursor(before).answered(after).index
    assert found == (1 if after == 0 else 0 if after < before else after)


def test_an_outage_is_long_from_its_first_failure_on_and_an_answer_ends_it() -> None:
    cursor = Cursor(7).failed(0.0, forget=False).failed(LONG_OUTAGE - 1, forget=False)
    assert cursor.query(60.0) == BlockingQuery(7, SHORT_WAIT)
    assert cursor.failed(LONG_OUTAGE, forget=False).query(60.0) == BlockingQuery()
    assert cursor.answered(8) == Cursor(8)


def test_a_refusal_makes_the_index_forgotten_at_once() -> None:
    assert Cursor(7).failed(0.0, forget=True).query(60.0) == BlockingQuery()


def test_a_short_wait_stays_as_short_as_it_is_told_to_be() -> None:
    assert Cursor(7).failed(0.0, forget=False).query(0.02) == BlockingQuery(7, 0.02)


@given(st.lists(st.tuples(st.floats(0, 20), st.booleans()), max_size=60))
def test_the_pace_bounds_how_often_is_asked(steps: list[tuple[float, bool]]) -> None:
    timing, now = QueryTiming(), 0.0
    asked = {True: 0, False: 0}
    for seconds, news in steps:
        now += seconds
        while pause := timing.pause(now, changed=news):
            now += pause
        asked[news] += 1
        assert asked[True] <= 10 + now / 5 + 1e-3
        assert asked[False] <= 2 + now / 15 + 1e-3
