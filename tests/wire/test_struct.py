"""Struct ⇄ Python against the official codec."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from wigwag.wire.rpcs import struct
from wigwag.wire.rpcs.protobuf import MalformedError, blob, double, integer, text

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=200),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=20,
)
objects = st.dictionaries(st.text(max_size=140), values, max_size=6)


def plain(value: struct_pb2.Value) -> Any:
    """What the official message holds, numbers as we give them."""
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return plain_struct(value.struct_value)
    if kind == "list_value":
        return [plain(item) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if abs(number) <= 2**53 and number.is_integer() else number
    return None if kind in {None, "null_value"} else getattr(value, kind)


def plain_struct(message: struct_pb2.Struct) -> dict[str, Any]:
    return {key: plain(value) for key, value in message.fields.items()}


def official(value: dict[str, Any]) -> struct_pb2.Struct:
    message = struct_pb2.Struct()
    message.update(value)
    return message


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal types: 1, 1.0 and True are three values."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return repr(left) == repr(right)


@given(objects)
def test_decode_gives_what_the_official_codec_holds(value: dict[str, Any]) -> None:
    message = official(value)
    assert same(struct.decode(message.SerializeToString()), plain_struct(message))


@given(objects)
def test_the_official_codec_reads_what_encode_gives(value: dict[str, Any]) -> None:
    assert struct_pb2.Struct.FromString(struct.encode(value)) == official(value)


def decode_value(data: bytes) -> Any:
    """What a Value holds, as the only one of a Struct."""
    return struct.decode(blob(1, blob(2, data)))[""]


@given(values)
def test_a_value_alone_comes_back(value: Any) -> None:
    message = struct_pb2.Struct.FromString(struct.encode({"": value})).fields[""]
    assert same(decode_value(message.SerializeToString()), plain(message))


def wire_values(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Values as no encoder writes them: repeated, unknown, out of order."""
    structs = st.lists(
        st.one_of(
            st.tuples(st.sampled_from("ab"), inner).map(lambda pair: blob(1, text(1, pair[0]) + blob(2, pair[1]))),
            st.tuples(st.sampled_from("ab"), inner).map(lambda pair: blob(1, blob(2, pair[1]) + text(1, pair[0]))),
            st.tuples(inner, inner).map(lambda pair: blob(1, blob(2, pair[0]) + blob(2, pair[1]))),
            st.sampled_from([b"", blob(1, b""), integer(1, 5), text(9, "x")]),
        ),
        max_size=3,
    ).map(b"".join)
    lists = st.lists(st.one_of(inner.map(lambda item: blob(1, item)), st.just(double(3, 1.0))), max_size=3).map(
        b"".join
    )
    field = st.one_of(
        structs.map(lambda data: blob(5, data)),
        lists.map(lambda data: blob(6, data)),
        st.sampled_from(
            [
                b"",
                integer(1, 0),
                integer(1, 7),
                double(2, 2.5),
                text(3, "s"),
                integer(4, 300),
                text(8, "u"),
                integer(3, 1),
            ]
        ),
    )
    return st.lists(field, max_size=3).map(b"".join)


odd_values = st.recursive(st.sampled_from([b"", double(2, 1.0), text(3, "é")]), wire_values, max_leaves=8)


@given(odd_values)
def test_fields_that_come_twice_are_merged_as_the_official_codec_does(data: bytes) -> None:
    assert same(decode_value(data), plain(struct_pb2.Value.FromString(data)))


@given(st.one_of(st.binary(max_size=30), st.tuples(odd_values, st.integers(0, 40)).map(lambda cut: cut[0][: cut[1]])))
@example(b"\x1a\x02\xff\xff")
@example(b"\x11\0\0")
@example(b"\x2a\x05\x0a\x00")
@example(b"\x2a\x02\x0a\x05\x0a\x01a\x12\x00")
@example(b"\x1a\x85")
def test_what_the_official_parser_refuses_is_refused(data: bytes) -> None:
    try:
        struct_pb2.Value.FromString(data)
    except DecodeError:
        with pytest.raises(MalformedError):
            decode_value(data)
    else:
        decode_value(data)


def test_an_entry_with_an_unknown_field_is_an_entry() -> None:
    assert struct.decode(blob(1, text(7, "x") + text(1, "a") + blob(2, text(3, "b")))) == {"a": "b"}


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1.0, 1),
        (-0.0, 0),
        (2.0**53, 2**53),
        (-(2.0**53), -(2**53)),
        (2.0**53 + 2, 2.0**53 + 2),
        (0.5, 0.5),
        (1e300, 1e300),
    ],
)
def test_a_whole_number_is_an_integer_while_that_is_exact(number: float, expected: float) -> None:
    found = decode_value(double(2, number))
    assert found == expected
    assert type(found) is type(expected)


def test_what_is_not_finite_is_read_but_not_written() -> None:
    assert decode_value(double(2, math.inf)) == math.inf
    assert math.isnan(decode_value(double(2, math.nan)))
    for number in (math.inf, -math.inf, math.nan, 10**400):
        with pytest.raises(struct.UnencodableError):
            struct.encode({"a": [number]})


