"""Members of JSON values: those that nobody knows, and those that were left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict, cast

import msgspec
import pydantic
import pytest

from wigwag import dflag
from wigwag.dflag.values.structured import json_kind
from wigwag.errors import UsageError


@dataclass
class Retry:
    attempts: int = 3
    delay: float = 0.5
    codes: list[int] = field(default_factory=list)


@dataclass
class Client:
    retry: Retry = field(default_factory=Retry)
    more: tuple[Retry, ...] = ()
    name: str = "x"


@dataclass(frozen=True, slots=True)
class Slotted:
    attempts: int = 3
    delay: float = 0.5


class Pair(NamedTuple):
    left: Retry
    right: int = 0


class Holder(msgspec.Struct):
    retry: Retry
    rate: int = 1


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True):
    bones: int = 1


class RetryDict(TypedDict, total=False):
    attempts: int


class Model(pydantic.BaseModel):
    attempts: int = 3


@pytest.mark.parametrize(
    ("default", "text", "written"),
    [
        (Retry(), '{"attempts": 1}', '{"attempts":1,"delay":0.5,"codes":[]}'),
        (Slotted(), '{"attempts": 1}', '{"attempts":1,"delay":0.5}'),
        (Model(), "{}", '{"attempts":3}'),
        (Holder(Retry()), '{"retry": {}}', '{"retry":{"attempts":3,"delay":0.5,"codes":[]},"rate":1}'),
    ],
)
def test_what_is_in_force_is_written_and_not_what_was_sent(default: Any, text: str, written: str) -> None:
    flag = dflag.FlagSet().json("x", default)
    flag.set(text)
    assert flag.text == written


def test_so_are_members_of_members() -> None:
    flag = dflag.FlagSet().json("client", Client())
    flag.set('{"retry": {"attempts": 1}, "more": [{"delay": 2}]}')
    whole = Client(Retry(1), (Retry(delay=2.0),))
    assert (flag.get(), flag.text) == (whole, flag.kind.format(whole))
    assert vars(flag.get())["name"] == "x"


def test_the_same_value_by_text_and_by_program_is_no_change() -> None:
    flag = dflag.FlagSet().json("retry", Retry())
    flag.set('{"attempts": 1}')
    assert flag.same(flag.get(), Retry(1))


@pytest.mark.parametrize(
    ("type", "text", "told"),
    [
        (Retry, '{"atempts": 1}', "$.atempts is unknown; did you mean 'attempts'?"),
        (Client, '{"retry": {"nope": 1}}', "$.retry.nope is unknown"),
        (Client, '{"more": [{}, {"nope": 1}]}', "$.more[1].nope is unknown"),
        (RetryDict, '{"atempts": 1}', "$.atempts is unknown; did you mean 'attempts'?"),
        (Holder, '{"retry": {}, "other": 1}', "$.other is unknown"),
        (dict[str, Retry], '{"a": {"b": 1}}', "$.a.b is unknown"),
        (list[Retry | None], '[null, {"b": 1}]', "$[1].b is unknown"),
        (tuple[int, Retry], '[1, {"b": 1}]', "$[1].b is unknown"),
        (list[Pair], '[[{"b": 1}, 2]]', "$[0][0].b is unknown"),
        (list[Cat | Dog], '[{"type": "Cat", "lives": 1}, {"type": "Dog", "lives": 1}]', "$[1].lives is unknown"),
        (Retry, '{"a": 1, "b": 1, "c": 1, "d": 1}', "$.a is unknown; $.b is unknown; $.c is unknown"),
    ],
)
def test_a_member_that_nobody_knows_is_refused_if_one_wants_it(type: Any, text: str, told: str) -> None:
    json_kind(type).parse(text)
    with pytest.raises(ValueError, match=r"^not the JSON that is wanted: ") as caught:
        json_kind(type, unknown_fields="error").parse(text)
    assert str(caught.value).removeprefix("not the JSON that is wanted: ") == told


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (Client, '{"retry": {"attempts": 1}, "more": [{}], "name": "y"}'),
        (dict[str, Any], '{"a": {"b": 1}}'),
        (list[Cat | Dog], '[{"type": "Cat", "lives": 1}, {"type": "Dog"}]'),
        (Retry | str, "bare"),
        (RetryDict, "{}"),
    ],
)
def test_members_that_are_known_pass(type: Any, text: str) -> None:
    assert json_kind(type, unknown_fields="error").parse(text) == json_kind(type).parse(text)


def test_unknown_fields_is_an_option_of_json_flags() -> None:
    flags = dflag.FlagSet()
    flag = flags.json("a", Retry(), unknown_fields="error")
    with pytest.raises(dflag.FlagError, match="did you mean 'attempts'"):
        flag.set('{"atempts": 1}')
    typed = flags.json("b", RetryDict(attempts=1), type=RetryDict, unknown_fields="error")
    with pytest.raises(dflag.FlagError, match="did you mean 'attempts'"):
        typed.set_value(cast("RetryDict", {"atempts": 1}))
    for default in ({"a": 1}, Model()):
        with pytest.raises(UsageError, match="extra='forbid'"):
            flags.json("c", default, unknown_fields="error")
    with pytest.raises(UsageError, match="unknown_fields is 'ignore' or 'error', not 'warn'"):
        flags.json("d", Retry(), unknown_fields="warn")  # type: ignore[arg-type]
