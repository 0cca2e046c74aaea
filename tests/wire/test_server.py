"""The server with real sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
import stat
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import h2.connection
import h2.events
import pytest

from tests.wire.served import LOOPS, Http2Client, connected, http1, run
from wigwag.wire.h2.frames import MAX_WINDOW, ErrorCode
from wigwag.wire.http import Handler, Reply, Request, Response, Stream
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.connection import Connection, Host
from wigwag.wire.server.server import Listener, serve
from wigwag.wire.server.shared import SharedResources

HERE = [Listener(host="127.0.0.1")]
OK = Reply(200, (), b"hello")
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
pytestmark = pytest.mark.parametrize("loop", LOOPS)


def hello(_: Request) -> Response:
    return OK


class Source:
    """Chunks that come when the test says so, and a record of what became of them."""

    def __init__(self, *chunks: bytes) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.pulled, self.closed, self.started = 0, asyncio.Event(), asyncio.Event()
        for chunk in chunks:
            self.queue.put_nowait(chunk)

    async def chunks(self) -> AsyncIterator[bytes]:
        self.started.set()
        try:
            while (chunk := await self.queue.get()) is not None:
                self.pulled += 1
                yield chunk
        finally:
            self.closed.set()

    def handler(self, _: Request) -> Response:
        return Stream(200, ((b"content-type", b"text/plain"),), self.chunks(), lambda: ((b"t", b"1"),))


def test_both_protocols_on_one_port(loop: str) -> None:
    async def test() -> None:
        async with serve(hello, HERE) as server:
            assert (await http1(server.addresses[0])).endswith(b"\r\n\r\nhello")
            async with connected(server.addresses[0]) as (reader, writer):
                client = Http2Client(reader, writer)
                client.get(1)
                assert (await client.until(h2.events.DataReceived)).data == b"hello"

    run(test, loop)


def test_a_preface_that_comes_byte_by_byte_is_recognised(loop: str) -> None:
    async def test() -> None:
        async with serve(hello, HERE) as server, connected(server.addresses[0]) as (reader, writer):
            writer.write(b"P")
            await writer.drain()
            assert (await http1(server.addresses[0])).endswith(b"hello")
            writer.write(b"UT / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")

    run(test, loop)


def address(request: Request) -> bytes:
    assert request.peer
    return request.peer.address.encode()


def test_the_peer_has_an_address(loop: str) -> None:
    async def test() -> None:
        async with serve(lambda request: Reply(200, (), address(request)), HERE) as server:
            assert b"\r\n\r\n127.0.0.1:" in await http1(server.addresses[0])

    run(test, loop)


def test_what_has_to_be_waited_for_is_awaited(loop: str) -> None:
    async def slow(request: Request) -> Response:
        await asyncio.sleep(0)
        return Reply(200, (), request.path)

    async def test() -> None:
        async with serve(slow, HERE) as server, connected(server.addresses[0]) as (reader, writer):
            writer.write(GET.replace(b"/ ", b"/a ") + GET.replace(b"/ ", b"/b "))
            assert (await reader.readuntil(b"/b")).index(b"\r\n\r\n/a") > 0

    run(test, loop)


def broken(_: Request) -> Response:
    raise RuntimeError("secret")


async def broken_later(_: Request) -> Response:
    raise RuntimeError("secret")


@pytest.mark.parametrize("handler", [broken, broken_later, lambda _: None, lambda _: Reply(200, ((b"a", b"\n"),))])
def test_a_handler_that_fails_is_a_500_and_the_connection_goes_on(
    handler: Handler, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serve(handler, HERE) as server, connected(server.addresses[0]) as (reader, writer):
            for _ in range(2):
                writer.write(GET.replace(b"/ ", b"/path?secret ").replace(b"Host", b"Authorization: secret\r\nHost"))
                assert (await reader.readuntil(b"Internal Server Error\n")).startswith(b"HTTP/1.1 500")

    with caplog.at_level(logging.ERROR, "wigwag.wire"):
        run(test, loop)
    assert len(caplog.records) == 2
    assert "/path" in caplog.records[0].getMessage()
    assert "secret" not in caplog.records[0].getMessage()


def test_a_stream_is_sent_as_it_comes(loop: str) -> None:
    async def test() -> None:
        source = Source()
        async with serve(source.handler, HERE) as server, connected(server.addresses[0]) as (reader, writer):
            writer.write(GET)
            assert b"chunked" in await reader.readuntil(b"\r\n\r\n")
            for chunk in (b"one", b"two"):
                source.queue.put_nowait(chunk)
                assert await reader.readexactly(8) == b"3\r\n" + chunk + b"\r\n"
            source.queue.put_nowait(None)
            assert await reader.readexactly(5) == b"0\r\n\r\n"
            assert source.closed.is_set()

    run(test, loop)


def test_a_stream_of_http2_ends_with_trailers(loop: str) -> None:
    async def test() -> None:
        source = Source(b"one")
        async with serve(source.handler, HERE) as server, connected(server.addresses[0]) as (reader, writer):
            client = Http2Client(reader, writer)
            client.get(1)
            assert (await client.until(h2.events.DataReceived)).data == b"one"
            source.queue.put_nowait(None)
            assert (await client.until(h2.events.TrailersReceived)).headers == [(b"t", b"1")]

    run(test, loop)


def test_a_client_that_leaves_closes_its_streams(loop: str) -> None:
    async def test() -> None:
        first, second = Source(), Source()
        sources = {b"/1": first, b"/2": second}
        async with serve(lambda request: sources[request.path].handler(request), HERE) as server:
            async with connected(server.addresses[0]) as (reader, writer):
                client = Http2Client(reader, writer)
                client.get(1, "/1")
                client.get(3, "/2")
                await first.started.wait()
                await second.started.wait()
                client.h2.reset_stream(1)
                client.flush()
                await first.closed.wait()
                assert not second.closed.is_set()
            await second.closed.wait()

    run(test, loop)


def test_a_client_of_http1_that_leaves_closes_its_stream(loop: str) -> None:
    async def test() -> None:
        source = Source()
        async with serve(source.handler, HERE) as server:
            async with connected(server.addresses[0]) as (reader, writer):
                writer.write(GET)
                await reader.readuntil(b"\r\n\r\n")
                await source.started.wait()
            await source.closed.wait()

    run(test, loop)


def test_a_stream_is_pulled_only_as_far_as_the_window_reaches(loop: str) -> None:
    async def test() -> None:
        source = Source(*[bytes(10_000)] * 20)
        async with serve(source.handler, HERE) as server, connected(server.addresses[0]) as (reader, writer):
            client = Http2Client(reader, writer)
            client.get(1)
            seen = 0
            while seen < 65_535:
                seen += len((await client.until(h2.events.DataReceived)).data)
            assert source.pulled == 7
            client.h2.increment_flow_control_window(10_000)
            client.h2.increment_flow_control_window(10_000, 1)
            client.flush()
            while seen < 75_535:
                seen += len((await client.until(h2.events.DataReceived)).data)
            assert source.pulled == 8

    run(test, loop)


def test_a_stream_is_pulled_only_as_fast_as_the_client_reads(loop: str) -> None:
    async def test() -> None:
        source = Source(*[bytes(100_000)] * 1000)
        limits, small = WireLimits(write_buffer=100_000), {"limit": 1000}
        async with (
            serve(source.handler, HERE, limits) as server,
            connected(server.addresses[0], **small) as (reader, writer),
        ):
            writer.write(GET)
            await reader.readuntil(b"\r\n\r\n")
            await source.started.wait()
            before = -1
            while source.pulled != before:
                before = source.pulled
                await http1_probe(server.addresses[0])
            assert before < 500
            await reader.readexactly(20_000_000)
            assert source.pulled > 150

    run(test, loop)


async def http1_probe(address: str) -> None:
    """Give the server some turns of its loop: connect and leave."""
    for _ in range(5):
        async with connected(address):
            pass


def test_a_stream_that_fails_breaks_off(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"one"
        raise RuntimeError

    async def test() -> None:
        async with serve(lambda _: Stream(200, (), chunks()), HERE) as server:
            answer = await http1(server.addresses[0])
            assert answer.endswith(b"3\r\none\r\n")
            async with connected(server.addresses[0]) as (reader, writer):
                client = Http2Client(reader, writer)
                client.get(1)
                assert (await client.until(h2.events.StreamReset)).error_code == ErrorCode.INTERNAL_ERROR

    run(test, loop)
    assert len(caplog.records) == 2


class Paper(asyncio.Transport):
    """A transport that only writes down what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def http2_requests(count: int) -> bytes:
    headers = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "h")]
    client = h2.connection.H2Connection()
    client.initiate_connection()
    for stream in range(1, 2 * count, 2):
        client.send_headers(stream, headers, end_stream=True)
    return client.data_to_send()


