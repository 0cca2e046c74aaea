"""Lists, sets and maps, however they are written; and types that JSON holds as a string."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Any, Literal, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dflag.test_kinds import deps, is_refused_in_few_words
from wigwag import dflag
from wigwag.dflag.values.containers import list_kind, mapping_kind, set_kind
from wigwag.dflag.values.frozen import freeze
from wigwag.dflag.values.kinds import DURATION, INT, STR, ValueKind
from wigwag.dflag.values.types import kind_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


GOOD: list[tuple[ValueKind[Any], str, Any]] = [
    (list_kind(STR), "a, b,,c, ,", ["a", "b", "c"]),
    (list_kind(STR), "a\nb\r\n  c, d\n\n", ["a", "b", "c", "d"]),
    (list_kind(STR), '["a", "b,c", ""]', ["a", "b,c", ""]),
    (list_kind(STR), ' [ "a"\n, "b" ]\n', ["a", "b"]),
    (list_kind(STR), "[]", []),
    (list_kind(STR), "[::1]:80, [::2]:80", ["[::1]:80", "[::2]:80"]),
    (list_kind(STR), "[a-z]+", ["[a-z]+"]),
    (list_kind(INT), "[1, 0]", [1, 0]),
    (list_kind(INT), "1\n2,\n", [1, 2]),
    (list_kind(DURATION), '["1s"]', [timedelta(seconds=1)]),
    (list_kind(kind_of(Colour)), '["RED", "blue"]', [Colour.RED, Colour.BLUE]),
    (list_kind(STR, keep_empty=True), '["a",\n"b"],', ['["a"', '\n"b"]', ""]),
    (list_kind(STR, keep_empty=True), "a,,b,", ["a", "", "b", ""]),
    (list_kind(STR, quoted=True), '"a\nb"\nc,,"d"', ["a\nb", "c", "d"]),
    (list_kind(STR, quoted=True), '["a"]', ["a"]),
    (set_kind(STR), '["b", "a"]', {"a", "b"}),
    (set_kind(STR), "b\na\n", {"a", "b"}),
    (mapping_kind(STR), "a=1,\nb=x=y,", {"a": "1", "b": "x=y"}),
    (mapping_kind(STR), '\n{"a": "1"}', {"a": "1"}),
    (mapping_kind(STR, quoted=True), '"a=1,2"\nb=3', {"a": "1,2", "b": "3"}),
    (kind_of(Literal["red", "blue"]), "red", "red"),
    (kind_of(Literal["red", "blue"]), '"red"', "red"),
    (kind_of(Literal["1", "true"]), "1", "1"),
    (kind_of(Literal[1, 2]), "2", 2),
    (kind_of(UUID), str(UUID(int=7)), UUID(int=7)),
    (kind_of(UUID), f'"{UUID(int=7)}"', UUID(int=7)),
    (kind_of(datetime), "2026-01-31T12:30:00Z", datetime(2026, 1, 31, 12, 30, tzinfo=UTC)),
    (kind_of(date), "2026-01-31", date(2026, 1, 31)),
    (kind_of(time), "12:30:00", time(12, 30)),
    (kind_of(list[UUID]), str(UUID(int=7)), [UUID(int=7)]),
    (kind_of(list[Literal["a", "b"]]), "b,a", ["b", "a"]),
    (kind_of(str | None), "abc", "abc"),
    (kind_of(str | None), "null", None),
    (kind_of(tuple[int, int]), "[1, 2]", (1, 2)),
    (kind_of(list[tuple[int, int]]), "[[1, 2]]", [(1, 2)]),
]

BAD: list[tuple[ValueKind[Any], str]] = [
    *((list_kind(STR), text) for text in ('["a", "b",]', "[a, b]", '["a"', "[1]", "[null]", '[["a"]]', "[" * 5000)),
    (list_kind(INT), "[9223372036854775808]"),
    (list_kind(INT), '["x"]'),
    *((kind_of(Literal["red", "blue"]), text) for text in ("green", "", '"green"', "re")),
    *((kind_of(UUID), text) for text in ("", "7", "x" * 500)),
    *((kind_of(datetime), text) for text in ("2026", "yesterday")),
    *((kind_of(tuple[int, int]), text) for text in ("[1]", "1,2")),
]


@pytest.mark.parametrize(("kind", "text", "value"), GOOD)
def test_a_text_is_read_and_written_so_that_it_means_the_same(kind: ValueKind[Any], text: str, value: Any) -> None:
    deps(kind, text, value)


@pytest.mark.parametrize(("kind", "text"), BAD)
def test_a_text_that_is_none_of_the_kind_is_refused_in_few_words(kind: ValueKind[Any], text: str) -> None:
    is_refused_in_few_words(kind, text)


@pytest.mark.parametrize(
    ("type", "value"),
    [(UUID, str(UUID(int=7))), (datetime, date(2026, 1, 31)), (Literal["a"], 1), (tuple[int, int], (1, "x"))],
)
def test_a_value_of_another_type_is_refused(type: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="expected"):
        kind_of(type).take(value)


@pytest.mark.parametrize(
    ("type", "name"),
    [(Literal["red", "blue"], "one of red, blue"), (UUID, "uuid"), (list[date], "list of date")],
)
def test_the_kind_follows_from_the_type(type: Any, name: str) -> None:
    assert (kind_of(type).name, kind_of(type).is_json) == (name, False)


def test_a_choice_is_told_with_what_there_is_to_choose_from() -> None:
    flag: dflag.DynFlag[str] = dflag.FlagSet().flag(Literal["red", "blue"], "colour", "red")  # type: ignore[arg-type]
    for setting in (flag.set, flag.set_value):
        with pytest.raises(dflag.FlagError, match="'green' is not one of red, blue"):
            setting("green")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@given(st.lists(TEXTS), st.booleans())
def test_whatever_a_list_holds_can_be_read_from_what_is_written(values: list[str], quoted: bool) -> None:
    kind = list_kind(STR, quoted=quoted)
    assert kind.parse(kind.format(values)) == values


@given(st.dictionaries(TEXTS, TEXTS), st.booleans())
def test_whatever_a_map_holds_can_be_read_from_what_is_written(values: dict[str, str], quoted: bool) -> None:
    kind = mapping_kind(STR, quoted=quoted)
    assert kind.parse(kind.format(values)) == values


@pytest.mark.parametrize(
    ("values", "written"),
    [(["a", "b"], "a,b"), (["a,b"], '["a,b"]'), ([""], '[""]'), (["[]"], '["[]"]'), (["[::1]:80"], "[::1]:80")],
)
def test_a_list_is_written_with_commas_if_that_can_be_read(values: list[str], written: str) -> None:
    assert list_kind(STR).format(values) == written


def test_a_list_that_was_meant_to_be_json_says_so() -> None:
    with pytest.raises(
        ValueError, match=r"it begins like a JSON array but is not valid \(.*\): write a,b,c, or correct it"
    ):
        list_kind(STR).parse("[a, b]")


class Pair(NamedTuple):
    left: int
    right: int = 0


def test_tuples_are_tuples_where_the_type_says_so() -> None:
    flags = dflag.FlagSet()
    flag, plain = flags.flag(tuple[int, int], "pair", (1, 2)), flags.json("plain", (1, 2))
    flag.set("[3, 4]")
    assert flag.get() == (3, 4)
    assert isinstance(flag.get(), tuple)
    assert flag.default == (1, 2)
    assert list(plain.get()) == [1, 2]
    assert isinstance(plain.get(), list)
    assert freeze([Pair(1)])[0].left == 1
