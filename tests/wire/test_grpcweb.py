"""gRPC-Web: trailers in the body, in bytes or base64."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest

from tests.wire.echo import post, reply, streamed
from wigwag.wire.rpc import RpcError
from wigwag.wire.rpcs.envelope import wrap
from wigwag.wire.rpcs.grpcweb import trailer_frame, unbase64

WEB = b"application/grpc-web"
TEXT = b"application/grpc-web-text"
OK = wrap(b"grpc-status: 0\r\n", 0x80)


@pytest.mark.parametrize(("suffix", "codec"), [(b"", b"proto:"), (b"+proto", b"proto:"), (b"+json", b"json:")])
@pytest.mark.parametrize("method", [b"Echo", b"Later"])
def test_the_trailers_are_the_last_envelope(method: bytes, suffix: bytes, codec: bytes) -> None:
    answer = reply(post(method, WEB + suffix, wrap(b"hello")))
    assert answer.status == 200
    assert answer.headers[0] == (b"content-type", WEB + suffix)
    assert answer.body == wrap(codec + b"hello") + OK
    assert answer.trailers is None


def test_text_is_base64_both_ways() -> None:
    answer = reply(post(b"Echo", TEXT, b64encode(wrap(b"hello"))))
    assert answer.headers[0] == (b"content-type", TEXT)
    assert b64decode(answer.body) == wrap(b"proto:hello") + OK


def test_an_error_is_an_envelope_too() -> None:
    answer = reply(post(b"Refuse", WEB, wrap(b"")))
    assert answer.headers == ((b"content-type", WEB), (b"grpc-accept-encoding", b"gzip"))
    assert answer.body == trailer_frame(((b"grpc-status", b"5"), (b"grpc-message", b"no flag 100%25 s%C3%BBr")))


def test_an_error_carries_headers_details_and_metadata() -> None:
    answer = reply(post(b"Everything", WEB, wrap(b"")))
    assert (b"x-head", b"h") in answer.headers
    assert b"grpc-status: 10\r\ngrpc-message: no\r\ngrpc-status-details-bin: " in answer.body
    assert b"x-meta: m\r\nx-trail: t\r\n" in answer.body


def test_a_stream_ends_with_its_trailers() -> None:
    stream, chunks, trailers = streamed(post(b"Count", WEB, wrap(b"2")))
    assert (b"x-head", b"h") in stream.headers
    assert chunks == [wrap(b"0"), wrap(b"1"), wrap(b"grpc-status: 0\r\nx-trail: t\r\n", 0x80)]
    assert trailers == ()


def test_a_stream_of_text_is_base64_chunk_by_chunk() -> None:
    _, chunks, _ = streamed(post(b"Lose", TEXT, b64encode(wrap(b""))))
    assert b64decode(chunks[0]) == wrap(b"0")
    assert b"grpc-status: 15\r\n" in b64decode(chunks[1])


@pytest.mark.parametrize("body", [b"\xff", b"A", b"A===", b"====", b"YQ==" * 1000, b"Y Q=="])
def test_what_is_not_base64_is_refused(body: bytes) -> None:
    with pytest.raises(RpcError, match="base64"):
        unbase64(body)
    assert b"grpc-status: 3" in b64decode(reply(post(b"Echo", TEXT, body)).body)


def test_a_trailer_cannot_break_its_line() -> None:
    assert trailer_frame(((b"x", b"a\r\nb"),)) == wrap(b"x: a  b\r\n", 0x80)