@pytest.mark.parametrize("value", [{1: 2}, {"a": {1, 2}}, {"a": b"bytes"}, {"a": "\ud800"}, {"\ud800": 1}])
def test_what_is_not_json_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError, match=r"string|JSON"):
        struct.encode(value)


def nested(depth: int, value: Any) -> Any:
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def test_a_hundred_levels_are_enough() -> None:
    deep = {"a": nested(98, 1)}
    assert struct.decode(struct.encode(deep)) == deep
    with pytest.raises(struct.UnencodableError, match="deep"):
        struct.encode({"a": nested(100, 1)})
    data = b""
    for _ in range(1000):
        data = blob(1, blob(2, blob(5, data)))
    with pytest.raises(MalformedError, match="deep"):
        struct.decode(data)


def test_what_is_remembered_of_attributes_is_bounded_and_never_what_can_change() -> None:
    nested = struct.encode({"list": ["a"], "map": {"b": 1}})
    struct.decode(nested)["list"].append("spoilt")
    struct.decode(nested)["map"]["spoilt"] = True
    assert struct.decode(nested) == {"list": ["a"], "map": {"b": 1}}
    for number in range(10_000):
        assert struct.decode(struct.encode({"user": f"user-{number}"})) == {"user": f"user-{number}"}
    assert len(struct._known) <= struct._REMEMBERED
    struct.decode(struct.encode({"long": "x" * 100}))
    assert not any(len(entry) > struct._REMEMBERED_SIZE for entry in struct._known)


def test_attributes_that_always_differ_do_not_drive_out_those_that_repeat() -> None:
    struct._known.clear()
    struct._counts.clear()
    gold = struct.encode({"tier": "gold"})
    for number in range(10_000):
        struct.decode(gold + struct.encode({"user": f"user-{number}", "age": number, "score": number / 7}))
    assert [key for key, _ in struct._known.values()].count("tier") == 1
    assert len(struct._known) <= 1 + 3 * struct._REMEMBERED_VALUES
    assert sum(struct._counts.values()) == len(struct._known)


@pytest.mark.parametrize(
    "value",
    [
        b"",  # no kind
        b"\x1a\x02ab\x1a\x01c",  # two strings: the last one counts
        b"\x1a\x00",
        b"\x1a\x01",  # cut short
        b"\x1a\x05ab",
        b"\x1a\x01\xff",  # no UTF-8
        b"\x11" + b"\0" * 8,
        b"\x11" + b"\0" * 7,
        b"\x11" + b"\0" * 8 + b"\x20\x01",
        b"\x20\x01",
        b"\x20\x80\x01",
        b"\x1a\x80\x01" + b"x" * 128,
    ],
)
def test_a_flat_attribute_is_read_as_the_official_parser_reads_it(value: bytes) -> None:
    data = blob(1, blob(1, b"k") + blob(2, value))
    try:
        expected = struct_pb2.Struct.FromString(data)
    except DecodeError:
        with pytest.raises(MalformedError):
            struct.decode(data)
    else:
        held = expected.fields["k"]
        kind = held.WhichOneof("kind")
        assert struct.decode(data) == {"k": getattr(held, kind) if kind else None}


def test_a_list_can_hold_what_an_attribute_holds() -> None:
    """The bytes of an attribute that is remembered mean something else elsewhere."""
    entry = text(1, "tier") + blob(2, text(3, "gold"))
    assert struct.decode(blob(1, entry)) == {"tier": "gold"}
    assert decode_value(blob(6, blob(1, entry))) == plain(
        struct_pb2.Value.FromString(blob(6, blob(1, entry)))  # not a Value: unknown fields
    )


@pytest.mark.parametrize(
    "data",
    [
        blob(1, b"") * 200_000,
        blob(1, blob(2, b"\x20\x00" * 200_000)),
        blob(1, blob(2, blob(6, blob(1, b"") * 200_000))),
        blob(1, text(1, "k") * 200_000),
        b"\x13\x14" * 200_000,
        b"\x13" + b"\x08\x01" * 200_000 + b"\x14",
        b"\x10\x01" * 200_000,
    ],
    ids=["entries", "values", "items", "keys", "groups", "fields in a group", "unknown fields"],
)
def test_a_message_has_a_limited_number_of_values(data: bytes) -> None:
    with pytest.raises(MalformedError, match=r"at most 10000 values"):
        struct.decode(data)


def test_as_many_values_as_a_context_may_have_are_read() -> None:
    assert len(struct.decode(struct.encode({"list": list(range(9000))}))["list"]) == 9000


def test_nested_values_are_not_hashed_once_for_each_level() -> None:
    """A large leaf is looked at once, however deep it is."""

    class Counted(bytes):
        copied = 0

        def __getitem__(self, key: Any) -> Any:
            found = super().__getitem__(key)
            if isinstance(found, bytes):
                Counted.copied += len(found)
            return found

    value: Any = "x" * 100_000
    for _ in range(40):
        value = {"k": value}
    data = Counted(struct.encode(value))
    struct.decode(data)
    assert Counted.copied < 2 * len(data)
