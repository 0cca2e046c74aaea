"""What the log says of changes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.dflag.kubelet import Volume, becomes, until
from wigwag import dflag
from wigwag.dflag import Origin


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "wigwag.dflag")
    return caplog


def lines(told: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in told.records if record.levelno == level]


def test_a_change_by_somebody_else_is_told_with_where_it_comes_from(told: pytest.LogCaptureFixture) -> None:
    flags = dflag.FlagSet("test")
    flags.int("rate", 10)
    dflag.load_environment(flags, {"APP_RATE": "20"}, "APP_")
    dflag.load_texts(flags, {"rate": "30"}, Origin.COMMAND_LINE)
    dflag.load_texts(flags, {"rate": "0x1e"}, Origin.COMMAND_LINE)
    assert lines(told, logging.INFO) == [
        "flag 'rate' has changed: '10' -> '20' (environment APP_RATE)",
        "flag 'rate' has changed: '20' -> '30' (command line)",
    ]


def test_a_configmap_that_changes_is_told_and_so_is_a_key_that_goes(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    flags = dflag.FlagSet("test")
    rate = flags.int("rate", 10)
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with dflag.setup(flags, volume.path):
        volume.write({})
        becomes(rate, 10)
        until(lambda: len(lines(told, logging.INFO)) == 2)
    assert lines(told, logging.INFO) == [
        f"flag 'rate' has changed: '10' -> '20' (ConfigMap {volume.path})",
        "flag 'rate' has changed: '20' -> '10' (default)",
    ]


def test_what_the_program_does_itself_is_for_those_who_look_closely(told: pytest.LogCaptureFixture) -> None:
    flags = dflag.FlagSet("test")
    rate = flags.int("rate", 10)
    rate.set("20")
    rate.reset()
    rate.set_default(11)
    with rate.override(3):
        pass
    assert lines(told, logging.INFO) == []
    assert [line.partition(": ")[2] for line in lines(told, logging.DEBUG)] == [
        "'10' -> '20' (program)",
        "'20' -> '10' (default)",
        "'10' -> '11' (default)",
        "'11' -> '3' (test override)",
        "'3' -> '11' (default)",
    ]


def test_what_came_over_http_is_told_by_the_page_and_that_it_has_run_out_here(told: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    flags = dflag.FlagSet("test", clock=lambda: now[0])
    flags.int("rate", 10)
    flags.assign("rate", "20", Origin.HTTP, ttl="10m")
    assert lines(told, logging.INFO) == []
    now[0] = 600.0
    flags.expire()
    assert lines(told, logging.INFO) == ["flag 'rate' has changed: '20' -> '10' (default)"]


def test_ten_of_a_generation_are_told_and_the_rest_counted(told: pytest.LogCaptureFixture) -> None:
    flags = dflag.FlagSet("test")
    texts = {flags.int(f"f{number:02}", 0).name: "1" for number in range(25)}
    dflag.load_texts(flags, texts, Origin.COMMAND_LINE)
    found = lines(told, logging.INFO)
    assert len(found) == 11
    assert found[0] == "flag 'f00' has changed: '0' -> '1' (command line)"
    assert found[-1] == "and 15 more flags have changed"


def test_a_secret_is_not_told_and_a_long_value_not_all_of_it(told: pytest.LogCaptureFixture) -> None:
    flags = dflag.FlagSet("test")
    flags.str("key", "hunter1", secret=True)
    flags.str("text", "")
    dflag.load_texts(flags, {"key": "hunter2", "text": "line\n" * 1000}, Origin.COMMAND_LINE)
    secret, long = lines(told, logging.INFO)
    assert secret == "flag 'key' has changed (command line)"
    assert len(long) < 200
    assert "\n" not in long


def test_a_value_that_cannot_be_shown_does_no_harm(told: pytest.LogCaptureFixture) -> None:
    flags = dflag.FlagSet("test")
    flag = flags.int("x", 1)

    def broken(value: Any) -> str:
        raise ZeroDivisionError

    object.__setattr__(flag, "kind", type(flag.kind)("odd", int, broken, int))
    dflag.load_texts(flags, {"x": "2"}, Origin.COMMAND_LINE)
    assert flag.get() == 2
    assert "(cannot be shown: ZeroDivisionError)" in lines(told, logging.INFO)[0]


def test_it_is_told_before_the_notifiers_are_called_and_a_log_that_fails_keeps_nobody_from_it(
    told: pytest.LogCaptureFixture,
) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(record: logging.LogRecord) -> bool:
        raise Interrupted

    flags = dflag.FlagSet("test")
    rate, heard = flags.int("rate", 10), list[int]()
    rate.on_change(lambda old, new: heard.append(len(told.records)), "sync")
    rate.set("20")
    assert heard == [1]
    logger = logging.getLogger("wigwag.dflag")
    logger.addFilter(interrupt)
    try:
        with pytest.raises(Interrupted):
            rate.set("30")
    finally:
        logger.removeFilter(interrupt)
    assert (rate.get(), len(heard)) == (30, 2)


def test_a_refused_key_says_what_stays_and_an_unknown_one_what_may_be_meant(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    flags = dflag.FlagSet("test")
    flags.int("rate", 10, validators=[dflag.in_range(0, 100)])
    flags.str("key", "hunter1", secret=True, validators=[dflag.length(1)])
    volume = Volume(tmp_path / "conf", {"rate": "1000", "ratee": "1", "key": ""})
    with dflag.setup(flags, volume.path, policy=dflag.Policy(tolerant=True)):
        pass
    assert f"{volume.path}/rate: must be from 0 to 100, got 1000; rate stays '10'" in lines(told, logging.ERROR)
    assert any(line.endswith("; key stays '(secret)'") for line in lines(told, logging.ERROR))
    assert lines(told, logging.WARNING) == [
        f"{volume.path}/ratee: there is no such flag in the set 'test'; did you mean 'rate'?"
    ]
    assert "hunter1" not in told.text


def test_thousands_of_unknown_keys_are_not_compared_with_thousands_of_flags(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    for number in range(1000):
        flags.int(f"flag-{number}", 0)
    volume = Volume(tmp_path / "conf", {f"flog-{number}": "1" for number in range(2000)})
    with dflag.setup(flags, volume.path) as updater:
        hinted = [problem for problem in updater.problems if "did you mean" in problem.reason]
    assert (updater.warnings, len(hinted)) == (2000, 10)
