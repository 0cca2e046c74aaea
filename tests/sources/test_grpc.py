"""The sync service of a server that does what the test says, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import h2.events
import pytest
from h2.exceptions import ProtocolError

from bench.process import replace
from tests.pipeline.fakes import FakeClock, run, settle
from tests.sources.disk import Reader, reading_stream
from tests.sources.grpc_server import NEW, OLD, document, one
from tests.wire.client.server import GRPC, Script, Scripted, bytes_only, scripted
from wigwag.errors import UsageError
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Unavailable, Wanted, describe
from wigwag.pipeline.watch import WatchPolicy
from wigwag.sources.document import Document
from wigwag.sources.remote.grpc import GrpcDeps, GrpcWatch, check, watch_grpc
from wigwag.wire.client.grpc_response import TRICKLE_SECONDS
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.rpcs.envelope import wrap
from wigwag.wire.rpcs.protobuf import fields, integer, text

WAITING = Unavailable("the server is connected, but has not sent a document yet")


async def until(condition: Callable[[], object]) -> None:
    """Let everybody run until something is so."""
    while not condition():
        await settle()


@asynccontextmanager
async def listening(script: Script, path: Path) -> AsyncIterator[str]:
    """A scripted server at a unix socket, so that no thread has to resolve a name; give the target."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path / "s"))
    async with scripted(script, made):
        yield f"unix:{path / 's'}"


@asynccontextmanager
async def following(script: Script, path: Path, **options: Any) -> AsyncIterator[Reader]:
    """Follow a scripted server on a clock that stands still."""
    clock = FakeClock()
    deps = GrpcDeps(clock, lambda: 0.5)
    async with listening(script, path) as target:
        stream = watch_grpc(GrpcWatch(target, **options), deps)
        async with reading_stream(stream, clock) as reader:
            yield reader


async def raised(script: Script, path: Path, **options: Any) -> RpcError:
    """Return what following a scripted server ends with."""
    async with listening(script, path) as target:
        with pytest.raises(RpcError) as caught:
            async for _ in watch_grpc(GrpcWatch(target, **options), GrpcDeps(FakeClock(), lambda: 0.5, 5.0)):
                pass
    return caught.value


def test_every_message_is_a_document(tmp_path: Path) -> None:
    async def script(link: Scripted) -> None:
        stream = await one(link, '{"flags": {}}')
        link.say(stream, document("") + document("x" * 1000))
        await link.gone()

    async def main() -> None:
        async with following(script, tmp_path) as reader:
            assert await reader.next() == Document(b'{"flags": {}}', "json")
            assert await reader.next() == Document(b"", "json")
            assert await reader.next() == Document(b"x" * 1000, "json")

    run(main)


def test_the_request_says_who_asks_and_for_what_in_the_body_and_in_a_header(tmp_path: Path) -> None:
    seen: list[tuple[dict[bytes, bytes], bytes]] = []

    async def script(link: Scripted) -> None:
        link.greet()
        head = await link.until(h2.events.RequestReceived)
        body = await link.until(h2.events.DataReceived)
        seen.append((dict(head.headers or []), body.data or b""))
        await link.gone()

    async def main() -> None:
        headers = (("X-Token", "secret"), ("raw-bin", "ü"))
        options = {"provider_id": "agent-1", "headers": headers, "authority": "flags.test"}
        for selector in ("flagSetId=a", "source=flägs", ""):
            async with following(script, tmp_path, selector=selector, **options):
                await until(lambda: seen)
            (tmp_path / "s").unlink()
            fields_, body = seen.pop()
            assert fields_[b":path"] == NEW.encode() + b"SyncFlags"
            assert fields_[b":authority"] == b"flags.test"
            assert (fields_[b"x-token"], fields_[b"raw-bin"]) == (b"secret", b"w7w=")
            assert fields_.get(b"flagd-selector") == (selector.encode() if selector == "flagSetId=a" else None)
            assert fields(body[5:]) == [(1, 2, b"agent-1"), (2, 2, selector.encode())]

    run(main)