def test_many_requests_in_one_read_are_answered_in_one_write(loop: str) -> None:
    async def test() -> None:
        for data in (GET * 10, http2_requests(10)):
            async with asyncio.TaskGroup() as tasks:
                shared = SharedResources(clock=lambda: 0.0)
                connection, paper = Connection(Host(hello, WireLimits(), tasks, shared=shared)), Paper()
                connection.connection_made(paper)
                connection.data_received(data)
            assert [each.count(b"hello") for each in paper.writes] == [10]

    run(test, loop)


def test_more_clients_than_allowed_are_turned_away(loop: str) -> None:
    async def test() -> None:
        limits = WireLimits(connections=1)
        async with serve(hello, HERE, limits) as server, connected(server.addresses[0]) as (reader, writer):
            writer.write(GET)
            await reader.readuntil(b"hello")
            assert server.connections == 1
            async with connected(server.addresses[0]) as (second, _):
                assert await second.read() == b""
            writer.write(GET)
            await reader.readuntil(b"hello")

    run(test, loop)


def test_a_client_that_says_nothing_is_cut_off(loop: str) -> None:
    async def test() -> None:
        async with serve(hello, HERE, WireLimits(header_seconds=0.05)) as server:
            for beginning in (b"", b"PRI", b"GET / HTT", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
                async with connected(server.addresses[0]) as (reader, writer):
                    writer.write(beginning)
                    await reader.read()

    run(test, loop)


def test_a_client_that_takes_nothing_is_cut_off(loop: str) -> None:
    async def test() -> None:
        source, limits = Source(*[bytes(1_000_000)] * 20), WireLimits(write_seconds=0.1)
        async with (
            serve(source.handler, HERE, limits) as server,
            connected(server.addresses[0], limit=1000) as (_, writer),
        ):
            writer.write(GET)
            await source.closed.wait()

    run(test, loop)


def test_a_refused_upload_is_told_why_although_it_goes_on(loop: str) -> None:
    async def test() -> None:
        limits = WireLimits(body_bytes=1000)
        async with serve(hello, HERE, limits) as server, connected(server.addresses[0]) as (reader, writer):
            writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n")
            writer.write(bytes(3_000_000))
            assert (await reader.read()).startswith(b"HTTP/1.1 413")

    run(test, loop)


def test_draining_lets_a_request_finish_and_closes_idle_clients(loop: str) -> None:
    async def test() -> None:
        source = Source(b"one")
        async with serve(source.handler, HERE) as server:
            async with connected(server.addresses[0]) as (reader, writer), connected(server.addresses[0]) as idle:
                writer.write(GET)
                await reader.readuntil(b"one\r\n")
                async with asyncio.TaskGroup() as tasks:
                    draining = tasks.create_task(server.drain(notice=0.01))
                    assert await idle[0].read() == b""
                    assert not draining.done()
                    source.queue.put_nowait(None)
                    assert await reader.read() == b"0\r\n\r\n"
            assert server.connections == 0
            assert server.addresses == []

    run(test, loop)


def test_a_request_that_is_on_its_way_when_draining_begins_is_answered(loop: str) -> None:
    async def test() -> None:
        async with serve(hello, HERE) as server, connected(server.addresses[0]) as (reader, writer):
            writer.write(GET)
            await reader.readuntil(b"hello")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(server.drain(grace=60.0, notice=30.0))
                await asyncio.sleep(0)  # until it waits
                writer.write(GET)
                answer = await reader.read()
                assert b"connection: close\r\n" in answer
                assert answer.endswith(b"hello")

    run(test, loop)


def test_draining_says_goodbye_and_cuts_what_takes_too_long(loop: str) -> None:
    async def test() -> None:
        source = Source(b"one")
        async with serve(source.handler, HERE) as server, connected(server.addresses[0]) as (reader, writer):
            client = Http2Client(reader, writer)
            client.get(1)
            await client.until(h2.events.DataReceived)
            async with asyncio.TaskGroup() as tasks:
                draining = tasks.create_task(server.drain(grace=2.0))
                notice = await client.until(h2.events.ConnectionTerminated)
                assert (notice.error_code, notice.last_stream_id) == (ErrorCode.NO_ERROR, MAX_WINDOW)
                goodbye = await client.until(h2.events.ConnectionTerminated)
                assert (goodbye.error_code, goodbye.last_stream_id) == (ErrorCode.NO_ERROR, 1)
                assert not source.closed.is_set()
                await draining
            assert source.closed.is_set()

    run(test, loop)


def test_a_server_that_ends_cancels_what_it_was_doing(loop: str) -> None:
    source = Source()
    waiting = asyncio.Event()

    async def never(_: Request) -> Response:
        waiting.set()
        await asyncio.Event().wait()
        return OK

    def handler(request: Request) -> Response | Awaitable[Response]:
        return source.handler(request) if request.path == b"/stream" else never(request)

    async def test() -> None:
        async with serve(handler, HERE) as server, asyncio.timeout(30):
            one, two = connected(server.addresses[0]), connected(server.addresses[0])
            async with one as (_, first), two as (_, second):
                first.write(GET.replace(b"/ ", b"/stream "))
                second.write(GET)
                await source.started.wait()
                await waiting.wait()
                await server.drain(grace=0.0)
        assert source.closed.is_set()

    run(test, loop)


def test_a_unix_socket_is_private_replaces_a_stale_one_and_goes_with_its_server(loop: str, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    listener = Listener(kind="unix", path=str(path))

    async def test() -> None:
        async with serve(hello, [listener]) as server:
            assert server.addresses == [str(path)]
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert (await http1(str(path))).endswith(b"hello")
            with pytest.raises(ExceptionGroup) as caught:
                async with serve(hello, [listener]):
                    pass
            assert caught.group_contains(OSError)
            assert (await http1(str(path))).endswith(b"hello")
        assert not path.exists()

    run(test, loop)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    run(test, loop)


def test_what_is_no_socket_is_not_removed(loop: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")

    async def test() -> None:
        with pytest.raises(ExceptionGroup):
            async with serve(hello, [Listener(kind="unix", path=str(path))]):
                pass

    run(test, loop)
    assert path.read_text() == "precious"


def test_if_one_place_is_taken_none_is_listened_at(loop: str) -> None:
    async def test() -> None:
        async with serve(hello, HERE) as server:
            port = int(server.addresses[0].rpartition(":")[2])
            with pytest.raises(ExceptionGroup) as caught:
                async with serve(hello, [*HERE, Listener(host="127.0.0.1", port=port)]):
                    pass
            assert caught.group_contains(OSError)

    run(test, loop)
