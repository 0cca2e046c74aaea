"""Streams both ways: requests that are handed over before their bodies are there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.echo import settled
from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.frames import ErrorCode, frame
from wigwag.wire.h2.hpack import HeaderEncoder
from wigwag.wire.h2.server import Http2
from wigwag.wire.http import Reply, Request, RequestBody, Stream
from wigwag.wire.limits import WireLimits
from wigwag.wire.peer import Peer
from wigwag.wire.rpc import Call, Method, RpcError
from wigwag.wire.rpcs.dispatch import early, rpc_handler
from wigwag.wire.rpcs.envelope import unwrap_stream, wrap

GRPC = b"application/grpc"


async def shout(call: Call, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for message in messages:
        yield message.upper()


METHODS = {b"/t.T/Shout": Method(bidi=shout), b"/t.T/Echo": Method(unary=lambda call: call.body)}
HANDLER = rpc_handler(METHODS, WireLimits(body_bytes=100))


def block(path: bytes) -> bytes:
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b"content-type", GRPC))
    return b"".join(b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value for name, value in fields)


def machine(limits: WireLimits = WireLimits(body_bytes=100)) -> Http2:  # noqa: B008
    link = Http2(limits, HeaderEncoder(), Peer(), 0.0, early=early(METHODS))
    link.receive(f.PREFACE + frame(f.SETTINGS, 0, 0), 0.0)
    return link


def data(payload: bytes, *, last: bool = False) -> bytes:
    return frame(f.DATA, f.END_STREAM if last else 0, 1, payload)


def test_a_request_both_ways_is_ready_with_its_headers_and_its_body_follows() -> None:
    async def main() -> list[bytes]:
        link = machine()
        link.receive(frame(f.HEADERS, f.END_HEADERS, 1, block(b"/t.T/Shout")), 0.0)
        (stream,) = link.ready
        assert stream.request.incoming is not None
        answer = await settled(HANDLER(stream.request))
        assert isinstance(answer, Stream)
        link.receive(data(wrap(b"one")[:3]) + data(wrap(b"one")[3:] + wrap(b"two")), 0.0)
        first, second = await anext(answer.chunks), await anext(answer.chunks)
        link.receive(data(wrap(b"three"), last=True), 0.0)
        return [first, second, *[chunk async for chunk in answer.chunks]]

    assert asyncio.run(main()) == [wrap(b"ONE"), wrap(b"TWO"), wrap(b"THREE")]


@pytest.mark.parametrize(("path", "ready"), [(b"/t.T/Echo", 0), (b"/t.T/Unknown", 1)])
def test_a_unary_request_waits_for_its_body_and_an_unknown_one_does_not(path: bytes, ready: int) -> None:
    link = machine()
    link.receive(frame(f.HEADERS, f.END_HEADERS, 1, block(path)), 0.0)
    assert len(link.ready) == ready


def test_a_client_that_sends_faster_than_its_handler_reads_is_cut_off() -> None:
    async def main() -> bytes:
        link = machine()
        link.receive(frame(f.HEADERS, f.END_HEADERS, 1, block(b"/t.T/Shout")) + data(b"x" * 90), 0.0)
        link.out.clear()
        link.receive(data(b"x" * 20), 0.0)
        assert [stream.id for stream in link.cancelled] == [1]
        return b"".join(link.out)

    assert f.reset(1, ErrorCode.ENHANCE_YOUR_CALM) in asyncio.run(main())


def test_a_request_both_ways_has_no_time_limit_while_others_do() -> None:
    link = machine()
    link.receive(frame(f.HEADERS, f.END_HEADERS, 1, block(b"/t.T/Shout")), 0.0)
    link.receive(frame(f.HEADERS, f.END_HEADERS, 3, block(b"/t.T/Echo")), 0.0)
    link.expire(1000.0)
    assert list(link.streams) == [1]


@pytest.mark.parametrize(("version", "content_type"), [(1, GRPC), (2, b"application/connect+proto")])
def test_streams_both_ways_are_for_grpc_over_http2(version: int, content_type: bytes) -> None:
    request = Request(b"POST", b"/t.T/Shout", headers=((b"content-type", content_type),), version=version)
    answer = asyncio.run(settled(HANDLER(request)))
    assert isinstance(answer, Reply)
    assert answer.status == 415
    assert dict(answer.headers)[b"accept-post"] == b"application/grpc, application/grpc+proto, application/grpc+json"


@given(st.lists(st.binary(max_size=50), max_size=6), st.data())
def test_messages_are_found_however_the_body_is_cut(messages: list[bytes], cuts: st.DataObject) -> None:
    body = b"".join(map(wrap, messages))
    at = sorted(cuts.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    pieces = [body[start:end] for start, end in zip([0, *at], [*at, len(body)], strict=True)]
    incoming = RequestBody()
    for piece in pieces:
        incoming.feed(piece)
    incoming.end()
    assert asyncio.run(collect(incoming)) == messages
    assert incoming.held == 0


def test_many_messages_in_one_piece_leave_others_their_turn() -> None:
    async def main() -> int:
        turns, over = 0, asyncio.Event()

        async def others() -> None:
            nonlocal turns
            while not over.is_set():
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(others())
            assert len(await collect(RequestBody.whole(wrap(b"") * 500))) == 500
            over.set()
        return turns

    assert asyncio.run(main()) >= 499


@pytest.mark.parametrize("body", [wrap(b"abc")[:-1], b"\0\0", wrap(bytes(101))])
def test_a_body_that_is_cut_off_or_too_large_is_an_error(body: bytes) -> None:
    with pytest.raises(RpcError):
        asyncio.run(collect(RequestBody.whole(body)))


async def collect(incoming: RequestBody) -> list[bytes]:
    return [message async for message in unwrap_stream(incoming, None, 100)]


def test_a_call_of_no_known_kind_is_handed_over_early_only_if_it_is_grpc() -> None:
    decide = early(METHODS)
    fields: Mapping[bytes, bytes] = {b"content-type": b"application/json"}
    assert not decide(b"/index.html", fields)
    assert decide(b"/no.Such/Method", {b"content-type": GRPC})
