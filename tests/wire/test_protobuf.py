"""The wire codec against the official one."""

from __future__ import annotations

from struct import unpack
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, wrappers_pb2
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from wigwag.wire.http import MOST_PARAMETERS, parsed
from wigwag.wire.rpc import Code
from wigwag.wire.rpcs import protobuf

INT64 = st.integers(-(2**63), 2**63 - 1)


def one(data: bytes) -> int | bytes:
    return protobuf.fields(data)[0][2]


@given(INT64)
def test_integers_are_those_of_the_official_codec(value: int) -> None:
    official = wrappers_pb2.Int64Value(value=value).SerializeToString()
    assert protobuf.integer(1, value) == (official or b"\x08\x00")
    held = one(protobuf.integer(1, value))
    assert isinstance(held, int)
    assert held == value % 2**64


@given(st.text(max_size=300))
def test_strings_are_those_of_the_official_codec(value: str) -> None:
    assert protobuf.text(1, value) == (wrappers_pb2.StringValue(value=value).SerializeToString() or b"\x0a\x00")
    held = one(protobuf.text(1, value))
    assert isinstance(held, bytes)
    assert protobuf.read_text(held) == value


@given(st.floats(allow_nan=False))
def test_doubles_are_those_of_the_official_codec(value: float) -> None:
    assert wrappers_pb2.DoubleValue.FromString(protobuf.double(1, value)).value == value
    held = one(protobuf.double(1, value))
    assert isinstance(held, bytes)
    assert unpack("<d", held) == (value,)


@given(st.floats(width=32, allow_nan=False))
def test_floats_are_read(value: float) -> None:
    data = wrappers_pb2.FloatValue(value=value).SerializeToString() or b"\x0d\0\0\0\0"
    held = one(data)
    assert isinstance(held, bytes)
    assert unpack("<f", held) == (value,)


@given(st.integers(1, 2**29 - 1), st.binary(max_size=200))
def test_field_numbers_of_any_size_come_back(number: int, value: bytes) -> None:
    data = protobuf.blob(number, value) + protobuf.boolean(number, True)
    assert protobuf.fields(data) == [(number, protobuf.BYTES, value), (number, protobuf.VARINT, 1)]


def accepted(parse: Any, data: bytes) -> bool:
    try:
        parse(data)
    except (DecodeError, ValueError):
        return False
    return True


@given(st.one_of(st.binary(max_size=30), st.lists(st.sampled_from(range(0, 256, 5)), max_size=12).map(bytes)))
@example(b"\x0b\x13\x14\x0c")
@example(b"\x0b\x14")
@example(b"\x0b")
@example(b"\x0c")
@example(b"\x07\x00")
@example(b"\x00\x01")
@example(b"\x80\x80\x80\x80\x80\x01\x00")
@example(b"\x08" + b"\xff" * 9 + b"\x01")
@example(b"\x08" + b"\xff" * 10 + b"\x01")
@example(b"\x0d\0\0\0")
@example(b"\x09\0\0\0\0\0\0\0")
@example(b"\x0a\xff\xff\xff\xff\x0f")
def test_what_the_official_parser_refuses_is_refused(data: bytes) -> None:
    assert accepted(protobuf.fields, data) == accepted(wrappers_pb2.BytesValue.FromString, data)


def test_groups_are_skipped() -> None:
    data = (
        b"\x0b" + protobuf.text(5, "inside") + b"\x13\x14" + protobuf.integer(6, 300) + b"\x0c" + protobuf.text(2, "a")
    )
    assert protobuf.fields(data) == [(2, protobuf.BYTES, b"a")]


def test_groups_in_groups_end_somewhere() -> None:
    with pytest.raises(protobuf.MalformedError, match="deep"):
        protobuf.fields(b"\x0b" * 100_000)


def test_a_malformed_message_is_the_clients_fault() -> None:
    with pytest.raises(ValueError, match="cut short") as caught:
        protobuf.fields(b"\x0a\x05a")
    assert isinstance(caught.value, protobuf.MalformedError)
    assert caught.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(protobuf.MalformedError, match="UTF-8"):
        protobuf.read_text(b"\xff")


def test_a_real_message_is_read() -> None:
    message = descriptor_pb2.FieldDescriptorProto(name="flag_key", number=7, proto3_optional=True)
    found = {number: value for number, _, value in protobuf.fields(message.SerializeToString())}
    assert found == {1: b"flag_key", 3: 7, 17: 1}


def test_a_message_of_very_many_fields_is_refused_before_it_costs_time() -> None:
    few = protobuf.text(1, "x") * protobuf.MOST_FIELDS
    assert len(protobuf.fields(few)) == protobuf.MOST_FIELDS
    with pytest.raises(protobuf.MalformedError, match="at most"):
        protobuf.fields(few + protobuf.text(1, "x"))


def test_groups_count_as_fields() -> None:
    with pytest.raises(protobuf.MalformedError):
        protobuf.fields(b"\x0b\x0c" * 20_000)


def test_a_query_has_a_limited_number_of_parameters() -> None:
    assert len(parsed(b"&".join(b"k%d=v" % n for n in range(5000)))) == MOST_PARAMETERS
