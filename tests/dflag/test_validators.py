"""What a validator may be, how it refuses, and of whom its rules are told."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import pytest

from tests.dflag.page.asking import OPEN, ask, put
from wigwag import dflag
from wigwag.dflag.page.site import Site
from wigwag.errors import UsageError


@pytest.mark.parametrize("answer", [False, 0, "", [], {}])
def test_an_answer_that_is_not_true_refuses(answer: Any) -> None:
    flag = dflag.FlagSet("test").int("x", 1, validators=[lambda value: answer if value == 2 else None])
    with pytest.raises(dflag.FlagError, match="'x': refused by <lambda>"):
        flag.set("2")
    assert flag.get() == 1


@pytest.mark.parametrize("answer", [None, True, 1, "fine", [0]])
def test_no_answer_and_one_that_is_true_accept(answer: Any) -> None:
    flag = dflag.FlagSet("test").int("x", 1, validators=[lambda _: answer])
    flag.set("2")
    assert flag.get() == 2


class Asked:
    async def __call__(self, value: int) -> None:
        raise ValueError("never seen")


async def asked(value: int, more: int = 0) -> None:
    raise ValueError("never seen")


@pytest.mark.parametrize("validator", [asked, partial(asked, more=1), Asked()])
def test_a_validator_that_would_have_to_be_awaited_is_refused(validator: Any) -> None:
    flags = dflag.FlagSet("test")
    told = r"a validator is asked and not awaited: (asked|partial|Asked) is a coroutine function"
    with pytest.raises(UsageError, match=f"flag 'x': {told}"):
        flags.int("x", 1, secret=True, validators=[validator])
    with pytest.raises(UsageError, match=told):
        dflag.each(validator)
    assert "x" not in flags


def test_so_is_what_a_validator_returns_to_be_awaited() -> None:
    flag = dflag.FlagSet("test").int("x", 1, validators=[lambda value: asked(value) if value == 2 else None])
    with pytest.raises(dflag.FlagError, match="'x': a validator is asked and not awaited: <lambda> is"):
        flag.set("2")
    assert flag.get() == 1


@pytest.mark.parametrize("answer", [False, 0, ""])
def test_a_check_over_several_flags_refuses_in_the_same_way(answer: Any) -> None:
    flags = dflag.FlagSet("test")
    flag = flags.int("x", 1)
    flags.check(lambda found: answer if found[flag] == 2 else None, "not two")
    with pytest.raises(dflag.FlagError, match="not two"):
        flag.set("2")


def test_what_a_secret_flag_may_be_is_told_nowhere() -> None:
    flags = dflag.FlagSet("test")
    rules: Any = [dflag.one_of("hunter2", "hunter3"), dflag.matches("^hunter[23]$")]
    flags.str("password", "hunter2", "to get in", secret=True, validators=rules)
    parser = argparse.ArgumentParser()
    dflag.add_to(parser, flags)
    site = Site(flags, access=OPEN)
    told = [flags.usage(), parser.format_help(), *(ask(site, "GET", path).text for path in ("/", "/flags/password"))]
    told.append(ask(site, "GET", "/", accept="text/html").text)
    told.append(put(site, "password", "hunter4").text)
    assert all("password" in text for text in told)
    assert [text for text in told if "hunter" in text.replace('"hunter4"', "")] == []
    assert "must be" not in "".join(told)