def test_an_answered_ping_shows_that_the_document_still_holds(tmp_path: Path) -> None:
    async def script(link: Scripted) -> None:
        await one(link)
        for _ in range(3):
            await link.until(h2.events.PingReceived)
        await link.gone()

    async def main() -> None:
        async with following(script, tmp_path) as reader:
            assert await reader.next() == Document(b"{}", "json")
            for _ in range(3):
                before = reader.confirmed
                assert reader.clock.pending() == [30.0]
                await reader.clock.advance(30.0)
                await until(lambda: reader.confirmed > before)  # noqa: B023 - called at once
            assert reader.confirmed == 3
            assert reader.seen == []

    run(main)


def test_a_ping_shows_nothing_before_the_first_document_nor_while_the_next_one_is_on_its_way(tmp_path: Path) -> None:
    begin, finish = asyncio.Event(), asyncio.Event()

    async def script(link: Scripted) -> None:
        link.greet()
        stream = await link.asked()
        await link.until(h2.events.PingReceived)
        await begin.wait()
        link.say(stream, document("{}") + document("{ }")[:7])
        await link.until(h2.events.PingReceived)
        await finish.wait()
        link.say(stream, document("{ }")[7:])
        await link.gone()

    async def main() -> None:
        async with following(script, tmp_path) as reader:
            await until(lambda: reader.clock.pending() == [30.0])
            await reader.clock.advance(30.0)
            assert await reader.next() == WAITING
            begin.set()
            assert await reader.next() == Document(b"{}", "json")
            await reader.clock.advance(30.0)
            await until(lambda: reader.clock.pending() == [30.0])
            finish.set()
            assert await reader.next() == Document(b"{ }", "json")
            assert reader.confirmed == 0

    run(main)


def test_a_document_that_trickles_in_is_given_up_and_asked_for_again(tmp_path: Path) -> None:
    connections = []

    async def script(link: Scripted) -> None:
        connections.append(link)
        stream = await one(link, str(len(connections)))
        link.say(stream, document("x" * 1000)[:7])
        with suppress(AssertionError, ProtocolError):  # until the client leaves
            while True:
                await link.until(h2.events.PingReceived)
                link.say(stream, b"x")

    async def main() -> None:
        async with following(script, tmp_path) as reader:
            assert await reader.next() == Document(b"1", "json")
            while not reader.seen:
                await reader.clock.advance(10.0)
            assert reader.clock.now() - 1000.0 >= TRICKLE_SECONDS
            assert await reader.next() == Document(b"2", "json")

    run(main)


def test_a_server_that_ends_old_streams_is_asked_again_at_once_and_has_not_failed(tmp_path: Path) -> None:
    connections, close = [], asyncio.Event()

    async def script(link: Scripted) -> None:
        connections.append(link)
        stream = await one(link, str(len(connections)))
        await close.wait()
        close.clear()
        link.end(stream, str(Code.DEADLINE_EXCEEDED.value))
        await link.gone()

    async def main() -> None:
        async with following(script, tmp_path, keep_alive=0) as reader:
            for number in (b"1", b"2", b"3"):
                assert await reader.next() == Document(number, "json")
                await reader.clock.advance(600.0)
                close.set()
                await until(lambda: reader.clock.pending())
                (pause,) = reader.clock.pending()
                assert pause <= 0.2
                await reader.clock.advance(pause)
            close.set()

    run(main)


@pytest.mark.parametrize("status", ["0", "4"])
def test_a_server_that_ends_every_stream_soon_is_asked_a_few_times_per_minute(tmp_path: Path, status: str) -> None:
    connections = []

    async def script(link: Scripted) -> None:
        connections.append(link)
        link.end(await one(link, str(len(connections))), status)
        await link.gone()

    async def main() -> None:
        async with following(script, tmp_path, keep_alive=0) as reader:
            pauses = []
            for _ in range(60):
                assert isinstance(await reader.next(), Document)
                await until(lambda: reader.clock.pending())
                pauses += reader.clock.pending()
                await reader.clock.advance(pauses[-1])
            assert pauses[:6] == pytest.approx([0.15] * 6)
            assert sum(pauses[6:]) > 9.0 * 54

    run(main)


ENDINGS: dict[str, tuple[Script, str]] = {}


def ending(told: str) -> Callable[[Script], Script]:
    def add(script: Script) -> Script:
        ENDINGS[script.__name__] = script, told
        return script

    return add


@ending("the server ended the stream without sending a document")
async def nothing(link: Scripted) -> None:
    link.greet()
    link.end(await link.asked())
    await link.gone()


