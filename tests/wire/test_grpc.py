"""gRPC: envelopes and trailers."""

from __future__ import annotations

import asyncio
import gzip
from base64 import b64decode
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.echo import DETAIL, HANDLER, LIMIT, post, reply, streamed
from wigwag.wire.http import Stream
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.rpcs.envelope import unwrap, wrap
from wigwag.wire.rpcs.grpc import percent_encode, seconds
from wigwag.wire.rpcs.protobuf import fields

GRPC = b"application/grpc"


@pytest.mark.parametrize(
    ("content_type", "codec"),
    [(GRPC, b"proto:"), (GRPC + b"+proto", b"proto:"), (GRPC + b"+json", b"json:"), (b"Application/GRPC", b"proto:")],
)
@pytest.mark.parametrize("method", [b"Echo", b"Later"])
def test_a_message_goes_in_and_one_comes_out(method: bytes, content_type: bytes, codec: bytes) -> None:
    answer = reply(post(method, content_type, wrap(b"hello")))
    assert answer.status == 200
    assert answer.headers == ((b"content-type", content_type.lower()), (b"grpc-accept-encoding", b"gzip"))
    assert answer.body == wrap(codec + b"hello")
    assert answer.trailers == ((b"grpc-status", b"0"),)


def test_a_success_has_the_same_headers_and_trailers_each_time() -> None:
    first, second = (reply(post(b"Echo", GRPC, wrap(body))) for body in (b"a", b"b"))
    assert first.headers is second.headers
    assert first.trailers is second.trailers


def test_an_error_of_a_handler_has_headers_before_its_trailers_the_same_ones_each_time() -> None:
    first, second = (reply(post(b"Refuse", GRPC, wrap(b""))) for _ in range(2))
    success = reply(post(b"Echo", GRPC, wrap(b"")))
    assert (first.status, first.body) == (200, b"")
    assert first.headers is second.headers is success.headers
    assert first.trailers == ((b"grpc-status", b"5"), (b"grpc-message", b"no flag 100%25 s%C3%BBr"))
    assert first.trailers is second.trailers


def test_a_call_that_was_not_served_may_be_retried_so_it_gets_trailers_only() -> None:
    for answer, code in (
        (reply(post(b"Busy", GRPC, wrap(b""))), b"14"),
        (reply(post(b"Nothing", GRPC, wrap(b""))), b"12"),
    ):
        assert answer.trailers is None
        assert dict(answer.headers)[b"grpc-status"] == code


def test_an_error_carries_headers_details_and_metadata() -> None:
    answer = reply(post(b"Everything", GRPC, wrap(b"")))
    assert (b"x-head", b"h") in answer.headers
    trailers = dict(answer.trailers or ())
    assert trailers[b"grpc-status"] == b"10"
    assert trailers[b"x-meta"] == b"m"
    assert trailers[b"x-trail"] == b"t"
    status = fields(b64decode(trailers[b"grpc-status-details-bin"] + b"=="))
    assert [value for _, _, value in status[:2]] == [10, b"no"]
    assert isinstance(status[2][2], bytes)
    assert fields(status[2][2]) == [(1, 2, b"type.googleapis.com/" + DETAIL[0].encode()), (2, 2, DETAIL[1])]


def test_a_handler_may_add_headers_and_trailers() -> None:
    answer = reply(post(b"Decorated", GRPC, wrap(b"")))
    assert answer.headers[-1] == (b"x-head", b"h")
    assert answer.trailers == ((b"grpc-status", b"0"), (b"x-trail", b"t"))


def test_a_crash_is_an_internal_error_and_the_log_does_not_quote_the_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = reply(post(b"Crash", GRPC, wrap(b"secret")))
    assert answer.trailers == ((b"grpc-status", b"13"), (b"grpc-message", b"internal error"))
    assert "/t.T/Crash raised KeyError" in caplog.text
    assert "in crash" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"", {}, Code.UNIMPLEMENTED),
        (wrap(b"a") * 2, {}, Code.UNIMPLEMENTED),
        (b"\0\0", {}, Code.INVALID_ARGUMENT),
        (wrap(bytes(LIMIT + 1)), {}, Code.RESOURCE_EXHAUSTED),
        (wrap(b"a", 1), {}, Code.INTERNAL),
        (wrap(b"a"), {"grpc_encoding": b"br"}, Code.UNIMPLEMENTED),
        (wrap(b"a"), {"grpc_timeout": b"1x"}, Code.INVALID_ARGUMENT),
    ],
)
@pytest.mark.parametrize("method", [b"Echo", b"Count"])
def test_a_request_that_cannot_be_read_fails_with_headers_first(
    method: bytes, body: bytes, headers: dict[str, bytes], code: Code
) -> None:
    answer = reply(post(method, GRPC, body, **headers))
    assert dict(answer.headers) == {b"content-type": GRPC, b"grpc-accept-encoding": b"gzip"}
    assert dict(answer.trailers or ())[b"grpc-status"] == b"%d" % code


