"""Connect: unary by POST and GET, and streams."""

from __future__ import annotations

import gzip
import json
from base64 import urlsafe_b64encode
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.echo import HANDLER, LIMIT, METHODS, post, reply, streamed
from wigwag.wire.http import Request, parsed
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.rpcs.connect import unbase64
from wigwag.wire.rpcs.dispatch import rpc_handler
from wigwag.wire.rpcs.envelope import wrap

JSON = b"application/json"
STREAM = b"application/connect+json"


@pytest.mark.parametrize(
    ("content_type", "codec"),
    [
        (JSON, b"json:"),
        (b"application/json; charset=utf-8", b"json:"),
        (b"Application/JSON;charset=UTF-8", b"json:"),
        (b"application/proto", b"proto:"),
    ],
)
@pytest.mark.parametrize("method", [b"Echo", b"Later"])
def test_a_message_goes_in_and_one_comes_out(method: bytes, content_type: bytes, codec: bytes) -> None:
    answer = reply(post(method, content_type, b"hello"))
    assert answer.status == 200
    assert answer.headers[0] == (b"content-type", b"application/" + codec[:-1])
    assert answer.body == codec + b"hello"
    assert answer.trailers is None


def test_a_success_has_the_same_headers_each_time() -> None:
    first, second = (reply(post(b"Echo", JSON, body)) for body in (b"a", b"b"))
    assert first.headers is second.headers


@pytest.mark.parametrize("content_type", [JSON, b"application/proto"])
def test_an_error_is_json_with_its_http_status(content_type: bytes) -> None:
    answer = reply(post(b"Refuse", content_type))
    assert answer.status == 404
    assert answer.headers == ((b"content-type", JSON),)
    assert json.loads(answer.body) == {"code": "not_found", "message": "no flag 100% sûr"}


def test_an_error_carries_headers_details_and_metadata() -> None:
    answer = reply(post(b"Everything", JSON))
    assert answer.status == 409
    assert answer.headers[1:] == ((b"x-meta", b"m"), (b"x-head", b"h"), (b"trailer-x-trail", b"t"))
    assert json.loads(answer.body)["details"] == [{"type": "pkg.Why", "value": "CAE"}]


def test_trailers_are_headers_with_a_prefix() -> None:
    answer = reply(post(b"Decorated", JSON))
    assert answer.headers[-2:] == ((b"x-head", b"h"), (b"trailer-x-trail", b"t"))


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (bytes(LIMIT + 1), {}, Code.RESOURCE_EXHAUSTED),
        (gzip.compress(bytes(LIMIT + 1), mtime=0), {"content_encoding": b"gzip"}, Code.RESOURCE_EXHAUSTED),
        (b"not gzip", {"content_encoding": b"gzip"}, Code.INVALID_ARGUMENT),
        (b"", {"content_encoding": b"br"}, Code.UNIMPLEMENTED),
        (b"", {"connect_protocol_version": b"2"}, Code.INVALID_ARGUMENT),
        (b"", {"connect_timeout_ms": b"0"}, Code.DEADLINE_EXCEEDED),
        (b"", {"connect_timeout_ms": b"soon"}, Code.INVALID_ARGUMENT),
        (b"", {"connect_timeout_ms": b"12345678901"}, Code.INVALID_ARGUMENT),
    ],
)
def test_a_request_that_is_no_call_is_refused(body: bytes, headers: dict[str, bytes], code: Code) -> None:
    answer = reply(post(b"Echo", JSON, body, **headers))
    assert answer.status == code.http_status
    assert json.loads(answer.body)["code"] == code.connect_name


def test_unknown_compression_names_the_known() -> None:
    answer = reply(post(b"Echo", JSON, b"", content_encoding=b"br"))
    assert "supported are gzip and identity" in json.loads(answer.body)["message"]


def test_compression_both_ways() -> None:
    body = gzip.compress(b"a" * 3000, mtime=0)
    answer = reply(post(b"Echo", JSON, body, content_encoding=b"gzip", accept_encoding=b"gzip"))
    assert (b"content-encoding", b"gzip") in answer.headers
    assert gzip.decompress(answer.body) == b"json:" + b"a" * 3000


def test_the_deadline_cuts_what_is_awaited() -> None:
    answer = reply(post(b"Never", JSON, connect_timeout_ms=b"1"))
    assert answer.status == 504
    assert json.loads(answer.body)["code"] == "deadline_exceeded"


def get(query: bytes, method: bytes = b"Echo") -> Request:
    return Request(b"GET", b"/t.T/" + method, query)