@ending("PERMISSION_DENIED: go away")
async def denial(link: Scripted) -> None:
    link.greet()
    event = await link.until(h2.events.StreamEnded)
    link.h2.send_headers(event.stream_id, [*GRPC, ("grpc-status", "7"), ("grpc-message", "go away")], end_stream=True)
    link.flush()
    await link.gone()


@ending("UNAVAILABLE: the ")
async def abort(link: Scripted) -> None:
    await one(link)
    await link.writer.drain()
    link.writer.transport.abort()


@ending("UNAVAILABLE: the ")
async def close(link: Scripted) -> None:
    await one(link)


@ending("INTERNAL: the server reset the stream: INTERNAL_ERROR")
async def reset(link: Scripted) -> None:
    link.h2.reset_stream(await one(link), 2)
    link.flush()
    await link.gone()


@ending("UNAVAILABLE: the response is not gRPC but HTTP 503 (text/html)")
async def page(link: Scripted) -> None:
    link.greet()
    event = await link.until(h2.events.StreamEnded)
    link.h2.send_headers(event.stream_id, [(":status", "503"), ("content-type", "text/html")], end_stream=True)
    link.flush()
    await link.gone()


@ending("INVALID_ARGUMENT: the message is truncated")
async def rubbish(link: Scripted) -> None:
    link.greet()
    link.say(await link.asked(), wrap(b"\x0a\x7f"))
    await link.gone()


@ending("UNAVAILABLE: cannot connect: unix:")
async def http1(link: Scripted) -> None:
    await bytes_only(b"HTTP/1.1 400 Bad Request\r\n\r\n")(link)


@ending("UNAVAILABLE: cannot connect: unix:")
async def random_bytes(link: Scripted) -> None:
    await bytes_only(b"\xde\xad\xbe\xef" * 100)(link)


@pytest.mark.parametrize("name", ENDINGS)
def test_anything_else_that_ends_a_young_stream_is_raised_with_its_reason(name: str, tmp_path: Path) -> None:
    script, told = ENDINGS[name]

    async def main() -> None:
        error = await raised(script, tmp_path)
        assert describe(error).startswith(f"RpcError: {told}")

    run(main)


def test_tls_to_a_server_without_it_is_raised_with_its_reason(tmp_path: Path) -> None:
    async def main() -> None:
        error = await raised(bytes_only(b"HTTP/1.1 400 Bad Request\r\n\r\n"), tmp_path, tls=True)
        assert "TLS failed" in error.message

    run(main)


def test_a_node_that_is_lost_is_found_out_and_the_next_one_asked(tmp_path: Path) -> None:
    connections, done = [], asyncio.Event()

    async def script(link: Scripted) -> None:
        connections.append(link)
        await one(link, str(len(connections)))
        link.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await done.wait()

    async def main() -> None:
        async with following(script, tmp_path) as reader:
            assert await reader.next() == Document(b"1", "json")
            await reader.clock.advance(30.0 + 19.9)
            assert len(connections) == 1
            await reader.clock.advance(0.5)
            assert await reader.next() == Document(b"2", "json")
            assert reader.confirmed == 0
            done.set()

    run(main)


def test_a_server_that_says_goodbye_is_followed_to_the_end_of_its_stream(tmp_path: Path) -> None:
    connections, go = [], asyncio.Event()

    async def script(link: Scripted) -> None:
        connections.append(link)
        stream = await one(link, str(len(connections)))
        if len(connections) == 1:
            link.writer.write(bytes.fromhex("0000080700000000007fffffff00000000"))
            await go.wait()
            link.say(stream, document("last"))
            link.end(stream)
        await link.gone()

    async def main() -> None:
        async with following(script, tmp_path, keep_alive=0) as reader:
            assert await reader.next() == Document(b"1", "json")
            await reader.clock.advance(60.0)
            assert len(connections) == 1
            go.set()
            assert await reader.next() == Document(b"last", "json")
            await until(lambda: reader.clock.pending())
            await reader.clock.advance(0.2)
            assert await reader.next() == Document(b"2", "json")

    run(main)


