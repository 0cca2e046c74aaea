"""What a flag can hold: read from text, written as text, taken from the program."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag import dflag
from wigwag.dflag.values.containers import list_kind, mapping_kind, set_kind
from wigwag.dflag.values.frozen import freeze
from wigwag.dflag.values.kinds import BOOL, BYTES, DECIMAL, DURATION, FLOAT, INT, PATH, STR, ValueKind
from wigwag.dflag.values.structured import json_kind
from wigwag.dflag.values.types import kind_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Limits:
    rate: int
    policy: str = "allow"


class LimitsDict(TypedDict):
    rate: int


class LimitsStruct(msgspec.Struct, frozen=True):
    rate: int
    policy: str = "allow"


class StrictStruct(msgspec.Struct, forbid_unknown_fields=True):
    rate: int


class LimitsModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    rate: int = pydantic.Field(ge=0)
    policy: str = "allow"


GOOD: list[tuple[ValueKind[Any], str, Any]] = [
    *((BOOL, text, True) for text in ("1", "t", "T", "TRUE", "true", "True")),
    *((BOOL, text, False) for text in ("0", "f", "F", "FALSE", "false", "False")),
    (INT, "-42", -42),
    (INT, "+7", 7),
    (INT, "0x1F", 31),
    (INT, "0o17", 15),
    (INT, "017", 15),
    (INT, "0b101", 5),
    (INT, "1_000", 1000),
    (INT, "0x_ff", 255),
    (INT, "9223372036854775807", 2**63 - 1),
    (INT, "-9223372036854775808", -(2**63)),
    (FLOAT, "1.5", 1.5),
    (FLOAT, "1e3", 1000.0),
    (FLOAT, ".5", 0.5),
    (FLOAT, "0x1p-2", 0.25),
    (FLOAT, "-Infinity", -math.inf),
    (STR, " a\n", " a\n"),
    (DURATION, "1d3h", timedelta(days=1, hours=3)),
    (BYTES, "AAEC\nAw==\n", bytes(range(4))),
    (PATH, "/etc/x", Path("/etc/x")),
    (DECIMAL, "1.10", Decimal("1.10")),
    (kind_of(Colour), "RED", Colour.RED),
    (kind_of(Colour), "blue", Colour.BLUE),
    (kind_of(Level), "2", Level.HIGH),
    (list_kind(STR), "a, b,,c", ["a", "b", "c"]),
    (list_kind(STR), "", []),
    (list_kind(STR, keep_empty=True), "", [""]),
    (list_kind(STR, keep_empty=True), "a, b", ["a", " b"]),
    (list_kind(STR, quoted=True), 'a, "b, c"', ["a", "b, c"]),
    (list_kind(DURATION), "1s,1m", [timedelta(seconds=1), timedelta(minutes=1)]),
    (set_kind(INT), "3,1,3", {1, 3}),
    (mapping_kind(INT), "a=1, b=2", {"a": 1, "b": 2}),
    (mapping_kind(DURATION), '{"a": "1s"}', {"a": timedelta(seconds=1)}),
    (mapping_kind(STR), "", {}),
    (json_kind(), '{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
    (json_kind(), "[]", []),
    (json_kind(Limits), '{"rate": 5, "other": 1}', Limits(5)),
    (json_kind(LimitsDict), '{"rate": 5}', {"rate": 5}),
    (json_kind(LimitsStruct), '{"rate": 5}', LimitsStruct(5)),
    (json_kind(LimitsModel), '{"rate": 5}', LimitsModel(rate=5)),
    (json_kind(list[Limits]), '[{"rate": 5}]', [Limits(5)]),
]

BAD: list[tuple[ValueKind[Any], str]] = [
    *((BOOL, text) for text in ("", "yes", "tRUE", " true", "2")),
    *(
        (INT, text)
        for text in ("", "1.5", "abc", "0x", "08", "1__0", "_1", "9223372036854775808", "1" * 5000, "\u0661")
    ),
    *((FLOAT, text) for text in ("", "1e400", "abc", "0x10", "1.2.3", "9" * 500)),
    (DURATION, "5x"),
    *((BYTES, text) for text in ("A", "bogus!", "AAE")),
    (PATH, "a\0b"),
    *((DECIMAL, text) for text in ("", "abc", "1" * 2000)),
    (kind_of(Colour), "green"),
    (list_kind(INT), "1,x"),
    (list_kind(STR, quoted=True), '"a'),
    (mapping_kind(INT), "a"),
    (mapping_kind(INT), "a=x"),
    (mapping_kind(INT), '{"a": [1]}'),
    (mapping_kind(INT), '{"a"'),
    *((json_kind(), text) for text in ("3", '"a"', "{", "", "[" * 5000)),
    *((json_kind(Limits), text) for text in ("[]", '{"rate": "5"}', "{}")),
    (json_kind(LimitsDict), "{}"),
    (json_kind(LimitsStruct), '{"rate": null}'),
    (json_kind(StrictStruct), '{"rate": 1, "other": 1}'),
    (json_kind(LimitsModel), '{"rate": -1}'),
]


def deps(kind: ValueKind[Any], text: str, value: Any) -> None:
    """A text is a value, and what is written of that is the value again."""
    found = kind.parse(text)
    assert found == value
    assert kind.parse(kind.format(found)) == value
    assert kind.take(found) == value


def is_refused_in_few_words(kind: ValueKind[Any], text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        kind.parse(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("kind", "text", "value"), GOOD)
def test_a_text_is_read_and_written_so_that_it_means_the_same(kind: ValueKind[Any], text: str, value: Any) -> None:
    deps(kind, text, value)


@pytest.mark.parametrize(("kind", "text"), BAD)
def test_a_text_that_is_none_of_the_kind_is_refused_in_few_words(kind: ValueKind[Any], text: str) -> None:
    is_refused_in_few_words(kind, text)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (BOOL, 1),
        (INT, True),
        (INT, 1.0),
        (FLOAT, "1"),
        (STR, 1),
        (DURATION, 5),
        (BYTES, "a"),
        (DECIMAL, 1.5),
        (kind_of(Colour), "red"),
        (list_kind(STR), "a"),
        (list_kind(STR), [1]),
        (set_kind(STR), "a"),
        (mapping_kind(STR), ["a"]),
        (mapping_kind(STR), {1: "a"}),
        (json_kind(), 3),
        (json_kind(), {"a": object()}),
        (json_kind(Limits), {"rate": 1}),
        (json_kind(LimitsDict), {"rate": "x"}),
        (json_kind(LimitsModel), LimitsStruct(1)),
    ],
)
def test_a_value_of_another_type_is_refused_without_being_told(kind: ValueKind[Any], value: Any) -> None:
    with pytest.raises(TypeError, match=r"expected|not JSON"):
        kind.take(value)


@pytest.mark.parametrize("value", [3j, 3, "a"])
def test_a_type_that_is_no_json_structure_is_refused_when_the_flag_is_defined(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be read from JSON"):
        dflag.FlagSet().json("x", value)


@pytest.mark.parametrize(
    ("type", "name"),
    [
        (int, "int"),
        (bool, "bool"),
        (timedelta, "duration"),
        (Path, "path"),
        (list[Path], "list of path"),
        (frozenset[Colour], "set of one of RED, BLUE"),
        (Mapping[str, Decimal], "map to decimal"),
        (dict, "json"),
        (Limits, "Limits"),
    ],
)
def test_the_kind_follows_from_the_type(type: Any, name: str) -> None:
    assert kind_of(type).name == name


@given(st.floats(allow_nan=False))
def test_a_float_is_written_so_that_it_is_read_as_the_same(value: float) -> None:
    assert FLOAT.parse(FLOAT.format(value)) == value


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1.0, "1"),
        (100000.0, "100000"),
        (123456789.0, "123456789"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e-7, "1.5e-07"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-0.0, "-0"),
        (0.0, "0"),
        (math.nan, "NaN"),
        (-math.inf, "-Inf"),
    ],
)
def test_a_float_is_written_as_go_writes_it(value: float, written: str) -> None:
    assert FLOAT.format(value) == written


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"), min_size=1).map(str.strip))
)
def test_a_quoted_list_holds_any_text(values: list[str]) -> None:
    kind = list_kind(STR, quoted=True)
    wanted = [value for value in values if value]
    assert kind.parse(kind.format(wanted)) == wanted


def test_sets_and_maps_are_written_in_order() -> None:
    assert set_kind(STR).format(frozenset("cab")) == "a,b,c"
    assert mapping_kind(INT).format({"b": 2, "a": 1}) == "a=1,b=2"
    assert json_kind().format({"b": 1, "a": 2}) == '{"a":2,"b":1}'


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value["list"].append(2),
        lambda value: value["list"].sort(),
        lambda value: value["list"].__setitem__(0, 2),
        lambda value: value["list"].__iadd__([2]),
        lambda value: value.update(a=1),
        lambda value: value.pop("list"),
        lambda value: value.__setitem__("a", 1),
        lambda value: value.__delitem__("list"),
        lambda value: value.__ior__({"a": 1}),
    ],
)
def test_a_value_cannot_be_changed_by_who_reads_it(change: Any) -> None:
    value = freeze({"list": [1]})
    with pytest.raises(TypeError, match="copy it before you change it"):
        change(value)
    assert value == {"list": [1]}


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_of_a_value_can_be_changed(duplicate: Any) -> None:
    value = duplicate(freeze({"list": [1]}))
    value["list"].append(2)
    assert value == {"list": [1, 2]}


def test_the_default_is_not_the_list_that_the_program_goes_on_to_change() -> None:
    mine = ["a"]
    flag = dflag.FlagSet().list("x", mine)
    mine.append("b")
    assert flag.get() == ["a"]
