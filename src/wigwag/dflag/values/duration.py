"""Durations as the values of flags: `1w2d3h4m5.5s` is a `timedelta`.

A `timedelta` ends at microseconds, and the text at nanoseconds: a value is rounded, and one that would be rounded to
zero is refused.
"""

from __future__ import annotations

from datetime import timedelta

from wigwag.golang import format_nanoseconds, nanoseconds, rounded_quotient


def parse_duration(text: str) -> timedelta:
    """Parse a duration.

    >>> parse_duration("1d3h"), parse_duration("-1.5m"), parse_duration("0"), parse_duration("")
    (datetime.timedelta(days=1, seconds=10800), datetime.timedelta(days=-1, seconds=86310), datetime.timedelta(0), datetime.timedelta(0))
    """  # noqa: E501 - how `timedelta` shows itself
    exact = nanoseconds(text)
    rounded = timedelta(microseconds=rounded_quotient(exact, 1000))
    if exact and not rounded:
        raise ValueError(f"{text.strip()!r} is less than a microsecond, which is the least that a timedelta can hold")
    return rounded


def format_duration(value: timedelta) -> str:
    """Format a duration; the inverse of `parse_duration`.

    >>> format_duration(timedelta(days=1, hours=2, minutes=3, milliseconds=500)), format_duration(timedelta(hours=-99))
    ('1d2h3m0.5s', '-4d3h')
    """
    return format_nanoseconds((value.days * 86400 + value.seconds) * 10**9 + value.microseconds * 1000)
