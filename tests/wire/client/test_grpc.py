"""gRPC calls over real sockets: our own server, one of the `h2` library, and things that are no such server at all."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import h2.events
import pytest

from tests.clients.certificates import make_certificates
from tests.pipeline.fakes import FakeClock, settle
from tests.wire.client.server import GRPC, Scripted, bytes_only, hold, scripted
from tests.wire.echo import METHODS
from tests.wire.served import LOOPS, run
from wigwag.wire.client.grpc import MAX_MESSAGE, Channel, MessageStream, open_channel
from wigwag.wire.client.http2 import Endpoint, KeepAlive, Place
from wigwag.wire.client.tls import Trust
from wigwag.wire.http import Reply
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpc import Call, Code, Method, RpcError
from wigwag.wire.rpcs.dispatch import rpc_handler
from wigwag.wire.rpcs.envelope import wrap
from wigwag.wire.server.listen import Listener
from wigwag.wire.server.server import serve
from wigwag.wire.tls import Tls

LARGE = 20 << 20
loops = pytest.mark.parametrize("loop", LOOPS)


async def flood(call: Call) -> AsyncIterator[bytes]:
    for number in range(3):
        yield bytes([number]) * LARGE


def seen(call: Call) -> bytes:
    return b"; ".join(name + b"=" + value for name, value in call.headers)


HANDLER = rpc_handler(
    {**METHODS, b"/t.T/Flood": Method(stream=flood), b"/t.T/Seen": Method(unary=seen)},
    WireLimits(body_bytes=8 << 20),
    otherwise=lambda _: Reply(404, ((b"content-type", b"text/html"),), b"<html>"),
)


def at(*places: Place, **options: Any) -> Endpoint:
    return Endpoint(places, options.pop("authority", "localhost"), **options)


def tcp(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@asynccontextmanager
async def channel_to(listener: Listener | None = None, **options: Any) -> AsyncIterator[Channel]:
    """A channel to our own server."""
    async with serve(HANDLER, [listener or Listener(host="127.0.0.1")], WireLimits(body_bytes=8 << 20)) as server:
        (address,) = server.addresses
        place: Place = address if listener and listener.path else tcp(address)
        async with open_channel(at(place, **options)) as channel:
            yield channel


@asynccontextmanager
async def scripted_channel(
    script: Any, clock: FakeClock | None = None, keep_alive: KeepAlive | None = None, max_message: int = MAX_MESSAGE
) -> AsyncIterator[Channel]:
    keep_alive, clock = keep_alive or KeepAlive(), clock or FakeClock()
    async with scripted(script) as place, open_channel(at(place), keep_alive, clock, max_message) as channel:
        yield channel


async def refused(*places: Place, **options: Any) -> str:
    """Why there is no channel."""
    with pytest.raises(RpcError) as caught:
        async with open_channel(at(*places, **options)):
            pass
    assert caught.value.code is Code.UNAVAILABLE
    return caught.value.message


@loops
def test_one_message_out_and_one_back(loop: str) -> None:
    async def test() -> None:
        async with channel_to() as channel:
            assert await channel.unary("/t.T/Echo", b"hello") == b"proto:hello"
            assert await channel.unary("/t.T/Later", b"") == b"proto:"
            large = b"x" * (4 << 20)
            assert await channel.unary("/t.T/Echo", large, deadline=10) == b"proto:" + large

    run(test, loop)


@loops
def test_many_messages_come_back_in_order(loop: str) -> None:
    async def test() -> None:
        async with channel_to() as channel:
            with channel.stream("/t.T/Count", b"1000") as answers:
                assert [int(message) async for message in answers] == list(range(1000))

    run(test, loop)


def test_messages_of_many_megabytes_pass_the_windows_and_the_loop_is_free_meanwhile() -> None:
    async def test() -> None:
        async with channel_to() as channel:
            with channel.stream("/t.T/Flood", b"") as answers:
                assert [(message[0], len(message)) async for message in answers] == [(n, LARGE) for n in range(3)]

    run(test)


BOMB = wrap(gzip.compress(bytes(LARGE)), 1)
ZIPPED = [*GRPC, ("grpc-encoding", "gzip")]


def saying(data: bytes, *, end: bool = False) -> Any:
    """A script that answers with bytes of compressed messages."""

    async def script(link: Scripted) -> None:
        link.greet()
        event = await link.until(h2.events.StreamEnded)
        link.h2.send_headers(event.stream_id, ZIPPED)
        for at in range(0, len(data), 16_384):
            link.say(event.stream_id, data[at : at + 16_384])
        if end:
            link.end(event.stream_id)
        else:
            assert (await link.until(h2.events.StreamReset)).error_code == 8
        await link.gone()

    return script


def test_a_message_that_becomes_large_is_made_in_turns_and_others_have_theirs() -> None:
    async def test() -> None:
        async with scripted_channel(saying(BOMB * 3, end=True)) as channel:
            turns, sizes = 0, list[int]()

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            with channel.stream("/a/B", b"") as answers:
                other = asyncio.ensure_future(others())
                async for message in answers:
                    sizes.append(len(message))
                    assert turns >= LARGE >> 20
                    turns = 0
                other.cancel()
            assert sizes == [LARGE] * 3

    run(test)


def test_whoever_stops_to_wait_for_a_large_message_gets_it_the_next_time() -> None:
    async def test() -> None:
        async with scripted_channel(saying(wrap(b"first") + BOMB + wrap(b"last"), end=True)) as channel:
            with channel.stream("/a/B", b"") as answers:
                assert await anext(answers) == b"first"
                waiting = asyncio.ensure_future(anext(answers))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert [len(message) async for message in answers] == [LARGE, 4]

    run(test)


@pytest.mark.parametrize(
    ("data", "limit", "code"),
    [(BOMB, LARGE - 1, Code.RESOURCE_EXHAUSTED), (wrap(b"no gzip", 1), LARGE, Code.INTERNAL)],
    ids=["large", "broken"],
)
def test_a_message_that_cannot_be_decompressed_ends_the_call_on_both_sides(data: bytes, limit: int, code: Code) -> None:
    async def test() -> None:
        async with scripted_channel(saying(wrap(b"first") + data + wrap(b"last")), max_message=limit) as channel:
            with channel.stream("/a/B", b"") as answers:
                assert await anext(answers) == b"first"
                for _ in range(2):
                    with pytest.raises(RpcError) as caught:
                        await anext(answers)
                    assert caught.value.code is code

    run(test)


def test_many_calls_share_a_connection() -> None:
    async def test() -> None:
        async with channel_to() as channel:
            assert channel.room == 256
            streams = [channel.stream("/t.T/Hang", b"") for _ in range(256)]
            for answers in streams:
                assert await anext(answers) == b"0"
            assert channel.room == 0
            with pytest.raises(RpcError, match="256 requests at a time") as caught:
                channel.stream("/t.T/Hang", b"")
            assert caught.value.code is Code.UNAVAILABLE
            for answers in streams:
                answers.close()
            assert channel.room == 256
            assert await channel.unary("/t.T/Echo", b"") == b"proto:"

    run(test)


def test_the_server_sees_who_asks_and_for_what() -> None:
    async def test() -> None:
        async with channel_to(authority="flags.test:1") as channel:
            told = await channel.unary("/t.T/Seen", b"", ((b"flagd-selector", b"a=b"),), deadline=2.5)
            for part in (b"host=flags.test:1", b"te=trailers", b"grpc-timeout=2500m", b"flagd-selector=a=b"):
                assert part in told.split(b"; ")
            assert b"user-agent=grpc-wigwag/" in told

    run(test)


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("/t.T/Refuse", Code.NOT_FOUND, "no flag 100% sûr"),
        ("/t.T/Shut", Code.PERMISSION_DENIED, "shut"),
        ("/t.T/Crash", Code.INTERNAL, "internal error"),
        ("/t.T/Count", Code.INTERNAL, "the response has more than one message"),
        ("/no/Where", Code.UNIMPLEMENTED, None),
    ],
)
def test_an_error_keeps_its_code_and_its_words_and_the_connection_goes_on(
    path: str, code: Code, message: str | None
) -> None:
    async def test() -> None:
        async with channel_to() as channel:
            with pytest.raises(RpcError) as caught:
                await channel.unary(path, b"2")
            assert caught.value.code is code
            assert message in (None, caught.value.message)
            assert await channel.unary("/t.T/Echo", b"") == b"proto:"

    run(test)


def test_what_came_before_an_error_is_given_before_it() -> None:
    async def test() -> None:
        async with channel_to() as channel:
            with channel.stream("/t.T/Lose", b"") as answers:
                assert await anext(answers) == b"0"
                for _ in range(2):
                    with pytest.raises(RpcError, match="lost"):
                        await anext(answers)

    run(test)


def test_an_answer_without_a_message_is_none() -> None:
    async def script(link: Scripted) -> None:
        link.greet()
        link.end(await link.asked())
        await link.gone()

    async def test() -> None:
        async with scripted_channel(script) as channel:
            with pytest.raises(RpcError, match="no message"):
                await channel.unary("/a/B", b"")

    run(test)


@loops
@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_a_unix_socket_is_a_place_like_any_other(tmp_path: Path, kind: str, loop: str) -> None:
    async def script(link: Scripted) -> None:
        link.greet()
        stream = await link.asked()
        link.say(stream, wrap(b"hello"))
        link.end(stream)
        await link.gone()

    async def test() -> None:
        place = str(tmp_path / "s") if kind == "path" else f"\0wigwag-test-{uuid4()}"
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(place)
        async with scripted(script, listening), open_channel(at(place)) as channel:
            assert await channel.unary("/a/B", b"") == b"hello"

    run(test, loop)


@loops
def test_tls_with_an_authority_of_ones_own(tmp_path: Path, loop: str) -> None:
    files = make_certificates(tmp_path)
    listener = Listener(host="127.0.0.1", tls=Tls(certificate=str(files.certificate), key=str(files.key)))

    async def test() -> None:
        async with serve(HANDLER, [listener]) as server:
            place = tcp(server.addresses[0])
            trust = Trust(str(files.authority))
            for authority in ("localhost", "localhost:8015", "127.0.0.1:1"):
                async with open_channel(at(place, tls=True, trust=trust, authority=authority)) as channel:
                    assert await channel.unary("/t.T/Echo", b"") == b"proto:"
            told = await refused(place, tls=True, trust=trust, authority="other.test")
            assert "its certificate is not accepted" in told
            assert "unable to get local issuer" in await refused(place, tls=True)
            for bad in (tmp_path / "none.pem", files.key):
                assert "no certificates can be read" in await refused(place, tls=True, trust=Trust(str(bad)))
            without = await refused(place)
            assert "it speaks TLS" in without or "the server closed the connection" in without

    run(test, loop)


@loops
def test_whatever_is_no_such_server_is_named(loop: str) -> None:
    async def test() -> None:
        for data, told, patience in (
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it does not speak HTTP/2; it says 'HTTP/1.1 400 Bad Request'", 20),
            (b"\x15\x03\x03\x00\x02\x02\x28", "it speaks TLS", 20),
            (b"\x00\x00\x00", "no answer within 0.2 s", 0.2),
            (b"", "no answer within 0.2 s", 0.2),
        ):
            async with scripted(bytes_only(data)) as place:
                message = await refused(place, patience=patience)
                assert message.startswith(f"cannot connect: 127.0.0.1:{place[1]}: ")
                assert told in message
        async with scripted(bytes_only(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as place:
            assert "TLS failed" in await refused(place, tls=True, patience=5)

    run(test, loop)


@loops
def test_addresses_are_tried_in_turn_and_an_error_tells_of_all(loop: str, tmp_path: Path) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        nowhere, missing = ("127.0.0.1", port), str(tmp_path / "none")
        async with serve(HANDLER, [Listener(host="127.0.0.1")]) as server:
            place = tcp(server.addresses[0])
            async with open_channel(at(missing, nowhere, ("..", 1), place)) as channel:
                assert await channel.unary("/t.T/Echo", b"") == b"proto:"
        message = await refused(missing, nowhere, ("..", 1))
        assert message.startswith(
            f"cannot connect: unix:{missing}: No such file or directory; "
            f"127.0.0.1:{port}: Connection refused; .. cannot be resolved: "
        )

    run(test, loop)


@loops
def test_whoever_stops_waiting_for_a_connection_leaves_nothing_behind(loop: str) -> None:
    async def test() -> None:
        async with scripted(bytes_only(b"")) as place:  # its script ends when the client is gone
            task = asyncio.ensure_future(refused(place))
            await settle()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(test, loop)


def test_a_proxys_page_is_an_error_and_the_rest_of_it_is_not_read() -> None:
    async def script(link: Scripted) -> None:
        link.greet()
        event = await link.until(h2.events.StreamEnded)
        link.h2.send_headers(event.stream_id, [(":status", "502"), ("content-type", "text/html")])
        link.say(event.stream_id, b"<html>")
        reset = await link.until(h2.events.StreamReset)
        assert reset.error_code == 8
        await link.gone()

    async def test() -> None:
        async with scripted_channel(script) as channel:
            with pytest.raises(RpcError, match=r"not gRPC but HTTP 502 \(text/html\)") as caught:
                await channel.unary("/a/B", b"")
            assert caught.value.code is Code.UNAVAILABLE

    run(test)


def test_a_deadline_ends_the_call_on_both_sides() -> None:
    asked = asyncio.Event()

    async def script(link: Scripted) -> None:
        link.greet()
        await link.asked()
        asked.set()
        assert (await link.until(h2.events.StreamReset)).error_code == 8
        await link.gone()

    async def test() -> None:
        clock = FakeClock()
        async with scripted_channel(script, clock, KeepAlive(0)) as channel:
            call = asyncio.ensure_future(channel.unary("/a/B", b"", deadline=5))
            await asked.wait()
            await clock.advance(4.9)
            assert not call.done()
            await clock.advance(0.2)
            with pytest.raises(RpcError, match="no answer within 5 s") as caught:
                await call
            assert caught.value.code is Code.DEADLINE_EXCEEDED
            assert clock.pending() == []

    run(test)


def test_a_call_that_is_cancelled_is_cancelled_at_the_server_and_leaves_no_timer() -> None:
    asked = asyncio.Event()

    async def script(link: Scripted) -> None:
        link.greet()
        await link.asked()
        asked.set()
        await link.until(h2.events.StreamReset)
        await link.gone()

    async def test() -> None:
        clock = FakeClock()
        async with scripted_channel(script, clock, KeepAlive(0)) as channel:
            call = asyncio.ensure_future(channel.unary("/a/B", b"", deadline=5))
            await asked.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert clock.pending() == []

    run(test)


def test_goaway_refuses_new_calls_and_lets_the_old_ones_finish() -> None:
    told = asyncio.Event()

    async def script(link: Scripted) -> None:
        link.greet()
        stream = await link.asked()
        link.writer.write(bytes.fromhex("0000080700000000007fffffff00000000"))
        link.say(stream, wrap(b"first"))
        await told.wait()
        link.say(stream, wrap(b"second"))
        link.end(stream)
        await link.gone()

    async def test() -> None:
        async with scripted_channel(script) as channel:
            with channel.stream("/a/B", b"") as answers:
                assert await anext(answers) == b"first"
                with pytest.raises(RpcError, match="the server said NO_ERROR"):
                    channel.stream("/a/B", b"")
                told.set()
                assert [message async for message in answers] == [b"second"]

    run(test)


def test_a_connection_that_breaks_off_ends_every_call() -> None:
    async def script(link: Scripted) -> None:
        link.greet()
        await link.asked()
        await link.asked()
        link.writer.transport.abort()

    async def test() -> None:
        async with scripted_channel(script) as channel:
            calls = [asyncio.ensure_future(channel.unary("/a/B", b"")) for _ in range(2)]
            for call in calls:
                with pytest.raises(RpcError, match="connection") as caught:
                    await call
                assert caught.value.code is Code.UNAVAILABLE
            with pytest.raises(RpcError, match="closed"):
                await channel.unary("/a/B", b"")

    run(test)


async def beat(answers: MessageStream) -> bytes | None:
    async for item in answers.beats():
        return item
    raise AssertionError


def test_an_answered_ping_is_a_beat_and_no_message() -> None:
    beaten = asyncio.Event()

    async def script(link: Scripted) -> None:
        link.greet()
        stream = await link.asked()
        await link.until(h2.events.PingReceived)
        await link.until(h2.events.PingReceived)
        await beaten.wait()
        link.say(stream, wrap(b"news"))
        await link.gone()

    async def test() -> None:
        clock = FakeClock()
        async with scripted_channel(script, clock, KeepAlive(30.0, 20.0)) as channel:
            with channel.stream("/a/B", b"") as answers:
                for _ in range(2):
                    assert clock.pending() == [30.0]
                    await clock.advance(30.0)
                    assert await beat(answers) is None
                beaten.set()
                assert await anext(answers) == b"news"
        assert clock.pending() == []

    run(test)


@loops
def test_a_server_that_is_there_no_more_is_found_out(loop: str) -> None:
    """It accepts and greets, and then neither reads nor writes: what a lost node looks like."""
    done = asyncio.Event()

    async def script(link: Scripted) -> None:
        link.greet()
        link.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await done.wait()

    async def test() -> None:
        clock = FakeClock()
        async with scripted_channel(script, clock, KeepAlive(30.0, 20.0)) as channel:
            with channel.stream("/a/B", b"") as answers:
                await clock.advance(49.9)
                waiting = asyncio.ensure_future(anext(answers))
                await settle()
                assert not waiting.done()
                await clock.advance(0.2)
                with pytest.raises(RpcError, match="has not answered a ping for 20 s") as caught:
                    await waiting
                assert caught.value.code is Code.UNAVAILABLE
            assert clock.pending() == []
            done.set()

    run(test, loop)


def test_a_server_that_is_busy_sending_is_not_given_up() -> None:
    asked, send = asyncio.Event(), asyncio.Event()

    async def script(link: Scripted) -> None:
        link.greet()
        stream = await link.asked()
        asked.set()
        await send.wait()
        link.say(stream, wrap(b"first") + wrap(b"second")[:7])
        await link.gone()

    async def test() -> None:
        clock = FakeClock()
        async with scripted_channel(script, clock, KeepAlive(30.0, 20.0)) as channel:
            with channel.stream("/a/B", b"") as answers:
                await asked.wait()
                await clock.advance(40.0)
                send.set()
                assert await anext(answers) == b"first"
                assert answers.partial == 7
                await clock.advance(20.0)
                assert clock.pending() == [10.0]
                waiting = asyncio.ensure_future(anext(answers))
                await clock.advance(10.0)
                with pytest.raises(RpcError, match="ping"):
                    await waiting

    run(test)


def test_a_silent_server_may_be_left_alone() -> None:
    async def test() -> None:
        clock = FakeClock()
        async with scripted_channel(hold, clock, KeepAlive(0)) as channel:
            with channel.stream("/a/B", b""):
                assert clock.pending() == []

    run(test)


def test_a_server_that_says_we_ping_too_often_is_heard() -> None:
    async def script(link: Scripted) -> None:
        link.greet()
        await link.asked()
        link.h2.close_connection(11, b"too_many_pings")
        link.flush()

    async def test() -> None:
        async with scripted_channel(script) as channel:
            with pytest.raises(RpcError, match=r"ENHANCE_YOUR_CALM \(too_many_pings\)"):
                await channel.unary("/a/B", b"")
            assert channel.too_many_pings

    run(test)
