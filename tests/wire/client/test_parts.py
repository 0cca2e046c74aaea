"""The client's parts that need no connection: answers, bodies, URLs and addresses, under anything that can come."""

from __future__ import annotations

import gzip
import zlib
from ipaddress import IPv4Address, IPv6Address
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.errors import UsageError, WigwagError
from wigwag.wire.client.addresses import Address, in_turns, link_local
from wigwag.wire.client.decode import PIECE, BodyDecoder
from wigwag.wire.client.errors import BrokenError, FetchError, OversizeError
from wigwag.wire.client.url import parse_url
from wigwag.wire.h1.client import ResponseLimits, ResponseParser

SIZED = b"HTTP/1.1 200 OK\r\nETag: x\r\nContent-Length: 10\r\n\r\n0123456789"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n0123\r\n6;a=b\r\n456789\r\n0\r\nX: y\r\n\r\n"


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges) if start < end]


@given(st.sampled_from([SIZED, CHUNKED]), st.lists(st.integers(0, 200), max_size=20))
def test_an_answer_is_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    answer = ResponseParser("h", ResponseLimits())
    body = b"".join(piece for part in split(data, cuts) for piece in answer.feed(part))
    assert (answer.status, body, answer.done, answer.keep) == (200, b"0123456789", True, True)


@given(st.sampled_from([SIZED, CHUNKED]), st.integers(0, 200))
def test_an_answer_that_breaks_off_is_never_whole(data: bytes, cut: int) -> None:
    part = data[: cut % len(data)]
    answer = ResponseParser("h", ResponseLimits())
    if part:
        answer.feed(part)
    assert not answer.done
    with pytest.raises(BrokenError, match="closed before the"):
        answer.end()


TRAILED = b"4\r\n0123\r\n0\r\nETag: y\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nETag: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@given(st.lists(st.integers(0, 200), max_size=5))
def test_what_comes_after_the_body_says_nothing_about_it(cuts: list[int]) -> None:
    answer = ResponseParser("h", ResponseLimits(head_fields=2))
    body = b"".join(piece for part in split(HEAD + TRAILED, cuts) for piece in answer.feed(part))
    assert (body, answer.done, answer.keep) == (b"0123", True, True)
    assert answer.fields == [("etag", "x"), ("transfer-encoding", "chunked")]


@pytest.mark.parametrize("size", [1, 1000, 1 << 16, 1 << 20])
@pytest.mark.parametrize("early", [b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"], ids=["plain", "hints"])
def test_a_head_may_be_as_large_as_the_limit_and_no_larger_however_it_is_cut(size: int, early: bytes) -> None:
    def fed(length: int) -> int:
        rest = b"Content-Length: 5\r\n\r\n"
        start = early + b"HTTP/1.1 200 OK\r\nX: "
        head = start + b"x" * (length - len(start) - len(rest) - 2) + b"\r\n" + rest
        assert len(head) == length
        answer = ResponseParser("h", ResponseLimits(head_bytes=3000))
        data = head + b"12345"
        for at in range(0, len(data), size):
            answer.feed(data[at : at + size])
        return answer.status

    assert fed(3000) == 200
    for length in (3001, 3005, 6000, 70_000):
        with pytest.raises(OversizeError, match="the head is larger than 3000 bytes"):
            fed(length)


@given(st.binary(max_size=400) | st.binary(max_size=300).map(lambda noise: b"HTTP/1.1 200 OK\r\n" + noise))
def test_noise_is_an_error_of_ours_or_an_answer(noise: bytes) -> None:
    answer = ResponseParser("h", ResponseLimits(body_bytes=50))
    try:
        answer.feed(noise)
        answer.end()
    except FetchError:
        return
    assert 200 <= answer.status <= 999


@given(st.binary(max_size=300_000), st.sampled_from(["gzip", "deflate", "raw"]), st.lists(st.integers(0, 10**6)))
def test_what_was_compressed_comes_back_in_pieces_of_a_bounded_size(
    data: bytes, encoding: str, cuts: list[int]
) -> None:
    packed = gzip.compress(data) if encoding == "gzip" else zlib.compress(data)
    packed = packed[2:-4] if encoding == "raw" else packed
    if encoding == "raw" and packed[0] & 15 == 8:
        return  # bare deflate that looks wrapped: nobody can tell
    unpack = BodyDecoder("gzip" if encoding == "gzip" else "deflate")
    pieces = [piece for part in split(packed, cuts) for piece in unpack.pieces(part)]
    unpack.end()
    assert b"".join(pieces) == data
    assert max(map(len, pieces), default=0) <= PIECE


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 10 * PIECE, 10 * PIECE + 257])
def test_nothing_is_left_behind_at_the_edge_of_a_piece(size: int) -> None:
    unpack = BodyDecoder("gzip")
    assert sum(map(len, unpack.pieces(gzip.compress(b"\0" * size)))) == size
    unpack.end()


@given(st.binary(min_size=1, max_size=300), st.sampled_from(["gzip", "deflate"]))
def test_noise_is_not_taken_for_a_compressed_body(noise: bytes, encoding: str) -> None:
    unpack = BodyDecoder(encoding)
    try:
        found = b"".join(unpack.pieces(noise))
        unpack.end()
    except ValueError:
        return
    assert found is not None


# URLs


@given(st.text(max_size=60) | st.text(max_size=40).map(lambda text: f"http://{text}"))
def test_any_text_is_a_url_or_a_usage_error(text: str) -> None:
    try:
        url = parse_url(text)
    except UsageError:
        return
    assert url.host
    url.target.encode("ascii")
    url.authority.encode("ascii")
    url.basic.encode("ascii")
    assert parse_url(f"{url.scheme}://{url.endpoint}{url.target}").origin == url.origin


@given(st.text(max_size=60))
def test_any_location_is_a_url_or_an_error_of_ours(location: str) -> None:
    try:
        url = parse_url("https://me:pw@flags.example/a/b?c").join(location)
    except WigwagError:
        return
    assert not url.userinfo


@pytest.mark.parametrize(
    ("location", "found"),
    [
        ("/x", "https://flags.example:444/x"),
        ("x", "https://flags.example:444/a/x"),
        ("//other.example/x", "https://other.example/x"),
        ("?d=e", "https://flags.example:444/a/b?d=***"),
        ("https://me:pw@other.example/x#y", "https://other.example/x"),
        ("https://b\u00fccher.example/\u00fc", "https://xn--bcher-kva.example/%C3%BC"),
    ],
)
def test_a_location_is_relative_to_where_it_came_from(location: str, found: str) -> None:
    assert str(parse_url("https://flags.example:444/a/b?c").join(location)) == found


# addresses


@given(st.ip_addresses(v=4))
def test_an_address_is_link_local_in_every_disguise(ip: IPv4Address) -> None:
    mapped = [f"::ffff:{ip}", f"64:ff9b::{ip}", f"::{ip}", str(IPv6Address((0x2002 << 112) | (int(ip) << 80)))]
    assert {link_local(str(IPv6Address(form))) for form in mapped} == {link_local(str(ip))}
    assert link_local(str(ip)) == ip.is_link_local


def test_the_families_take_turns_and_none_is_lost() -> None:
    four = [Address(2, (f"10.0.0.{number}", 80)) for number in range(3)]
    six = [Address(10, ("fe80::1%eth0", 80, 0, 2))]
    assert in_turns([*four, *six]) == [four[0], six[0], four[1], four[2]]
    assert six[0].ip == "fe80::1"
