"""What is published for many streams: everybody gets the newest, nobody holds up anybody, and it is written once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import h2.events
import pytest

from tests.wire.served import LOOPS, Http2Client, connected, run
from wigwag.pipeline.broadcast import Broadcast
from wigwag.wire.client.grpc import Channel, open_channel
from wigwag.wire.client.http2 import Endpoint
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpc import Call, Code, Method, RpcError
from wigwag.wire.rpcs import envelope
from wigwag.wire.rpcs.dispatch import rpc_handler
from wigwag.wire.server.broadcast import BroadcastStream, Message
from wigwag.wire.server.server import Listener, Server, serve

WATCH = "/pkg.Service/Watch"
GONE = RpcError(Code.UNAVAILABLE, "over")


class Desk:
    """A broadcast, and who reads it."""

    def __init__(self) -> None:
        self.broadcast = Broadcast[Message]()
        self.readers = 0
        self.made = 0
        self._moved = asyncio.Event()

    def join(self, stream: BroadcastStream) -> Broadcast[Message]:
        self._count(1)
        stream.on_close(lambda: self._count(-1))
        return self.broadcast

    def _count(self, change: int) -> None:
        self.readers += change
        self._moved.set()

    def post(self, message: bytes) -> None:
        def make() -> bytes:
            self.made += 1
            return message

        self.broadcast.publish(Message(make))

    def method(self) -> Method:
        return Method(stream=lambda call: BroadcastStream(self.join))

    async def until(self, readers: int) -> None:
        while self.readers != readers:
            self._moved.clear()
            await self._moved.wait()


@asynccontextmanager
async def serving(method: Method, limits: WireLimits = WireLimits()) -> AsyncIterator[Server]:  # noqa: B008
    handler = rpc_handler({WATCH.encode(): method}, limits)
    async with serve(handler, [Listener(host="127.0.0.1", port=0)], limits) as server:
        yield server


@asynccontextmanager
async def calling(server: Server) -> AsyncIterator[Channel]:
    host, _, port = server.addresses[0].rpartition(":")
    async with open_channel(Endpoint(((host, int(port)),), server.addresses[0])) as channel:
        yield channel


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stream_gets_what_is_there_and_then_what_is_posted(loop: str) -> None:
    async def main() -> None:
        desk = Desk()
        desk.post(b"first")
        async with serving(desk.method()) as server, calling(server) as channel:
            with channel.stream(WATCH, b"") as answers:
                assert await anext(answers) == b"first"
                desk.post(b"second")
                assert await anext(answers) == b"second"
            await desk.until(0)

    run(main, loop)


def test_a_stream_is_open_and_silent_until_something_is_posted() -> None:
    async def main() -> None:
        desk = Desk()
        async with serving(desk.method()) as server, calling(server) as channel:
            with channel.stream(WATCH, b"") as answers:
                await desk.until(1)
                desk.post(b"first")
                assert await anext(answers) == b"first"

    run(main)


def test_no_task_waits_for_a_stream() -> None:
    async def main() -> None:
        desk = Desk()
        async with serving(desk.method()) as server, calling(server) as channel:
            before = len(asyncio.all_tasks())
            streams = [channel.stream(WATCH, b"") for _ in range(50)]
            await desk.until(50)
            assert len(asyncio.all_tasks()) == before
            for stream in streams:
                stream.close()

    run(main)


def test_a_message_is_made_and_compressed_once_for_all() -> None:
    async def main() -> None:
        desk, large = Desk(), b"a" * 5_000
        async with serving(desk.method()) as server, calling(server) as channel:
            streams = [channel.stream(WATCH, b"") for _ in range(20)]
            await desk.until(20)
            desk.post(large)
            assert [await anext(stream) for stream in streams] == [large] * 20
            assert desk.made == 1
            for stream in streams:
                stream.close()

    run(main)


def test_all_who_share_a_frame_share_its_bytes() -> None:
    message = Message(lambda: b"x" * 2_000)
    assert message.framed(envelope.wrap) is message.framed(envelope.wrap)
    assert message.framed(envelope.wrap) != Message(lambda: b"y").framed(envelope.wrap)


def test_the_end_reaches_every_stream_with_its_error() -> None:
    async def main() -> None:
        desk = Desk()
        async with serving(desk.method()) as server, calling(server) as channel:
            streams = [channel.stream(WATCH, b"") for _ in range(3)]
            await desk.until(3)
            desk.broadcast.end(GONE)
            for stream in streams:
                with pytest.raises(RpcError, match="over") as caught:
                    await anext(stream)
                assert caught.value.code is Code.UNAVAILABLE
            assert desk.readers == 0
            assert desk.broadcast.subscribers == 0

    run(main)


def test_the_clients_deadline_ends_a_stream() -> None:
    async def main() -> None:
        desk = Desk()
        async with serving(desk.method()) as server, connected(server.addresses[0]) as (reader, writer):
            client = Http2Client(reader, writer)
            client.h2.send_headers(1, [*_head("application/grpc"), ("grpc-timeout", "1m")])
            client.h2.send_data(1, envelope.wrap(b""), end_stream=True)
            client.flush()
            trailers = await client.until(h2.events.TrailersReceived, 1)
            assert dict(trailers.headers)[b"grpc-status"] == b"%d" % Code.DEADLINE_EXCEEDED
            assert desk.readers == 0

    run(main)


def test_who_may_not_join_is_told_so() -> None:
    def refuse(stream: BroadcastStream) -> Broadcast[Message]:
        raise RpcError(Code.RESOURCE_EXHAUSTED, "full")

    async def main() -> None:
        method = Method(stream=lambda call: BroadcastStream(refuse))
        async with serving(method) as server, calling(server) as channel:
            with channel.stream(WATCH, b"") as answers, pytest.raises(RpcError, match="full"):
                await anext(answers)

    run(main)


def test_a_handler_may_wait_before_there_is_a_stream() -> None:
    desk = Desk()
    desk.post(b"hello")

    async def admitted(call: Call) -> AsyncIterator[bytes]:
        await asyncio.sleep(0)
        if call.body:
            raise RpcError(Code.PERMISSION_DENIED, "not you")
        return BroadcastStream(desk.join)

    async def main() -> None:
        async with serving(Method(stream=admitted)) as server, calling(server) as channel:
            with channel.stream(WATCH, b"") as answers:
                assert await anext(answers) == b"hello"
            with channel.stream(WATCH, b"x") as answers, pytest.raises(RpcError, match="not you"):
                await anext(answers)

    run(main)


def _head(content_type: str) -> list[tuple[str, str]]:
    pseudo = [(":method", "POST"), (":scheme", "http"), (":path", WATCH), (":authority", "h")]
    return [*pseudo, ("content-type", content_type), ("te", "trailers")]


def test_a_slow_client_gets_the_newest_message_and_holds_up_nobody() -> None:
    """Its window takes half a message: of a hundred that are posted it sees the one that had begun, and the last."""

    async def main() -> None:
        desk = Desk()
        async with (
            serving(desk.method()) as server,
            calling(server) as channel,
            connected(server.addresses[0]) as (reader, writer),
        ):
            client = Http2Client(reader, writer)
            client.h2.send_headers(1, _head("application/grpc"))
            client.h2.send_data(1, envelope.wrap(b""), end_stream=True)
            client.flush()
            await desk.until(1)
            desk.post(b"0" * 100_000)
            await received(client, 65_535)
            with channel.stream(WATCH, b"") as quick:
                for number in range(1, 100):
                    desk.post(b"%d" % (number % 10) * 100_000)
                    assert (await anext(quick))[:1] == b"%d" % (number % 10)
            client.h2.increment_flow_control_window(1_000_000)
            client.h2.increment_flow_control_window(1_000_000, 1)
            client.flush()
            rest = await received(client, 2 * 100_005 - 65_535)
            assert rest[: 100_005 - 65_535] == b"0" * (100_005 - 65_535)
            assert rest[100_005 - 65_535 :] == envelope.wrap(b"9" * 100_000)

    run(main)


async def received(client: Http2Client, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += (await client.until(h2.events.DataReceived, 1)).data
    return data


def test_a_client_that_goes_away_is_forgotten() -> None:
    async def main() -> None:
        desk = Desk()
        async with serving(desk.method()) as server:
            async with calling(server) as channel:
                kept = [channel.stream(WATCH, b"") for _ in range(5)]
                await desk.until(5)
                kept[0].close()
                await desk.until(4)
            await desk.until(0)
            assert desk.broadcast.subscribers == 0
            desk.post(b"nobody reads this")

    run(main)


def test_a_server_that_ends_cuts_off_who_still_reads() -> None:
    async def main() -> None:
        desk = Desk()
        async with serving(desk.method()) as server, calling(server) as channel:
            with channel.stream(WATCH, b"") as answers:
                await desk.until(1)
                async with asyncio.TaskGroup() as group:
                    group.create_task(server.drain(grace=0.01))
                    with pytest.raises(RpcError):
                        await anext(answers)
        assert desk.readers == 0

    run(main)


def test_other_protocols_pull_it() -> None:
    """gRPC-Web over HTTP/2: no trailers, so no reader; the stream is pulled like any other."""

    async def main() -> None:
        desk = Desk()
        desk.post(b"first")
        async with serving(desk.method()) as server, connected(server.addresses[0]) as (reader, writer):
            client = Http2Client(reader, writer)
            client.h2.send_headers(1, _head("application/grpc-web"))
            client.h2.send_data(1, envelope.wrap(b""), end_stream=True)
            client.flush()
            assert (await client.until(h2.events.DataReceived, 1)).data == envelope.wrap(b"first")
            desk.post(b"second")
            assert (await client.until(h2.events.DataReceived, 1)).data == envelope.wrap(b"second")
            desk.broadcast.end(GONE)
            assert b"grpc-status: 14" in (await client.until(h2.events.DataReceived, 1)).data
        assert desk.readers == 0

    run(main)


def test_who_pulls_may_skip_but_ends_on_the_newest() -> None:
    async def main() -> None:
        desk = Desk()
        stream = BroadcastStream(desk.join)
        pull: Awaitable[Any] = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        for number in range(10):
            desk.post(b"%d" % number)
        assert await pull == b"9"
        desk.post(b"10")
        assert await anext(stream) == b"10"
        await stream.aclose()
        await stream.aclose()
        assert (desk.readers, desk.broadcast.subscribers) == (0, 0)

    run(main)


def test_a_stream_that_is_dropped_before_it_began_was_no_reader() -> None:
    async def main() -> None:
        desk = Desk()
        await BroadcastStream(desk.join).aclose()
        assert desk.readers == 0

    run(main)


def test_a_stream_that_is_ended_alone_leaves_the_others_as_they_are() -> None:
    async def main() -> None:
        desk, streams = Desk(), list[BroadcastStream]()
        desk.post(b"first")

        def handler(call: Call) -> BroadcastStream:
            streams.append(BroadcastStream(desk.join))
            return streams[-1]

        async with serving(Method(stream=handler)) as server, calling(server) as channel:
            with channel.stream(WATCH, b"") as one, channel.stream(WATCH, b"") as other:
                assert await anext(one) == await anext(other) == b"first"
                streams[0].end(RpcError(Code.PERMISSION_DENIED, "no longer"))
                streams[0].end(RpcError(Code.UNKNOWN, "too late"))
                with pytest.raises(RpcError, match="no longer"):
                    await anext(one)
                await desk.until(1)
                desk.post(b"second")
                assert await anext(other) == b"second"

    run(main)


def test_a_guard_that_refuses_undoes_what_guards_before_it_did() -> None:
    async def main() -> None:
        desk, undone = Desk(), list[str]()

        def refuse(stream: BroadcastStream) -> None:
            raise RpcError(Code.PERMISSION_DENIED, "not you")

        stream = BroadcastStream(desk.join)
        stream.guard(refuse)
        stream.guard(lambda stream: stream.on_close(lambda: undone.append("slot")))
        with pytest.raises(RpcError, match="not you"):
            await anext(stream)
        assert (undone, desk.readers) == (["slot"], 0)

    run(main)