def test_a_server_that_finds_our_pings_too_many_gets_half_as_many(tmp_path: Path) -> None:
    connections = []

    async def script(link: Scripted) -> None:
        connections.append(link)
        await one(link, str(len(connections)))
        if len(connections) < 3:
            await link.until(h2.events.PingReceived)
            link.h2.close_connection(11, b"too_many_pings")
            link.flush()
        else:
            await link.gone()

    async def main() -> None:
        async with following(script, tmp_path) as reader:
            for every, number in ((30.0, b"1"), (60.0, b"2"), (120.0, b"3")):
                assert await reader.next() == Document(number, "json")
                assert reader.clock.pending() == [pytest.approx(every, abs=0.2)]
                if number < b"3":
                    await reader.clock.advance(*reader.clock.pending())
                    await until(lambda: reader.clock.pending() and min(reader.clock.pending()) <= 0.2)
                    await reader.clock.advance(*reader.clock.pending())

    run(main)


def unimplemented(link: Scripted, stream: int) -> None:
    link.h2.send_headers(stream, [*GRPC, ("grpc-status", "12"), ("grpc-message", "unknown service")], end_stream=True)
    link.flush()


async def old_service(link: Scripted, paths: list[str]) -> int:
    """Answer the new service as old servers do, and begin to answer the old one."""
    while True:
        head = await link.until(h2.events.RequestReceived)
        await link.until(h2.events.StreamEnded)
        assert head.stream_id is not None
        paths.append(dict(head.headers or [])[b":path"].decode())
        if paths[-1].startswith(OLD):
            link.h2.send_headers(head.stream_id, GRPC)
            return head.stream_id
        unimplemented(link, head.stream_id)


def test_an_old_server_is_asked_for_the_old_service_and_that_is_remembered(tmp_path: Path) -> None:
    paths: list[str] = []
    close = asyncio.Event()

    async def script(link: Scripted) -> None:
        link.greet()
        stream = await old_service(link, paths)
        link.say(stream, document("{}", 1))
        await close.wait()
        close.clear()
        link.end(stream, "4")
        await link.gone()

    async def main() -> None:
        async with following(script, tmp_path, keep_alive=0) as reader:
            for _ in range(2):
                assert await reader.next() == Document(b"{}", "json")
                await reader.clock.advance(60.0)
                close.set()
                await until(lambda: reader.clock.pending())
                await reader.clock.advance(0.2)
            await reader.next()
            close.set()
            assert paths == [NEW + "SyncFlags", OLD + "SyncFlags", OLD + "SyncFlags", OLD + "SyncFlags"]

    run(main)


def test_a_server_that_has_neither_service_says_so_and_is_asked_twice_only(tmp_path: Path) -> None:
    paths = []

    async def script(link: Scripted) -> None:
        link.greet()
        for _ in range(2):
            stream = (await link.until(h2.events.StreamEnded)).stream_id
            paths.append(stream)
            assert stream is not None
            unimplemented(link, stream)
        await link.gone()

    async def main() -> None:
        error = await raised(script, tmp_path)
        assert (error.code, error.message) == (Code.UNIMPLEMENTED, "UNIMPLEMENTED: unknown service")
        assert len(paths) == 2

    run(main)


def test_of_the_old_service_a_ping_says_nothing_new_and_a_delta_is_a_reason_to_fetch_the_whole(tmp_path: Path) -> None:
    paths: list[str] = []

    async def script(link: Scripted) -> None:
        link.greet()
        stream = await old_service(link, paths)
        link.say(stream, document("0", 0) + document("1", 1) + document("", 5) + document("a delta", 3))
        fetch = await old_service(link, paths)
        link.say(fetch, document("whole"))
        link.end(fetch)
        await link.gone()

    async def main() -> None:
        async with following(script, tmp_path) as reader:
            for content in (b"0", b"1", b"whole"):
                assert await reader.next() == Document(content, "json")
            assert reader.confirmed == 1
            assert paths[1:] == [OLD + "SyncFlags", OLD + "FetchAllFlags"]

    run(main)


@pytest.mark.parametrize(
    "message",
    [b"\x20\x20" * 2000, b"\x23" + b"\x20\x20" * 2000 + b"\x24", b"\x0a\x05{}", b"\x0a", b"\x20\xff", b"\x07"],
    ids=["many", "group", "short", "no-size", "no-end", "kind"],
)
def test_a_message_that_holds_no_document_is_refused_however_many_fields_it_has(message: bytes, tmp_path: Path) -> None:
    async def script(link: Scripted) -> None:
        link.greet()
        link.say(await link.asked(), wrap(message))
        await link.gone()

    async def main() -> None:
        assert (await raised(script, tmp_path)).code is Code.INVALID_ARGUMENT

    run(main)


