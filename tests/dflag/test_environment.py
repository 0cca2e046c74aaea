"""Variables as flags: which one was wrong, and which mean no flag."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from wigwag import dflag
from wigwag.errors import FlagError, StaticFlagError, UsageError

KUBERNETES = {
    "SHOP_SERVICE_HOST": "10.0.0.1",
    "SHOP_SERVICE_PORT": "80",
    "SHOP_SERVICE_PORT_HTTP": "80",
    "SHOP_PORT": "tcp://10.0.0.1:80",
    "SHOP_PORT_80_TCP": "tcp://10.0.0.1:80",
    "SHOP_PORT_80_TCP_ADDR": "10.0.0.1",
    "SHOP_DB_SERVICE_HOST": "10.0.0.2",
    "SHOP_DB_PORT": "tcp://10.0.0.2:5432",
}


def shop() -> dflag.FlagSet:
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10, aliases=["r"])
    flags.str("name", "x", dynamic=False, path_flag="")
    flags.int("pin", 1, secret=True)
    return flags


def test_a_wrong_variable_is_named() -> None:
    flags = shop()
    with pytest.raises(FlagError) as refused:
        dflag.load_environment(flags, {"SHOP_RATE": "5x"}, "SHOP_")
    assert str(refused.value) == "flag 'rate': SHOP_RATE: '5x' is not a whole number"
    with pytest.raises(FlagError) as refused:
        dflag.load_environment(flags, {"SHOP_R": "5x", "SHOP_PIN": "hunter2"}, "SHOP_")
    assert "flag 'rate': SHOP_R: '5x' is not a whole number" in str(refused.value)
    assert ("flag 'pin': SHOP_PIN: " in str(refused.value), "hunter2" in str(refused.value)) == (True, False)
    flags.freeze()
    with pytest.raises(StaticFlagError, match="flag 'name': SHOP_NAME: it is static"):
        dflag.load_environment(flags, {"SHOP_NAME": "y"}, "SHOP_")


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10, path_flag=str(tmp_path / "rate"))
    (tmp_path / "rate").write_text("5x")
    with pytest.raises(FlagError) as refused:
        dflag.load_files(flags)
    assert str(refused.value) == f"flag 'rate': {tmp_path / 'rate'}: '5x' is not a whole number"


def test_a_variable_that_names_no_flag_is_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    flags = shop()
    strange = {"SHOP_RATEE": "5", "SHOP_COLOUR": "red"}
    with pytest.raises(FlagError):
        dflag.load_environment(flags, {**strange, "SHOP_PIN": "x", "SHOP_NAME_PATH": "", "SHOP_R": "7"}, "SHOP_")
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "SHOP_COLOUR names no flag of the set 'shop'",
        "SHOP_RATEE names no flag of the set 'shop'; did you mean SHOP_RATE?",
    ]
    assert flags["rate"].get() == 7


@pytest.mark.parametrize(
    ("environment", "prefix"),
    [
        ({"SHOP_COLOUR": "red"}, ""),
        ({"SHOP_COLOUR": "red"}, "S_"),
        ({"SHOPS": "3", "shop_colour": "red"}, "SHOP_"),
        (KUBERNETES, "SHOP_"),
    ],
)
def test_what_is_nobodys_in_particular_is_left_alone(
    environment: dict[str, str], prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    dflag.load_environment(shop(), environment, prefix)
    assert caplog.records == []


def test_a_crowd_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    dflag.load_environment(shop(), {f"SHOP_X{number:02}": "" for number in range(13)}, "shop-")
    assert (len(caplog.records), caplog.records[-1].getMessage()) == (11, "and 3 more variables name none")


def test_it_may_be_an_error_once_the_others_are_taken_or_nothing(caplog: pytest.LogCaptureFixture) -> None:
    flags = shop()
    variables = {"SHOP_RATEE": "5", "SHOP_RATE": "6"}
    with pytest.raises(UsageError, match="SHOP_RATEE names no flag of the set 'shop'; did you mean SHOP_RATE"):
        dflag.load_environment(flags, variables, "SHOP_", unknown="error")
    assert flags["rate"].get() == 6
    dflag.load_environment(flags, variables, "SHOP_", unknown="ignore")
    assert caplog.records == []
    wrong: Any = "warning"
    with pytest.raises(UsageError, match="unknown must be 'warn', 'error' or 'ignore', got 'warning'"):
        dflag.load_environment(flags, variables, "SHOP_", unknown=wrong)
