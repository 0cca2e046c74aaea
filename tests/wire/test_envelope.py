"""Five bytes and a message, and gzip that cannot explode."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.rpcs import envelope

LIMIT = 1000


@given(st.binary(max_size=LIMIT))
def test_what_was_wrapped_is_unwrapped(message: bytes) -> None:
    assert envelope.unwrap(envelope.wrap(message), None, LIMIT) == message
    packed = envelope.wrap(envelope.compress(message), envelope.COMPRESSED)
    assert envelope.unwrap(packed, b"gzip", LIMIT + 100) == message


@given(st.binary(max_size=40), st.sampled_from([None, b"gzip", b"identity"]))
def test_any_bytes_are_one_message_or_an_error(body: bytes, encoding: bytes | None) -> None:
    try:
        message = envelope.unwrap(body, encoding, 20)
    except RpcError as error:
        assert error.code in {Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED, Code.RESOURCE_EXHAUSTED, Code.INTERNAL}
    else:
        assert body[0] == envelope.COMPRESSED or body == envelope.wrap(message)


@pytest.mark.parametrize(
    ("body", "encoding", "code"),
    [
        (b"", None, Code.UNIMPLEMENTED),
        (b"\0\0\0", None, Code.INVALID_ARGUMENT),
        (b"\0\0\0\0\x05abc", None, Code.INVALID_ARGUMENT),
        (envelope.wrap(b"a") * 2, None, Code.UNIMPLEMENTED),
        (envelope.wrap(b"a", 2), None, Code.INVALID_ARGUMENT),
        (envelope.wrap(b"a", 0x80), None, Code.INVALID_ARGUMENT),
        (envelope.wrap(b"a" * (LIMIT + 1)), None, Code.RESOURCE_EXHAUSTED),
        (b"\0\xff\xff\xff\xffa", None, Code.RESOURCE_EXHAUSTED),
        (envelope.wrap(b"a", 1), None, Code.INTERNAL),
        (envelope.wrap(b"a", 1), b"identity", Code.INTERNAL),
        (envelope.wrap(b"a", 1), b"br", Code.UNIMPLEMENTED),
        (envelope.wrap(b"a", 1), b"gzip", Code.INVALID_ARGUMENT),
        (envelope.wrap(gzip.compress(b"a", mtime=0)[:-1], 1), b"gzip", Code.INVALID_ARGUMENT),
        (envelope.wrap(gzip.compress(b"a", mtime=0) * 2, 1), b"gzip", Code.INVALID_ARGUMENT),
        (envelope.wrap(gzip.compress(bytes(LIMIT + 1), mtime=0), 1), b"gzip", Code.RESOURCE_EXHAUSTED),
        (envelope.wrap(gzip.compress(bytes(900_000), mtime=0), 1), b"gzip", Code.RESOURCE_EXHAUSTED),
    ],
)
def test_a_body_that_is_not_one_message_is_refused(body: bytes, encoding: bytes | None, code: Code) -> None:
    with pytest.raises(RpcError) as caught:
        envelope.unwrap(body, encoding, LIMIT)
    assert caught.value.code is code


def test_a_message_may_be_as_large_as_the_limit() -> None:
    message = bytes(LIMIT)
    assert envelope.unwrap(envelope.wrap(message), None, LIMIT) == message
    assert envelope.unwrap(envelope.wrap(gzip.compress(message, mtime=0), 1), b"gzip", LIMIT) == message


def test_an_empty_message_needs_no_compression_to_be_compressed() -> None:
    assert envelope.unwrap(envelope.wrap(b"", 1), b"gzip", LIMIT) == b""


def test_only_large_messages_are_compressed() -> None:
    assert envelope.pack(b"a" * 100, gzip=True) == envelope.wrap(b"a" * 100)
    assert len(envelope.pack(b"a" * 5000, gzip=True)) < 200
    assert envelope.pack(b"a" * 5000, gzip=False) == envelope.wrap(b"a" * 5000)


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        (b"gzip", True),
        (b"identity,deflate,gzip", True),
        (b"br, GZIP;q=0.8", True),
        (b"gzip; q=0", False),
        (b"gzip;q=0.0", False),
        (b"gzip;q=1", True),
        (b"br", False),
        (b"", False),
        (None, False),
        (b"xgzip", False),
    ],
)
def test_what_a_client_accepts(accepted: bytes | None, expected: bool) -> None:
    assert envelope.accepts_gzip(accepted) is expected
