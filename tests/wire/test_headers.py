"""Header compression, beside the `hpack` library."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

from wigwag.wire.h2.frames import ErrorCode, Http2ConnectionError
from wigwag.wire.h2.heads import Head, request_head
from wigwag.wire.h2.hpack import HeaderDecoder
from wigwag.wire.h2.hpack import encode_block as block
from wigwag.wire.limits import WireLimits

LIMITS = WireLimits()
PSEUDO = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"h")]
names = st.from_regex(rb"\A[a-z][a-z0-9-]{0,20}\Z").filter(
    lambda name: (
        name not in (b"connection", b"te", b"host", b"upgrade", b"keep-alive", b"content-length", b"transfer-encoding")
    )
)
values = st.from_regex(rb"\A[!-~]{0,60}\Z")
lists = st.lists(st.lists(st.tuples(names, values), max_size=12), min_size=1, max_size=12)


def decode(*blocks: bytes) -> list[Head]:
    decoder = HeaderDecoder(LIMITS)
    return [decoder.decode(each) for each in blocks]


@given(lists, st.booleans(), st.lists(st.sampled_from([0, 100, 1000, 4096]), max_size=12))
@settings(deadline=None)
def test_blocks_mean_what_another_encoder_said(
    blocks: list[list[tuple[bytes, bytes]]], huffman: bool, sizes: list[int]
) -> None:
    encoder, decoder = hpack.Encoder(), HeaderDecoder(LIMITS)
    for at, fields in enumerate(blocks + blocks):
        if at < len(sizes):
            encoder.header_table_size = sizes[at]
        head = decoder.decode(encoder.encode(PSEUDO + fields, huffman=huffman))
        assert head.status == 0
        assert head.headers == ((b"host", b"h"), *fields)


@given(st.lists(st.tuples(names, values), max_size=12), st.sampled_from([0, 200, 404, 418]))
def test_our_blocks_are_read_by_another_decoder(fields: list[tuple[bytes, bytes]], status: int) -> None:
    decoder = hpack.Decoder()
    expected = ([(b":status", b"%d" % status)] if status else []) + fields
    for _ in range(2):
        assert decoder.decode(block(status, tuple(fields)), raw=True) == expected
    assert not decoder.header_table.dynamic_entries


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5))
def test_garbage_is_either_a_head_or_an_error(blocks: list[bytes]) -> None:
    decoder = HeaderDecoder(LIMITS)
    for each in blocks:
        try:
            decoder.decode(each)
        except Http2ConnectionError as error:
            assert error.code is ErrorCode.COMPRESSION_ERROR
        assert decoder._size <= 4096
        assert decoder._size == sum(decoder._sizes)


def test_a_block_is_remembered_until_the_table_changes() -> None:
    decoder, encoder = HeaderDecoder(LIMITS), hpack.Encoder()
    encoder.encode([*PSEUDO, (b"a", b"1")])
    decoder.decode(hpack.Encoder().encode([*PSEUDO, (b"a", b"1")]))
    same = encoder.encode([*PSEUDO, (b"a", b"1")])
    first = decoder.decode(same)
    assert decoder.decode(same) is first
    decoder.decode(encoder.encode([(b"b", b"2")]))
    again = decoder.decode(same)
    assert again is not first
    assert again.headers != first.headers


def test_no_more_blocks_are_remembered_than_fit() -> None:
    decoder = HeaderDecoder(LIMITS)
    for n in range(1000):
        decoder.decode(b"\0\x01a\x04%04d" % n)
    assert len(decoder._known) <= 64


BAD = [
    [(b"Upper", b"x")],
    [(b"a b", b"x")],
    [(b"", b"x")],
    [(b"a", b"x\r\ny: z")],
    [(b"a", b"x\0")],
    [(b":scheme", b"http ")],
    [(b"connection", b"close")],
    [(b"te", b"gzip")],
    [(b"content-length", b"1"), (b"content-length", b"2")],
    [(b"content-length", b"-1")],
    [(b"content-length", b"1" * 30)],
    [(b"host", b"a"), (b"host", b"b")],
    [(b"x", b"y"), (b":path", b"/")],
    [(b":unknown", b"y")],
    [(b":status", b"200")],
]


@pytest.mark.parametrize("fields", BAD, ids=repr)
def test_a_bad_field_makes_its_block_malformed_and_every_later_use_of_it_too(
    fields: list[tuple[bytes, bytes]],
) -> None:
    encoder = hpack.Encoder()
    first, second = encoder.encode(PSEUDO + fields), encoder.encode(PSEUDO + fields)
    good = encoder.encode([*PSEUDO, (b"fine", b"yes")])
    bad, worse, fine = decode(first, second, good)
    assert (bad.status, worse.status, fine.status) == (400, 400, 0)
    assert fine.headers == ((b"host", b"h"), (b"fine", b"yes"))


@pytest.mark.parametrize("missing", [b":method", b":scheme", b":path"])
def test_a_request_needs_its_pseudo_headers(missing: bytes) -> None:
    fields = [field for field in PSEUDO if field[0] != missing]
    assert decode(hpack.Encoder().encode(fields))[0].status == 400


def test_the_asterisk_is_a_path_and_anything_else_is_not() -> None:
    for path, status in ((b"*", 0), (b"a", 400), (b"http://a/", 400), (b"", 400)):
        fields = [(b":method", b"OPTIONS"), (b":scheme", b"http"), (b":path", path)]
        assert decode(hpack.Encoder().encode(fields))[0].status == status


@pytest.mark.parametrize(
    "data",
    [b"\x80", b"\xff\xff\xff\xff\xff\xff\x01", b"\xc0", b"\x3f\xe2\x1f", b"\x00\x01a", b"\x82\x20", b"\x00\x85abc"],
)
def test_what_leaves_the_tables_out_of_step_ends_the_connection(data: bytes) -> None:
    with pytest.raises(Http2ConnectionError) as caught:
        HeaderDecoder(LIMITS).decode(data)
    assert caught.value.code is ErrorCode.COMPRESSION_ERROR


def over_limit(rest: bytes) -> bytes:
    """A block with as many fields as the limit allows, and then the rest."""
    return hpack.Encoder().encode(PSEUDO) + b"\x90" * LIMITS.header_count + rest


def test_fields_beyond_the_limit_are_not_decoded() -> None:
    """What is no Huffman code at all would end the connection if it were decoded."""
    assert decode(over_limit(b"\0\x01a\x84\xff\xff\xff\xff" * 1000))[0].status == 431


def test_the_table_stays_in_step_beyond_the_limit() -> None:
    entry = b"\x40\x01x\x01y"
    after = hpack.Encoder().encode(PSEUDO) + b"\xc0"
    over, next_one = decode(over_limit(b"\0\x01a\x01b\x8f" + entry), after)
    assert over.status == 431
    assert (b"x", b"y") in next_one.headers


@pytest.mark.parametrize("rest", [b"\x90" * 100_000, b"\0\x01a\x01b" * 50_000], ids=["references", "literals"])
def test_a_block_without_end_ends_the_connection(rest: bytes) -> None:
    with pytest.raises(Http2ConnectionError) as failed:
        decode(over_limit(rest))
    assert failed.value.code == ErrorCode.ENHANCE_YOUR_CALM


def test_too_much_huffman_code_ends_the_connection_before_it_is_decoded() -> None:
    """What is no Huffman code would be a fault of compression if it were decoded."""
    good, broken = b"\x1f" * 1000, b"\xff" * 1000
    fields = [b"\0\x01a\xff\xe9\x06" + each for each in [good] * 32 + [broken] * 32]
    with pytest.raises(Http2ConnectionError) as failed:
        HeaderDecoder(WireLimits(header_bytes=1 << 20)).decode(hpack.Encoder().encode(PSEUDO) + b"".join(fields))
    assert failed.value.code == ErrorCode.ENHANCE_YOUR_CALM


def test_each_field_counts_for_32_octets_more_than_its_text() -> None:
    fields = [*PSEUDO, *((b"a", b"b") for _ in range(100))]
    limits = WireLimits(header_bytes=3000)
    assert HeaderDecoder(limits).decode(hpack.Encoder().encode(fields)).status == 431
    assert HeaderDecoder(limits).decode(hpack.Encoder().encode(fields[:80])).status == 0


CALL = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/s/M"), (b":authority", b"h"), (b"te", b"trailers")]
TIMEOUTS = st.lists(st.sampled_from([b"19999987u", b"20S", b"5m", b"", b"x" * 900]), max_size=2)


@settings(max_examples=200)
@given(st.lists(st.tuples(TIMEOUTS, st.sampled_from([b"a", b"b"]), st.booleans()), min_size=2, max_size=12))
def test_a_head_that_differs_in_its_timeout_only_is_what_it_would_be_if_it_were_the_first(
    calls: list[tuple[list[bytes], bytes, bool]],
) -> None:
    encoder, decoder, limits = hpack.Encoder(), HeaderDecoder(WireLimits()), WireLimits()
    for timeouts, agent, last in calls:
        given = [(b"grpc-timeout", value) for value in timeouts]
        rest = [(b"user-agent", agent)]
        fields = [*CALL, *rest, *given] if last else [*CALL, *given, *rest]
        known, fresh = decoder.decode(encoder.encode(fields)), request_head(fields, limits, 0)
        assert astuple(known) == astuple(fresh)


def test_a_head_is_too_large_by_its_timeout_too() -> None:
    encoder, decoder = hpack.Encoder(), HeaderDecoder(WireLimits(header_bytes=400))
    sizes = (9, 9, 300, 9)
    heads = [decoder.decode(encoder.encode([*CALL, (b"grpc-timeout", b"1" * size)])) for size in sizes]
    assert [head.status for head in heads] == [0, 0, 431, 0]


def test_a_name_that_came_with_a_bad_value_may_be_used_again() -> None:
    encoder, decoder = hpack.Encoder(), HeaderDecoder(LIMITS)
    values = (b"bad\nvalue", b"good", b"better")
    heads = [decoder.decode(encoder.encode([*PSEUDO, (b"x-long-name", value)])) for value in values]
    assert [head.status for head in heads] == [400, 0, 0]
    assert heads[2].fields[b"x-long-name"] == b"better"
    assert decoder._size == encoder.header_table._current_size
