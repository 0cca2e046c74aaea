"""Which protocol, which method, and what is neither."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.echo import HANDLER, METHODS, post, reply
from wigwag.wire.http import Reply, Request, Stream
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpcs.dispatch import canonical, rpc_handler

ENVELOPED = [
    base + suffix
    for base in (b"application/grpc", b"application/grpc-web", b"application/grpc-web-text")
    for suffix in (b"", b"+proto", b"+json")
]
UNARY = [*ENVELOPED, b"application/json", b"application/proto"]
STREAMS = [*ENVELOPED, b"application/connect+json", b"application/connect+proto"]


@pytest.mark.parametrize("content_type", sorted({*UNARY, *STREAMS}))
def test_only_post_calls_a_method(content_type: bytes) -> None:
    for verb in (b"GET", b"DELETE", b"PUT"):
        request = Request(verb, b"/t.T/Refuse", b"", ((b"content-type", content_type),))
        answer = reply(request)
        assert answer.status == 405
        assert answer.headers == ((b"allow", b"POST"),)
    assert reply(Request(b"DELETE", b"/t.T/Echo")).headers == ((b"allow", b"GET, POST"),)


@pytest.mark.parametrize(
    ("method", "content_type"),
    [
        (b"Echo", b"application/foo"),
        (b"Echo", b""),
        (b"Echo", b"application/grpc+foo"),
        (b"Echo", b"application/json; charset=latin-1"),
        (b"Echo", b"application/connect+json"),
        (b"Count", b"application/json"),
    ],
)
def test_an_unknown_content_type_is_answered_with_the_known(method: bytes, content_type: bytes) -> None:
    answer = reply(post(method, content_type))
    assert answer.status == 415
    accepted = dict(answer.headers)[b"accept-post"].split(b", ")
    assert set(UNARY if method == b"Echo" else STREAMS) <= set(accepted)


def test_a_request_without_content_type_is_no_call() -> None:
    assert reply(Request(b"POST", b"/t.T/Echo")).status == 415


def test_an_unknown_path_is_unimplemented_in_every_protocol() -> None:
    grpc = reply(post(b"Nothing", b"application/grpc"))
    assert dict(grpc.headers)[b"grpc-status"] == b"12"
    assert grpc.status == 200
    assert b"grpc-status: 12\r\n" in reply(post(b"Nothing", b"application/grpc-web")).body
    connect = reply(post(b"Nothing", b"application/json"))
    assert connect.status == 404
    assert json.loads(connect.body)["code"] == "unimplemented"
    stream = reply(post(b"Nothing", b"application/connect+json"))
    assert json.loads(stream.body[5:])["error"]["code"] == "unimplemented"
    assert reply(Request(b"GET", b"/healthz")).status == 404


def test_what_is_no_rpc_goes_elsewhere() -> None:
    handler = rpc_handler(METHODS, WireLimits(), otherwise=lambda request: Reply(299, (), request.path))
    assert reply(Request(b"GET", b"/healthz"), handler).body == b"/healthz"
    assert reply(Request(b"POST", b"/ofrep", headers=((b"content-type", b"application/json"),)), handler).status == 299
    assert reply(post(b"Echo", b"application/json", b"a"), handler).status == 200
    assert dict(reply(post(b"Nothing", b"application/grpc"), handler).headers)[b"grpc-status"] == b"12"


def test_what_is_awaited_elsewhere_is_awaited() -> None:
    async def later(request: Request) -> Reply:
        return Reply(299)

    assert reply(Request(b"GET", b"/"), rpc_handler(METHODS, WireLimits(), later)).status == 299


def test_the_first_of_repeated_headers_counts() -> None:
    request = Request(
        b"POST",
        b"/t.T/Echo",
        b"",
        ((b"content-type", b"application/json"), (b"content-type", b"application/proto")),
        b"a",
    )
    assert reply(request).body == b"json:a"


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (b"application/json", b"application/json"),
        (b"APPLICATION/Json ; Charset=UTF-8", b"application/json"),
        (b"application/json;", b"application/json"),
        (b"application/json; charset=latin-1", b"application/json; charset=latin-1"),
    ],
)
def test_content_types_are_spelt_in_many_ways(content_type: bytes, expected: bytes) -> None:
    assert canonical(content_type) == expected


headers = st.lists(
    st.tuples(
        st.sampled_from(
            [b"grpc-encoding", b"grpc-timeout", b"connect-timeout-ms", b"content-encoding", b"grpc-accept-encoding"]
        ),
        st.one_of(st.sampled_from([b"gzip", b"identity", b"1S", b"10"]), st.binary(max_size=8)),
    ),
    max_size=4,
).map(tuple)


@given(
    st.sampled_from([b"POST", b"GET", b"PATCH"]),
    st.sampled_from([b"Echo", b"Refuse", b"Count", b"Large", b"Nothing"]),
    st.one_of(st.sampled_from(sorted({*UNARY, *STREAMS})), st.binary(max_size=20)),
    headers,
    st.binary(max_size=40),
)
def test_no_request_is_too_strange_for_an_answer(
    verb: bytes, method: bytes, content_type: bytes, extra: tuple[tuple[bytes, bytes], ...], body: bytes
) -> None:
    request = Request(verb, b"/t.T/" + method, body, ((b"content-type", content_type), *extra), body)
    answer = HANDLER(request)
    assert isinstance(answer, Reply | Stream)
    assert 200 <= answer.status < 600
