"""Log lines that a client can cause are limited."""

from __future__ import annotations

import logging

import pytest

from wigwag.loglimit import LogLimiter

log = logging.getLogger("wigwag.tests.loglimit")


def test_the_first_lines_of_a_period_are_logged_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    limiter = LogLimiter(log, most=2, period=10.0)
    logged = [limiter.log(logging.WARNING, n / 100, "refused: %d", n) for n in range(100)]
    assert logged == [True, True] + [False] * 98
    assert [record.getMessage() for record in caplog.records] == ["refused: 0", "refused: 1"]
    limiter.log(logging.WARNING, 10.0, "refused: %d", 100)
    assert [record.getMessage() for record in caplog.records[2:]] == [
        "98 more lines in 10 s like: refused: %d",
        "refused: 100",
    ]


def test_the_count_is_logged_without_another_line_once_the_period_is_over(caplog: pytest.LogCaptureFixture) -> None:
    limiter = LogLimiter(log, most=1, period=10.0)
    for n in range(3):
        limiter.log(logging.ERROR, float(n), "failed")
    limiter.summarise(9.0)
    assert len(caplog.records) == 1
    limiter.summarise(10.0)
    limiter.summarise(20.0)
    assert [(record.levelno, record.getMessage()) for record in caplog.records[1:]] == [
        (logging.ERROR, "2 more lines in 10 s like: failed")
    ]


def test_kinds_of_lines_do_not_use_up_each_others_share(caplog: pytest.LogCaptureFixture) -> None:
    limiter = LogLimiter(log, most=1)
    assert limiter.log(logging.WARNING, 0.0, "one %s", "a")
    assert limiter.log(logging.WARNING, 0.0, "two %s", "a")
    assert not limiter.log(logging.WARNING, 0.0, "one %s", "b")


def test_an_error_comes_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    limiter = LogLimiter(log)
    limiter.log(logging.ERROR, 0.0, "failed", error=ValueError("no"))
    assert caplog.records[0].exc_info is not None


def test_a_line_may_stand_for_several(caplog: pytest.LogCaptureFixture) -> None:
    limiter = LogLimiter(log, most=1, period=10.0)
    limiter.log(logging.ERROR, 0.0, "said: %s", "a")
    assert not limiter.log(logging.ERROR, 0.0, "said: %s", "z", lines=25)
    limiter.summarise(10.0)
    assert caplog.records[-1].getMessage() == "25 more lines in 10 s like: said: %s"
