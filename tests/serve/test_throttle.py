"""Rates and slots as functions of time: no clock, no waiting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.serve.access.throttle import Slots, Throttle, place


def test_a_burst_is_let_through_and_then_one_request_per_interval() -> None:
    throttle = Throttle(rate=10, burst=3)
    assert [throttle.take("a", 5.0) for _ in range(4)] == [0, 0, 0, 0.1]
    assert throttle.take("a", 5.1) == 0
    assert throttle.take("a", 5.1) == pytest.approx(0.1)


def test_a_refused_request_does_not_count() -> None:
    throttle = Throttle(rate=1, burst=1)
    throttle.take("a", 0.0)
    assert [throttle.take("a", 0.5) for _ in range(100)] == [0.5] * 100
    assert throttle.take("a", 1.0) == 0


def test_callers_do_not_take_from_each_other() -> None:
    throttle = Throttle(rate=1, burst=1)
    assert [throttle.take(name, 0.0) for name in "abab"] == [0, 0, 1, 1]


def test_who_is_quiet_saves_up_no_more_than_the_burst() -> None:
    throttle = Throttle(rate=10, burst=3)
    throttle.take("a", 0.0)
    assert sum(throttle.take("a", 1000.0) == 0 for _ in range(10)) == 3


@given(st.lists(st.floats(0, 2), max_size=200), st.integers(1, 50), st.integers(1, 20))
def test_no_span_of_time_sees_more_than_the_burst_and_the_rate(pauses: list[float], rate: int, burst: int) -> None:
    throttle, now, taken = Throttle(rate, burst), 0.0, []
    for pause in pauses:
        now += pause
        if not throttle.take("a", now):
            taken.append(now)
    for first, start in enumerate(taken):
        for last, end in enumerate(taken[first:], 1):
            assert last <= burst + (end - start) * rate + 1e-6


@given(st.floats(0, 1e6), st.integers(1, 1000), st.integers(1, 20))
def test_who_waits_as_long_as_he_is_told_is_let_in(now: float, rate: int, burst: int) -> None:
    throttle = Throttle(rate, burst)
    waits = [throttle.take("a", now) for _ in range(burst + 1)]
    assert throttle.take("a", now + waits[-1] + 1e-6) == 0


def test_a_million_addresses_fill_no_memory_and_push_out_whoever_was_quiet_longest() -> None:
    throttle = Throttle(rate=1, burst=1, most=100)
    busy = [throttle.take("busy", 0.0)]
    for number in range(1000):
        throttle.take(f"n{number}", 0.0)
        busy.append(throttle.take("busy", 0.0))
    assert len(throttle) == 100
    assert busy == [0] + [1] * 1000
    assert throttle.take("n0", 0.0) == 0


def test_slots_are_taken_and_given_back() -> None:
    slots = Slots(2)
    assert [slots.take("a"), slots.take("a"), slots.take("a"), slots.take("b")] == [True, True, False, True]
    slots.give_back("a")
    assert slots.free("a")
    assert slots.take("a")
    for name in "aab":
        slots.give_back(name)
    assert len(slots) == 0


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:1", "127.0.0.1"),
        ("::1:80", "::/64"),
        ("[2001:db8::1]:80", "2001:db8::/64"),
        ("fe80::1%eth0:80", "fe80::/64"),
        ("::ffff:10.0.0.1:80", "10.0.0.1"),
        ("unix", "unix"),
        ("", "unknown"),
        ("nonsense:80", "nonsense"),
    ],
)
def test_an_address_stands_for_a_machine_or_a_site(address: str, expected: str) -> None:
    assert place(address) == expected


def test_two_addresses_of_one_site_are_one_caller() -> None:
    assert place("2001:db8:0:1::1:80") == place("2001:db8:0:1:ffff::2:81") != place("2001:db8:0:2::1:80")