def test_compression_both_ways() -> None:
    body = wrap(gzip.compress(b"a" * 3000, mtime=0), 1)
    answer = reply(post(b"Echo", GRPC, body, grpc_encoding=b"gzip", grpc_accept_encoding=b"identity, gzip"))
    assert (b"grpc-encoding", b"gzip") in answer.headers
    assert answer.body[0] == 1
    assert len(answer.body) < 200
    assert unwrap(answer.body, b"gzip", LIMIT) == b"proto:" + b"a" * 3000


def test_a_large_answer_stays_as_it_is_for_a_client_that_takes_no_gzip() -> None:
    answer = reply(post(b"Echo", GRPC, wrap(b"a" * 3000), grpc_accept_encoding=b"identity"))
    assert b"grpc-encoding" not in dict(answer.headers)
    assert answer.body == wrap(b"proto:" + b"a" * 3000)


def test_the_deadline_cuts_what_is_awaited() -> None:
    answer = reply(post(b"Never", GRPC, wrap(b""), grpc_timeout=b"1m"))
    assert dict(answer.trailers or ())[b"grpc-status"] == b"4"


def test_a_deadline_may_be_far_away() -> None:
    assert reply(post(b"Later", GRPC, wrap(b""), grpc_timeout=b"99999999H")).body == wrap(b"proto:")


def test_a_deadline_of_zero_has_passed() -> None:
    assert dict(reply(post(b"Echo", GRPC, wrap(b""), grpc_timeout=b"0n")).trailers or ())[b"grpc-status"] == b"4"


def test_a_timeout_without_text_is_none() -> None:
    assert reply(post(b"Echo", GRPC, wrap(b""), grpc_timeout=b"")).body == wrap(b"proto:")


def test_a_stream_has_headers_messages_and_trailers() -> None:
    stream, chunks, trailers = streamed(post(b"Count", GRPC, wrap(b"3")))
    assert stream.status == 200
    assert stream.headers[-1] == (b"x-head", b"h")
    assert chunks == [wrap(b"0"), wrap(b"1"), wrap(b"2")]
    assert trailers == ((b"grpc-status", b"0"), (b"x-trail", b"t"))


@pytest.mark.parametrize(
    ("method", "code"), [(b"Lose", Code.DATA_LOSS), (b"Break", Code.INTERNAL), (b"Hang", Code.DEADLINE_EXCEEDED)]
)
def test_a_stream_that_fails_keeps_what_it_sent(method: bytes, code: Code) -> None:
    _, chunks, trailers = streamed(post(method, GRPC, wrap(b""), grpc_timeout=b"20m"))
    assert chunks == [wrap(b"0")]
    assert trailers[0] == (b"grpc-status", b"%d" % code)


def test_a_stream_compresses_what_is_large() -> None:
    stream, chunks, _ = streamed(post(b"Large", GRPC, wrap(b""), grpc_accept_encoding=b"gzip"))
    assert (b"grpc-encoding", b"gzip") in stream.headers
    assert [chunk[0] for chunk in chunks] == [1, 0]
    assert unwrap(chunks[0], b"gzip", LIMIT) == b"a" * 2000


def test_a_stream_handler_that_fails_at_once_has_headers_before_its_trailers() -> None:
    answer = reply(post(b"Shut", GRPC, wrap(b"")))
    assert answer.trailers == ((b"grpc-status", b"7"), (b"grpc-message", b"shut"))


@pytest.mark.parametrize("timeout", [{}, {"grpc_timeout": b"1H"}])
def test_closing_a_stream_closes_its_handler(timeout: dict[str, bytes]) -> None:
    async def run() -> list[bytes]:
        answer = HANDLER(post(b"Hang", GRPC, wrap(b""), **timeout))
        assert isinstance(answer, Stream)
        first = await anext(answer.chunks)
        waiting = asyncio.ensure_future(anext(answer.chunks))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await answer.chunks.aclose()  # type: ignore[attr-defined]
        return [first]

    assert asyncio.run(run()) == [wrap(b"0")]


@given(st.text())
def test_a_message_is_printable_ascii_and_comes_back(message: str) -> None:
    encoded = percent_encode(message)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert unquote(encoded.decode()) == message


def test_a_message_that_is_no_text_is_mended() -> None:
    assert percent_encode("a\ud800") == b"a?"


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [
        (b"1H", 3600),
        (b"2M", 120),
        (b"3S", 3),
        (b"4m", 0.004),
        (b"5u", 5e-6),
        (b"6n", 6e-9),
        (b"99999999H", 359999996400),
    ],
)
def test_timeouts(timeout: bytes, expected: float) -> None:
    assert seconds(timeout) == pytest.approx(expected)


@pytest.mark.parametrize("timeout", [b"", b"1", b"S", b"-1S", b"+1S", b"1.5S", b"123456789S", b"1 S", b"1s"])
def test_timeouts_that_are_none(timeout: bytes) -> None:
    with pytest.raises(RpcError, match="grpc-timeout"):
        seconds(timeout)