@given(st.binary(max_size=60))
def test_a_safe_method_may_be_asked_by_get(message: bytes) -> None:
    for given_message in (
        b"message=" + quote_from_bytes(message, safe="").encode(),
        b"base64=1&message=" + urlsafe_b64encode(message).rstrip(b"="),
        b"base64=1&compression=gzip&message=" + urlsafe_b64encode(gzip.compress(message, mtime=0)),
    ):
        answer = HANDLER(get(b"connect=v1&encoding=proto&" + given_message))
        assert answer.body == b"proto:" + message  # type: ignore[union-attr]


def test_caches_keep_answers_to_get_apart() -> None:
    answer = reply(get(b"encoding=json&message=%7B%7D"))
    assert answer.headers[0] == (b"content-type", JSON)
    assert (b"vary", b"accept-encoding") in answer.headers


@pytest.mark.parametrize(
    ("query", "status"),
    [
        (b"encoding=json", 400),
        (b"encoding=json&message=a&connect=v2", 400),
        (b"encoding=json&message=a&compression=br", 501),
        (b"encoding=json&message=%C3&base64=1", 400),
        (b"encoding=json&message=" + b"a" * (LIMIT + 1), 429),
        (b"encoding=xml&message=a", 405),
        (b"", 405),
    ],
)
def test_a_query_that_is_no_call_is_refused(query: bytes, status: int) -> None:
    assert reply(get(query)).status == status


def test_other_methods_are_not_asked_by_get() -> None:
    answer = reply(get(b"encoding=json&message=a", b"Refuse"))
    assert answer.status == 405
    assert answer.headers == ((b"allow", b"POST"),)


def ending(chunk: bytes) -> Any:
    assert chunk[0] == 2
    return json.loads(chunk[5:])


def test_a_stream_ends_with_an_envelope() -> None:
    stream, chunks, trailers = streamed(post(b"Count", STREAM, wrap(b"2")))
    assert stream.status == 200
    assert stream.headers[0] == (b"content-type", STREAM)
    assert stream.headers[-1] == (b"x-head", b"h")
    assert chunks[:-1] == [wrap(b"0"), wrap(b"1")]
    assert ending(chunks[-1]) == {"metadata": {"x-trail": ["t"]}}
    assert trailers == ()


def test_a_stream_that_fails_says_so_at_its_end() -> None:
    _, chunks, _ = streamed(post(b"Lose", STREAM, wrap(b"")))
    error = {"code": "data_loss", "message": "lost", "details": [{"type": "pkg.Why", "value": "CAE"}]}
    assert ending(chunks[-1]) == {"error": error}


def test_the_deadline_cuts_a_stream() -> None:
    _, chunks, _ = streamed(post(b"Hang", STREAM, wrap(b""), connect_timeout_ms=b"20"))
    assert chunks[0] == wrap(b"0")
    assert ending(chunks[-1])["error"]["code"] == "deadline_exceeded"


def test_a_stream_that_cannot_begin_is_an_end_alone() -> None:
    for method, body, code in (
        (b"Shut", wrap(b""), "permission_denied"),
        (b"Count", b"", "unimplemented"),
        (b"Count", wrap(b"1") * 2, "unimplemented"),
    ):
        answer = reply(post(method, STREAM, body))
        assert answer.status == 200
        assert ending(answer.body)["error"]["code"] == code


def test_a_stream_compresses_what_is_large() -> None:
    stream, chunks, _ = streamed(post(b"Large", STREAM, wrap(b""), connect_accept_encoding=b"gzip"))
    assert (b"connect-content-encoding", b"gzip") in stream.headers
    assert [chunk[0] for chunk in chunks] == [1, 0, 2]


@given(st.binary(max_size=40))
def test_any_base64_is_bytes_or_an_error(value: bytes) -> None:
    try:
        unbase64(value)
    except RpcError as error:
        assert error.code is Code.INVALID_ARGUMENT


def test_a_query_may_be_anything() -> None:
    assert parsed(b"") == {b"": b""}
    assert parsed(b"a&b=1=2&c=%zz+") == {b"a": b"", b"b": b"1=2", b"c": b"%zz "}


def test_the_limit_is_the_listeners() -> None:
    small = rpc_handler(METHODS, WireLimits(body_bytes=3))
    assert reply(post(b"Echo", JSON, b"abc"), small).status == 200
    assert reply(post(b"Echo", JSON, b"abcd"), small).status == 429
