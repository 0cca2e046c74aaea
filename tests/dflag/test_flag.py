"""One flag: the path on which it is changed, and what it refuses."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.dflag.kubelet import Heard
from tests.dflag.sets import set_of
from wigwag import dflag
from wigwag.dflag.traits import Traits
from wigwag.errors import UsageError


def flags() -> dflag.FlagSet:
    return dflag.FlagSet("test")


def test_the_path_is_input_mutator_parse_mutator_validators_swap_notifiers() -> None:
    seen: list[Any] = []

    def note(stage: str, result: Any = None) -> Any:
        def step(value: Any) -> Any:
            seen.append((stage, value))
            return result(value) if result else None

        return step

    flag = flags().int(
        "x",
        1,
        input_mutator=note("input", lambda text: text.strip("<>")),
        mutator=note("mutator", lambda value: value * 2),
        validators=[note("first"), note("second")],
    )
    flag.on_change(lambda old, new: seen.append(("notifier", (old, new, flag.get()))), "sync")
    del seen[:]
    flag.set("<21>")
    assert seen == [("input", "<21>"), ("mutator", 21), ("first", 42), ("second", 42), ("notifier", (2, 42, 42))]


def test_what_is_refused_leaves_everything_as_it_was() -> None:
    heard = Heard()
    found = flags()
    flag = found.int("x", 1, validators=[dflag.in_range(0, 10)])
    flag.on_change(heard, "sync")
    for bad in ("11", "abc"):
        with pytest.raises(dflag.FlagError, match="flag 'x': "):
            flag.set(bad)
    with pytest.raises(dflag.FlagError, match="expected int, got str"):
        flag.set_value("3")  # type: ignore[arg-type]
    assert (flag.get(), heard.steps, found.generation) == (1, [], 0)


@pytest.mark.parametrize(
    ("text", "mutator", "value"),
    [(" a b \n", "default", "a b"), (" a b \n", None, " a b \n"), ("A", str.lower, "a")],
)
def test_white_space_around_a_text_is_taken_off_unless_told_otherwise(text: str, mutator: Any, value: str) -> None:
    options = {} if mutator == "default" else {"input_mutator": mutator}
    flag = flags().str("x", "", **options)
    flag.set(text)
    assert flag.get() == value


def test_a_validator_may_return_false_raise_or_break() -> None:
    def broken(value: int) -> None:
        raise ZeroDivisionError("oh")

    def is_even(value: int) -> bool:
        return value % 2 == 0

    even, breaking = flags().int("x", 0, validators=[is_even]), flags().int("y", 0)
    with pytest.raises(dflag.FlagError, match="refused by is_even"):
        even.set("1")
    object.__setattr__(breaking.traits, "validators", [broken])
    with pytest.raises(dflag.FlagError, match="ZeroDivisionError: oh"):
        breaking.set("1")


def test_every_validator_counts() -> None:
    flag = flags().int("x", 4, validators=[dflag.in_range(0, 10), lambda value: value % 2 == 0])
    for bad in ("3", "12"):
        with pytest.raises(dflag.FlagError):
            flag.set(bad)
    flag.set("6")
    assert flag.get() == 6


def test_a_default_that_a_validator_refuses_is_an_error_of_the_program() -> None:
    with pytest.raises(UsageError, match=re.escape("flag 'x': the default is refused: must be from 0 to 10, got 11")):
        flags().int("x", 11, validators=[dflag.in_range(0, 10)])


def test_a_secret_is_never_told() -> None:
    flag = flags().int("x", 1, secret=True, validators=[dflag.in_range(0, 10)])
    for bad in ("4711", "hunter2"):
        with pytest.raises(dflag.FlagError) as caught:
            flag.set(bad)
        assert bad not in str(caught.value)
        assert caught.value.__cause__ is None
    flag.set("7")
    assert "7" not in repr(flag)
    assert "7" not in flag.shown
    assert "default (secret)" in set_of(flag).usage()


def test_a_static_flag_changes_until_the_set_is_frozen() -> None:
    found = flags()
    flag = found.str("x", "a", dynamic=False)
    flag.set("b")
    found.freeze()
    with pytest.raises(dflag.StaticFlagError, match="restart the program"):
        flag.set("c")
    with pytest.raises(dflag.StaticFlagError):
        flag.set_value("c")
    assert flag.get() == "b"
    with flag.override("test"):
        assert flag.get() == "test"
    assert flag.get() == "b"


def test_the_default_can_be_changed_and_stays_beneath_what_was_set() -> None:
    flag = flags().int("x", 1, validators=[dflag.in_range(0, 10)])
    flag.set_default(2)
    assert (flag.get(), flag.default) == (2, 2)
    flag.set("5")
    flag.set_default(3)
    assert (flag.get(), flag.default) == (5, 3)
    flag.reset()
    assert flag.get() == 3
    with pytest.raises(dflag.FlagError):
        flag.set_default(11)


def test_reading_is_one_attribute_and_no_call() -> None:
    import dis

    operations = [step.opname for step in dis.get_instructions(dflag.DynFlag.get)]
    assert [name for name in operations if name not in {"RESUME", "COPY_FREE_VARS", "CACHE"}] in (
        ["LOAD_FAST", "LOAD_ATTR", "RETURN_VALUE"],
        ["LOAD_FAST_BORROW", "LOAD_ATTR", "RETURN_VALUE"],
    )


@pytest.mark.parametrize("name", ["", "-x", "a=b", "a b", "..data", "a/b", "x" * 300])
def test_a_name_that_no_file_or_option_could_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a flag"):
        flags().int(name, 1)


def test_an_option_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TypeError, match="dynamc"):
        flags().int("x", 1, dynamc=True)  # type: ignore[call-arg]


def test_not_every_value_can_be_compared() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

        __hash__ = object.__hash__

    flag = flags().int("x", 1)
    assert not flag.same(Odd(), Odd())  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "second", "calls"), [("nan", "NaN", 0), ("0", "1", 1), ("1", "1.0", 0)])
def test_nan_equals_nan_for_a_notifier(first: str, second: str, calls: int) -> None:
    flag = flags().float("x", 5.0)
    flag.set(first)
    heard = Heard()
    flag.on_change(heard, "sync")
    flag.set(second)
    assert len(heard.steps) == calls


def test_true_is_not_one_in_json() -> None:
    flag = flags().json("x", {"a": 1})
    heard = Heard()
    flag.on_change(heard, "sync")
    flag.set('{"a": true}')
    assert heard.steps == [({"a": 1}, {"a": True})]
    flag.set('{ "a": true }')
    assert len(heard.steps) == 1


@pytest.mark.parametrize("rule", [dflag.in_range(3, None), dflag.in_range(None, 3), dflag.in_range(None, None)])
def test_a_range_may_be_open(rule: dflag.Rule[Any]) -> None:
    rule(3)
    with pytest.raises(ValueError, match="the lower bound comes first"):
        dflag.in_range(3, 1)


def test_nan_is_in_no_range() -> None:
    with pytest.raises(dflag.FlagError):
        flags().float("x", 0.5, validators=[dflag.in_range(0.0, 1.0)]).set("nan")


def test_rules_for_texts_lists_and_urls() -> None:
    found = flags()
    found.str("a", "abc", validators=[dflag.matches("b"), dflag.length(1, 3), dflag.not_blank]).set("b")
    found.list("b", ["a"], validators=[dflag.length(1), dflag.each(dflag.one_of("a", "b"))]).set("a,b")
    found.set("c", {"a"}, validators=[dflag.length(1)])
    found.str("d", "http://a/b", validators=[dflag.url()])
    for name, bad in {"a": "abcd", "b": "a,c", "c": "", "d": "nowhere"}.items():
        with pytest.raises(dflag.FlagError):
            found[name].set(bad)
    with pytest.raises(dflag.FlagError, match="item 2: must be one of 'a', 'b', got 'c'"):
        found["b"].set("a,c")


def test_a_flag_is_neither_true_nor_false() -> None:
    flag = flags().bool("debug", False)
    with pytest.raises(
        TypeError, match=re.escape("flag 'debug' is neither true nor false: ask for its value with .get()")
    ):
        assert flag


@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
@pytest.mark.parametrize("value", [10, "10", None, object()])
def test_a_flag_is_not_compared_with_a_value(compare: Callable[[object, object], bool], value: object) -> None:
    """It would be false for ever, and nobody would notice; a type checker says so, too."""
    flag = flags().int("rate", 10)
    wanted = re.escape("flag 'rate' is compared, and not its value: ask for that with .get()")
    for first, second in ((flag, value), (value, flag)):
        with pytest.raises(TypeError, match=wanted):
            compare(first, second)


def test_flags_can_be_compared_with_each_other_and_be_keys() -> None:
    found = flags()
    rate, size = found.int("rate", 10), found.int("size", 10)
    other: object = size
    assert rate == rate
    assert rate != other
    assert {rate: 1, size: 2}[size] == 2
    assert [rate, size].index(size) == 1


def test_one_validator_and_one_alias_need_no_list() -> None:
    found = flags()
    rate = found.int("rate", 10, validators=dflag.in_range(1, 20), aliases="speed")
    with pytest.raises(dflag.FlagError, match="must be from 1 to 20, got 21"):
        rate.set("21")
    assert rate.names == ("rate", "speed")


def test_a_value_that_is_given_for_a_text_is_told_where_it_belongs() -> None:
    found = flags()
    flag, secret = found.int("rate", 1), found.int("pin", 1, secret=True)
    for setting in (flag.set, lambda value: found.assign("rate", value)):
        with pytest.raises(
            dflag.FlagError, match=re.escape("flag 'rate': set() takes text, got int: use set_value(5)")
        ):
            setting(5)  # type: ignore[arg-type]
    with pytest.raises(dflag.FlagError, match=re.escape("set() takes text, got int: use set_value(…)")):
        secret.set(4711)  # type: ignore[arg-type]
    assert flag.get() == 1


def test_what_a_secret_flag_holds_does_not_show_itself() -> None:
    found = flags()
    secret, plain = found.str("key", "hunter1", secret=True), found.str("name", "x")
    assert "hunter1" not in repr(secret.held)
    secret.set("hunter2")
    assert repr(secret.held).startswith("<Held (secret) from program, generation=1, at=")
    assert "hunter" not in repr(found.snapshot().held(secret)) + repr(secret.layers)
    assert repr(plain.held) == "<Held 'x' from default, generation=0, at=0.0>"


def test_what_is_held_tells_its_place() -> None:
    found = flags()
    rate = found.int("rate", 1)
    assert rate.held.place == ""
    dflag.load_environment(found, {"APP_RATE": "2"}, "APP_")
    assert (rate.held.place, str(rate.held)) == ("APP_RATE", "environment APP_RATE")


def test_a_static_flag_is_not_reset_when_the_set_is_frozen() -> None:
    found = flags()
    flag = found.str("x", "a", dynamic=False)
    flag.set("b")
    found.freeze()
    with pytest.raises(dflag.StaticFlagError):
        flag.reset()
    assert flag.get() == "b"


def test_the_rules_for_items_are_in_the_help() -> None:
    found = flags()
    found.list("ports", [80], item=int, validators=[dflag.each(dflag.in_range(1, 9999), lambda port: port != 22)])

    def not_b(item: str) -> bool:
        return item != "b"

    found.list("odd", ["a"], validators=[dflag.each(not_b)])
    assert "    must be such that each item is from 1 to 9999" in found.usage()
    assert found.usage().count("must be") == 1
    with pytest.raises(dflag.FlagError, match="item 1: refused by <lambda>"):
        found["ports"].set("22")


def test_the_help_of_a_definition_tells_of_its_options() -> None:
    for define in (dflag.FlagSet.int, dflag.FlagSet.list, dflag.FlagSet.json, dflag.FlagSet.flag, dflag.new):
        for option in Traits.__dataclass_fields__:
            assert f"\n    {option} " in (define.__doc__ or ""), (define, option)
