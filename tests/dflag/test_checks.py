"""Rules over several flags: a change that would break one is refused as a whole, wherever it comes from."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.dflag.kubelet import Heard, Volume, becomes, until
from wigwag import dflag
from wigwag.dflag import Origin
from wigwag.dflag.page.edit import FlagEdit, apply_edit
from wigwag.dflag.page.messages import HttpError
from wigwag.dflag.page.state import PageStateCache
from wigwag.errors import StartError, UsageError

WANTS = "low must be at most high"


class Example(NamedTuple):
    flags: dflag.FlagSet
    low: dflag.DynFlag[int]
    high: dflag.DynFlag[int]

    def values(self) -> tuple[int, int]:
        return self.low.get(), self.high.get()


@pytest.fixture
def example() -> Example:
    now = [0.0]
    flags = dflag.FlagSet("test", clock=lambda: now[0])
    made = Example(flags, flags.int("low", 1), flags.int("high", 10))
    flags.check(lambda found: found[made.low] <= found[made.high], WANTS)
    flags.int("now", 0).on_change(lambda old, new: now.__setitem__(0, new), "sync")
    return made


def test_a_change_that_would_break_it_is_refused_and_nobody_is_told(example: Example) -> None:
    heard = Heard()
    example.low.on_change(heard, "sync")
    with pytest.raises(dflag.FlagError, match=f"^flag 'low': {WANTS}$"):
        example.low.set("11")
    with pytest.raises(dflag.FlagError, match=f"^flag 'low': {WANTS}$"):
        example.low.set_value(11)
    with pytest.raises(dflag.FlagError, match=f"^flag 'high': {WANTS}$"):
        example.flags.assign("high", "0", Origin.HTTP)
    assert (example.values(), example.flags.generation, heard.steps) == ((1, 10), 0, [])


def test_what_fits_only_together_is_taken_together(example: Example) -> None:
    dflag.load_texts(example.flags, {"low": "20", "high": "30"}, Origin.COMMAND_LINE)
    assert example.values() == (20, 30)


def test_it_is_the_whole_change_that_is_refused(example: Example) -> None:
    other = example.flags.int("other", 0)
    with pytest.raises(dflag.FlagError, match="flag 'low, other': low must be"):
        dflag.load_texts(example.flags, {"low": "20", "other": "5"}, Origin.COMMAND_LINE)
    assert (example.values(), other.get()) == ((1, 10), 0)


def test_a_bad_value_and_a_broken_check_are_told_together(example: Example) -> None:
    with pytest.raises(dflag.FlagError) as caught:
        dflag.load_environment(example.flags, {"LOW": "20", "NOW": "x"})
    assert "NOW: 'x' is not a whole number" in str(caught.value)
    assert WANTS in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "told"),
    [(ValueError("hunter2"), WANTS), (ZeroDivisionError("hunter2"), f"{WANTS} (the check raised ZeroDivisionError)")],
)
def test_a_check_may_raise_and_what_it_says_may_be_secret(fault: Exception, told: str) -> None:
    flags = dflag.FlagSet("test")
    flag = flags.int("x", 0)

    def holds(found: dflag.Snapshot) -> None:
        if found[flag]:
            raise fault

    flags.check(holds, WANTS)
    with pytest.raises(dflag.FlagError) as caught:
        flag.set("1")
    assert (caught.value.reason, caught.value.__cause__) == (told, None)


def test_it_must_hold_from_the_start(example: Example) -> None:
    with pytest.raises(UsageError, match="the set 'test' breaks the check already: low is 5"):
        example.flags.check(lambda found: found["low"] == 5, "low is 5")
    example.low.set("2")


def test_what_takes_something_away_is_judged_too(example: Example) -> None:
    example.high.set("30")
    example.flags.assign("low", "20", Origin.ENVIRONMENT)
    with pytest.raises(dflag.FlagError, match=WANTS):
        example.high.reset()
    assert example.values() == (20, 30)
    example.flags.clear(Origin.ENVIRONMENT)
    example.high.reset()
    assert example.values() == (1, 10)


def test_what_runs_out_runs_out_and_then_nothing_else_is_refused_for_it(
    example: Example, caplog: pytest.LogCaptureFixture
) -> None:
    example.flags.assign("high", "30", Origin.HTTP, ttl=60)
    example.low.set("20")
    example.flags["now"].set("61")
    example.flags.expire()
    assert example.values() == (20, 10)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        f"a value has expired or an override has ended, and now a check is broken: {WANTS}"
    ]
    example.flags["now"].set("62")
    example.low.set("3")
    with pytest.raises(dflag.FlagError, match=WANTS):
        example.low.set("11")


def test_an_override_is_judged_when_it_begins_and_ends_in_any_case(example: Example) -> None:
    with pytest.raises(dflag.FlagError, match=WANTS), example.flags.override(low=11):
        pass
    with example.flags.override(high=30):
        example.low.set("20")
    assert example.values() == (20, 10)


def test_a_configmap_that_breaks_it_is_refused_until_it_is_mended(tmp_path: Path, example: Example) -> None:
    volume = Volume(tmp_path / "conf", {"low": "2", "high": "9"})
    with dflag.setup(example.flags, volume.path) as updater:
        assert (example.values(), updater.generation) == ((2, 9), 1)
        volume.write({"low": "12", "high": "9"})
        until(lambda: updater.errors)
        (problem,) = updater.problems
        assert str(problem) == f"{volume.path}: refused as a whole: {WANTS}"
        assert (example.values(), updater.generation, updater.errors) == ((2, 9), 1, 1)
        volume.write({"low": "12", "high": "19"})
        becomes(example.high, 19)
        assert (example.values(), updater.problems, updater.errors) == ((12, 19), (), 1)
        assert updater.generation == 2


def test_a_program_does_not_start_with_a_configmap_that_breaks_it(tmp_path: Path, example: Example) -> None:
    volume = Volume(tmp_path / "conf", {"low": "12"})
    with pytest.raises(StartError, match=f"1 error in the flags: .*: refused as a whole: {WANTS}"):
        dflag.setup(example.flags, volume.path)
    assert example.values() == (1, 10)


@pytest.mark.parametrize("validate_only", [True, False])
def test_the_page_refuses_it_even_in_a_dry_run(example: Example, validate_only: bool) -> None:
    edit, states = FlagEdit("11", validate_only=validate_only), PageStateCache(example.flags)
    with pytest.raises(HttpError) as caught:
        apply_edit(example.low, edit, example.flags, states, 0.0)
    assert (caught.value.status, caught.value.detail) == (422, f"flag 'low': {WANTS}")


def test_a_command_line_that_breaks_it_ends_with_one_line(example: Example, capsys: Any) -> None:
    parser = argparse.ArgumentParser(prog="shop")
    dflag.add_to(parser, example.flags)
    with pytest.raises(SystemExit):
        parser.parse_args(["--low=11"])
    assert capsys.readouterr().err.endswith(f"shop: error: flag 'low': {WANTS}\n")
    parser.parse_args(["--low=11", "--high=12"])
    assert example.values() == (11, 12)