def test_fields_that_nobody_knows_are_skipped(tmp_path: Path) -> None:
    others = text(3, "x" * 1000) + integer(9, 1 << 40) + b"\x11" + bytes(8) + b"\x15" + bytes(4)

    async def script(link: Scripted) -> None:
        link.greet()
        link.say(await link.asked(), wrap(others + text(1, "{") + text(2, "context") + text(1, "{}") + others))
        await link.gone()

    async def main() -> None:
        async with following(script, tmp_path) as reader:
            assert await reader.next() == Document(b"{}", "json")

    run(main)


def test_too_large_a_document_is_refused_by_its_size_and_the_flags_stay(tmp_path: Path) -> None:
    sent: list[int] = []
    change = asyncio.Event()

    async def script(link: Scripted) -> None:
        large = (100 << 20).to_bytes(5, "big")
        if sent:  # after the first time, the large document is all that there is
            link.greet()
            stream = await link.asked()
        else:
            stream = await one(link, "good")
            await change.wait()
        size = 0
        link.say(stream, large)
        while link.h2.local_flow_control_window(stream) >= 16_384:
            link.say(stream, bytes(16_384))
            size += 16_384
        sent.append(size)
        await link.gone()

    async def main() -> None:
        clock = FakeClock()
        deps = GrpcDeps(clock, lambda: 0.5)
        async with listening(script, tmp_path) as target:
            spec = GrpcWatch(target)
            pipeline: Pipeline[GrpcWatch, Document, dict[GrpcWatch, Document]] = Pipeline(
                [Wanted(spec)], lambda each: watch_grpc(each, deps), dict, policy=WatchPolicy(clock=clock)
            )
            async with asyncio.TaskGroup() as group:
                task = group.create_task(pipeline.run())
                await until(lambda: pipeline.published.serial)
                await clock.advance(60.0)
                change.set()
                while pipeline.statuses()[0].state != "failing":
                    await clock.advance(0.2)
                (status,) = pipeline.statuses()
                assert status.error == f"RpcError: RESOURCE_EXHAUSTED: the message is larger than {64 << 20} bytes"
                assert pipeline.published.value == {spec: Document(b"good", "json")}
                assert max(sent) <= 1 << 20
                task.cancel()

    run(main)


def test_the_rate_of_requests_to_a_server_that_fails_is_bounded(tmp_path: Path) -> None:
    connections = []

    async def script(link: Scripted) -> None:
        connections.append(link)
        link.greet()
        await link.asked()
        link.writer.transport.abort()

    async def main() -> None:
        clock = FakeClock()
        deps = GrpcDeps(clock, lambda: 0.5)
        async with listening(script, tmp_path) as target:
            policy = WatchPolicy(clock=clock, random=lambda: 1.0)
            pipeline: Pipeline[GrpcWatch, Document, object] = Pipeline(
                [Wanted(GrpcWatch(target))], lambda each: watch_grpc(each, deps), dict, policy=policy
            )
            async with asyncio.TaskGroup() as group:
                task = group.create_task(pipeline.run())
                start = clock.now()
                while clock.now() < start + 600:
                    before = len(connections)
                    await until(lambda: clock.pending() and pipeline.statuses()[0].state == "failing")
                    await clock.advance(min(clock.pending()))
                    await until(lambda: len(connections) > before)  # noqa: B023 - called at once
                assert 20 <= len(connections) <= 8 + 600 / 30 + 2
                task.cancel()

    run(main)


