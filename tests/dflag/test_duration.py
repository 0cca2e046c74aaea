"""Durations: the grammar of the original, with its vectors."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.dflag.values.numerals import format_duration, parse_duration
from wigwag.golang import format_nanoseconds, nanoseconds

SECOND = 10**9
DAY = 86400 * SECOND


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1d3h", DAY + 3 * 3600 * SECOND),
        ("0", 0),
        ("-0", 0),
        ("", 0),
        ("  ", 0),
        ("3w2d4h", 23 * DAY + 4 * 3600 * SECOND),
        ("3w 2d\t4h", 23 * DAY + 4 * 3600 * SECOND),
        ("1.5d", 36 * 3600 * SECOND),
        ("-3d7h", -(3 * DAY + 7 * 3600 * SECOND)),
        (".5s", SECOND // 2),
        ("10us", 10_000),
        ("10µs", 10_000),
        ("10\u03bcs", 10_000),
        ("1.5ns", 2),
        ("+5s", 5 * SECOND),
    ],
)
def test_what_is_a_duration(text: str, value: int) -> None:
    assert nanoseconds(text) == value


@pytest.mark.parametrize(
    "text",
    [
        " 23 ",
        "s",
        "23.5.7s",
        "5x",
        "-3d-7h",
        "3d -7h 10m",
        "3d\n5h",
        "0s-1m",
        "-",
        "+",
        "--5s",
        "1e3s",
        "9" * 300 + "s",
    ],
)
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        nanoseconds(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("594003227777ms", "982w1d53m47.777s"),
        ("7d", "1w"),
        ("99h", "4d3h"),
        ("0", "0s"),
        ("1500us", "1.5ms"),
        ("10us", "10µs"),
        ("10003ns", "10.003µs"),
        ("1d2h3m0.5s", "1d2h3m0.5s"),
        ("-90s", "-1m30s"),
    ],
)
def test_how_a_duration_is_written(text: str, written: str) -> None:
    assert format_nanoseconds(nanoseconds(text)) == written


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_what_is_written_is_read_as_the_same(value: int) -> None:
    assert nanoseconds(format_nanoseconds(value)) == value


@given(st.timedeltas(timedelta(days=-106_000), timedelta(days=106_000)))
def test_so_is_a_timedelta(value: timedelta) -> None:
    assert parse_duration(format_duration(value)) == value


def test_what_64_bits_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="292 years"):
        nanoseconds("20000w")


def test_what_would_be_rounded_to_nothing_is_refused() -> None:
    assert parse_duration("1500ns") == timedelta(microseconds=2)
    with pytest.raises(ValueError, match="less than a microsecond"):
        parse_duration("400ns")
