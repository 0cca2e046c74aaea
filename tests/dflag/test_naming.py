"""Names that no flag has, or two have; and what else the newcomer gets wrong about a set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from wigwag import dflag
from wigwag.dflag import Origin
from wigwag.errors import UsageError


@pytest.mark.parametrize(
    "mistake",
    [
        lambda flags: flags.override(ratee=3).__enter__(),
        lambda flags: flags.assign("ratee", "3"),
        lambda flags: flags.set_default("3", "rate", "ratee"),
        lambda flags: dflag.load_texts(flags, {"ratee": "3"}, Origin.COMMAND_LINE),
    ],
)
def test_a_name_that_no_flag_has_is_told_with_the_one_that_may_be_meant(
    mistake: Callable[[dflag.FlagSet], Any],
) -> None:
    flags = dflag.FlagSet("test")
    flags.int("rate", 1)
    told = "there is no flag 'ratee' in the set 'test'; did you mean 'rate'?"
    with pytest.raises(UsageError) as caught:
        mistake(flags)
    assert str(caught.value) == told
    with pytest.raises(KeyError) as missing:
        flags["ratee"]
    assert missing.value.args == (told,)
    with pytest.raises(KeyError, match=r"there is no flag 'zebra' in the set 'test'.$"):
        flags["zebra"]


def test_a_variable_that_could_mean_two_flags_sets_neither() -> None:
    flags = dflag.FlagSet("test")
    one, two, other = flags.int("pool-size", 1), flags.int("pool_size", 1, aliases=["pool.two"]), flags.int("rate", 1)
    with pytest.raises(dflag.FlagError) as caught:
        dflag.load_environment(flags, {"POOL_SIZE": "5", "RATE": "5"})
    told = "flag 'pool-size': POOL_SIZE could mean 'pool-size' or 'pool_size': rename one, or give it an alias"
    assert told in str(caught.value)
    assert (one.get(), two.get(), other.get()) == (1, 1, 5)
    dflag.load_environment(flags, {"POOL_TWO": "6"})
    assert (one.get(), two.get()) == (1, 6)


def test_two_names_of_one_flag_may_have_one_variable() -> None:
    flags = dflag.FlagSet("test")
    size = flags.int("pool-size", 1, aliases=["pool_size"])
    dflag.load_environment(flags, {"POOL_SIZE": "5"})
    assert size.get() == 5


def test_what_an_origin_has_given_can_be_forgotten() -> None:
    flags = dflag.FlagSet("test")
    x, y, z = flags.int("x", 1), flags.int("y", 1), flags.int("z", 1, dynamic=False)
    dflag.load_environment(flags, {"X": "2", "Y": "2", "Z": "2"})
    flags.assign("y", "3", Origin.COMMAND_LINE)
    flags.freeze()
    flags.clear(Origin.ENVIRONMENT)
    assert (x.get(), y.get(), z.get(), flags.generation) == (1, 3, 2, 3)
    flags.clear(Origin.COMMAND_LINE)
    assert y.get() == 1
    with pytest.raises(UsageError, match="a flag always has a default"):
        flags.clear(Origin.DEFAULT)


def test_an_override_is_seen_within_a_pin() -> None:
    flags = dflag.FlagSet("test")
    x = flags.int("x", 1)
    with flags.pinned() as snapshot:
        x.set("2")
        with x.override(3):
            assert (x(), x.get(), snapshot[x]) == (3, 3, 1)
        assert x() == 1


@pytest.mark.parametrize(("ttl", "seconds"), [("10m", 600.0), (timedelta(hours=1), 3600.0), (5, 5.0)])
def test_a_value_may_run_out_after_a_duration(ttl: Any, seconds: float) -> None:
    flags = dflag.FlagSet("test", clock=lambda: 100.0)
    flag = flags.int("x", 1)
    flags.assign("x", "2", Origin.HTTP, ttl=ttl)
    assert flag.held.until == 100.0 + seconds
    flags.clear(Origin.HTTP)
    flags.expire()


@pytest.mark.parametrize("ttl", ["soon", "600", "-1s", [5], float("nan")])
def test_what_is_no_duration_is_refused(ttl: Any) -> None:
    flags = dflag.FlagSet("test")
    flags.int("x", 1)
    with pytest.raises(UsageError, match=r"ttl is a number of seconds, or a duration such as '10m'|must live for more"):
        flags.assign("x", "2", Origin.HTTP, ttl=ttl)
    assert flags["x"].get() == 1


def test_a_set_shows_what_it_is() -> None:
    flags = dflag.FlagSet("shop")
    flags.int("x", 1, aliases=["y"]).set("2")
    assert repr(flags) == "<FlagSet shop: 1 flag, generation 1>"
    flags.int("z", 1)
    assert repr(flags) == "<FlagSet shop: 2 flags, generation 1>"