def test_whoever_stops_following_hangs_up(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def script(link: Scripted) -> None:
        await one(link)
        await link.until(h2.events.ConnectionTerminated)
        await link.gone()
        gone.set()

    async def main() -> None:
        async with following(script, tmp_path) as reader:
            await reader.next()
        assert gone.is_set()
        assert reader.clock.pending() == []

    run(main)


GOOD = GrpcWatch("flags:8015")
WRONG = [
    (GrpcWatch("xds:///flags"), "xDS is not supported"),
    (GrpcWatch("flags:8015", authority="a b"), "cannot be the authority of a server"),
    (GrpcWatch("flags:8015", headers=(("a b", "secret"),)), "the header 'a b' cannot be sent"),
    (GrpcWatch("flags:8015", headers=(("TE", "secret"),)), "the header 'te' cannot be sent"),
    (GrpcWatch("flags:8015", headers=(("grpc-timeout", "secret"),)), "the header 'grpc-timeout' cannot be sent"),
    (GrpcWatch("flags:8015", headers=(("x", "secret\r\nhost: a"),)), "the value of the header 'x' must be printable"),
    (GrpcWatch("flags:8015", headers=(("x", "secrét"),)), "the value of the header 'x' must be printable"),
]


@pytest.mark.parametrize(("spec", "told"), WRONG)
def test_what_cannot_be_is_refused_before_anything_is_asked(spec: GrpcWatch, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(spec)
    assert told in str(caught.value)
    assert "secr" not in str(caught.value)


def test_a_spec_leads_to_an_endpoint_and_shows_no_secrets() -> None:
    spec = GrpcWatch("envoy://proxy:1/flags", tls=True, cert_path="ca.pem", headers=(("tenant", "secret"),))
    endpoint = check(spec)
    assert (endpoint.places, endpoint.authority) == ((("proxy", 1),), "flags")
    assert (endpoint.tls, endpoint.trust.authority) == (True, "ca.pem")
    assert "secret" not in repr(spec) + str(spec)
    assert str(GrpcWatch("flags:1", selector="a=b")) == "grpc:flags:1 (a=b)"


def checking(tokens: list[str], over: asyncio.Event) -> Script:
    """Make a server that notes tokens, sends a document, and refuses the token when it is told so, quoting it."""

    async def script(link: Scripted) -> None:
        link.greet()
        head = await link.until(h2.events.RequestReceived)
        token = dict(head.headers or ())[b"authorization"]
        tokens.append(token.decode())
        stream = await link.asked()
        link.say(stream, document(str(len(tokens))))
        gone, told = asyncio.ensure_future(link.gone()), asyncio.ensure_future(over.wait())
        await asyncio.wait([gone, told], return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if gone.done():
            return
        over.clear()
        message = b"unknown token " + token.removeprefix(b"Bearer ")
        link.h2.send_headers(stream, [("grpc-status", "16"), ("grpc-message", message.decode())], end_stream=True)
        link.flush()
        await gone

    return script


def test_a_token_that_was_replaced_is_sent_when_the_old_one_is_refused(tmp_path: Path) -> None:
    token, tokens = tmp_path / "token", list[str]()
    token.write_text("first-token\n")

    async def main() -> None:
        over = asyncio.Event()
        async with following(checking(tokens, over), tmp_path, keep_alive=0, token_file=str(token)) as reader:
            assert await reader.next() == Document(b"1", "json")
            for number in (2, 3):
                replace(token, f"token-{number}")
                over.set()
                await until(lambda: reader.clock.pending())
                assert reader.clock.pending() == [pytest.approx(0.15)], "almost at once"
                await reader.clock.advance(0.2)
                assert await reader.next() == Document(str(number).encode(), "json")

    run(main)
    assert tokens == ["Bearer first-token", "Bearer token-2", "Bearer token-3"]


def test_a_token_that_was_not_replaced_and_is_refused_is_an_error_without_the_token(tmp_path: Path) -> None:
    token, tokens = tmp_path / "token", list[str]()
    token.write_text("first-token")

    async def main() -> RpcError:
        over = asyncio.Event()
        over.set()
        return await raised(checking(tokens, over), tmp_path, token_file=str(token))

    error = run(main)
    assert (error.code, error.message) == (Code.UNAUTHENTICATED, "UNAUTHENTICATED: unknown token ***")
    assert tokens == ["Bearer first-token"]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), ("", "is empty"), ("two words", "cannot be sent"), ("hush\x00", "cannot be sent")],
)
def test_a_token_file_that_holds_no_token_is_named_and_not_quoted(
    tmp_path: Path, content: str | None, said: str
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)

    async def main() -> None:
        async for _ in watch_grpc(GrpcWatch("127.0.0.1:1", token_file=str(token)), GrpcDeps(FakeClock())):
            pass

    with pytest.raises(UsageError) as caught:
        run(main)
    assert str(token) in str(caught.value)
    assert said in str(caught.value)
    assert not content or content not in str(caught.value)
