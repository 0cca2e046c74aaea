"""The HTTP client against real sockets, on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.fakes import settle
from tests.sources.faulty import (
    FLAGS,
    Asked,
    Authority,
    Server,
    answer,
    endless,
    names,
    raw,
    serving,
    silence,
    whole,
)
from tests.wire.served import LOOPS, run
from wigwag.errors import UsageError
from wigwag.wire.client.addresses import Address
from wigwag.wire.client.client import Client
from wigwag.wire.client.errors import (
    BrokenError,
    ForbiddenError,
    OversizeError,
    SlowError,
    UnreachableError,
    UntrustedError,
)
from wigwag.wire.client.tls import Trust
from wigwag.wire.client.url import parse_url
from wigwag.wire.h1.client import ClientRequest, ResponseLimits

loops = pytest.mark.parametrize("loop", LOOPS)


def call(server: Server, method: str = "GET", **more: Any) -> ClientRequest:
    return ClientRequest(parse_url(server.url), method, **more)


@loops
def test_a_request_is_answered_with_status_fields_and_body(loop: str) -> None:
    async def main() -> None:
        client = Client(resolve=names())
        async with serving(answer(b"yes", "201 Created", X_One="1")) as server:
            reply = await client.fetch(call(server, "POST", fields=(("X-Two", "2"),), body=b"question"))
            assert (reply.status, reply.body, reply.field("x-one")) == (201, b"yes", "1")
            [asked] = server.asked
            assert (asked.method, asked.body, asked.headers["x-two"]) == ("POST", b"question", "2")
        client.close()

    run(main, loop)


@loops
def test_a_body_can_be_read_piece_by_piece_as_it_comes(loop: str) -> None:
    async def main() -> None:
        heard = asyncio.Event()

        async def watch(_asked: Asked, server: Server) -> bool:
            await server.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
            await heard.wait()
            await server.write(b"3\r\ntwo\r\n0\r\n\r\n")
            return True

        client = Client(resolve=names(), limits=ResponseLimits(total=None, idle=None, body_bytes=None))
        async with serving(watch) as server:
            found = []
            async with client.stream(call(server)) as incoming:
                assert incoming.status == 200
                async for piece in incoming.pieces():
                    found.append(piece)
                    heard.set()
            assert found == [b"one", b"two"]
            await client.fetch(call(server))
            assert server.connections == 1
        client.close()

    run(main, loop)


@loops
def test_a_body_that_is_not_read_to_its_end_costs_the_connection(loop: str) -> None:
    async def main() -> None:
        client = Client(resolve=names())
        async with serving(endless(b"x" * 1000, 10_000)) as server:
            async with client.stream(call(server)) as incoming:
                pieces = incoming.pieces()
                assert await anext(pieces)
                await pieces.aclose()  # type: ignore[attr-defined]
            server.behaviour = answer()
            assert (await client.fetch(call(server))).body == FLAGS
            assert server.connections == 2
        client.close()

    run(main, loop)


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", b"to the end"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end", b"to the end"),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\nTrailer: y\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx and more that nobody asked for", b"x"),
    ],
)
def test_a_body_ends_where_its_framing_says(sent: bytes, body: bytes) -> None:
    async def main() -> None:
        client = Client(resolve=names())
        async with serving(raw(sent)) as server:
            reply = await client.fetch(call(server))
            assert (reply.status, reply.body) == (200, body)
            server.behaviour = answer()
            assert (await client.fetch(call(server))).body == FLAGS
        client.close()

    run(main)


def test_an_answer_to_head_has_no_body_whatever_it_says() -> None:
    async def main() -> None:
        client = Client(resolve=names())
        async with serving(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\nETag: x\r\n\r\n")) as server:
            reply = await client.fetch(call(server, "HEAD"))
            assert (reply.body, reply.field("etag")) == (b"", "x")
        client.close()

    run(main)


# connections that are kept


def test_a_connection_is_kept_and_used_again_but_not_for_what_must_not_be_repeated() -> None:
    async def main() -> None:
        client = Client(resolve=names())
        async with serving(answer()) as server:
            for method in ("GET", "GET", "POST", "GET"):
                await client.fetch(call(server, method))
            assert server.connections == 2
            server.behaviour = answer(Connection="close")
            await client.fetch(call(server))
            await client.fetch(call(server))
            assert server.connections == 3
        client.close()

    run(main)


@loops
def test_a_connection_that_was_used_a_moment_ago_serves_what_must_not_be_repeated_and_is_not_repeated(
    loop: str,
) -> None:
    async def main() -> None:
        client = Client(resolve=names(), fresh=60.0)
        async with serving(answer()) as server:
            for method in ("POST", "GET", "PATCH", "POST"):
                await client.fetch(call(server, method))
            assert server.connections == 1

            async def give_up(_asked: Asked, _server: Server) -> bool:
                return False

            server.behaviour = give_up
            with pytest.raises(BrokenError):
                await client.fetch(call(server, "POST"))
            assert (server.connections, len(server.asked)) == (1, 5)
        client.close()

    run(main, loop)


def test_a_request_that_ends_after_its_client_was_closed_leaves_no_connection() -> None:
    async def main() -> None:
        client = Client(resolve=names())
        async with serving(answer()) as server:
            async with client.stream(call(server)) as incoming:
                client.close()
                assert b"".join([piece async for piece in incoming.pieces()]) == FLAGS
            assert not client._idle
            assert (await client.fetch(call(server))).body == FLAGS
            assert not client._idle

    run(main)


def test_a_client_that_keeps_nothing_says_so() -> None:
    async def main() -> None:
        client = Client(resolve=names(), keep=False)
        async with serving(answer()) as server:
            await client.fetch(call(server))
            await client.fetch(call(server))
            assert server.connections == 2
            assert server.asked[0].headers["connection"] == "close"

    run(main)


@loops
@pytest.mark.parametrize("farewell", [b"", b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"])
def test_a_kept_connection_that_was_given_up_is_replaced(loop: str, farewell: bytes) -> None:
    async def main() -> None:
        tired = asyncio.Event()

        async def once(_asked: Asked, server: Server) -> bool:
            await server.write(whole())
            await tired.wait()
            await server.write(farewell)
            return False

        client = Client(resolve=names())
        async with serving(once) as server:
            for number in (1, 2, 3):
                assert (await client.fetch(call(server))).body == FLAGS
                assert server.connections == number
                tired.set()
                await settle()
                tired.clear()
        client.close()

    run(main, loop)


def test_what_follows_an_answer_is_not_taken_for_it() -> None:
    async def main() -> None:
        client = Client(resolve=names())
        async with serving(answer()) as server:
            server.behaviour = raw(whole(b"first") + whole(b"second", "500 Oops"))
            reply = await client.fetch(call(server))
            assert (reply.status, reply.body) == (200, b"first")
            server.behaviour = answer(b"third")
            assert (await client.fetch(call(server))).body == b"third"
        client.close()

    run(main)


def test_connections_that_are_kept_are_few() -> None:
    async def main() -> None:
        client = Client(resolve=names())
        async with serving(answer()) as server:
            for number in range(9):
                url = parse_url(f"http://host{number}.example:{server.port}/")
                await client.fetch(ClientRequest(url))
            assert len(client._idle) == 4
            await client.fetch(ClientRequest(parse_url(f"http://host8.example:{server.port}/")))
            assert server.connections == 9
        client.close()

    run(main)


@pytest.mark.parametrize(("spare", "dialled"), [(1, 5), (2, 4), (3, 3)])
def test_as_many_connections_to_a_server_are_kept_as_the_caller_wants(spare: int, dialled: int) -> None:
    async def main() -> None:
        client = Client(resolve=names(), spare=spare)
        async with serving(answer()) as server:
            for _ in range(2):
                await asyncio.gather(*(client.fetch(call(server)) for _ in range(3)))
            assert server.connections == dialled
            assert [len(kept) for kept in client._idle.values()] == [spare]
        client.close()
        assert client._idle == {}

    run(main)


def test_kept_connections_that_the_server_has_closed_are_all_let_go() -> None:
    async def main() -> None:
        tired = asyncio.Event()

        async def once(_asked: Asked, server: Server) -> bool:
            await server.write(whole())
            await tired.wait()
            return False

        client = Client(resolve=names(), spare=3)
        async with serving(once) as server:
            await asyncio.gather(*(client.fetch(call(server)) for _ in range(3)))
            tired.set()
            await settle()
            await client.fetch(call(server))
            assert [len(kept) for kept in client._idle.values()] == [1]
        client.close()

    run(main)


# addresses


def test_what_is_judged_is_what_is_connected_to() -> None:
    asked = []

    async def resolve(host: str, port: int) -> Sequence[Address]:
        asked.append(host)
        return await names()(host, port)

    async def main() -> None:
        judged = []

        def judge(ip: str) -> bool:
            judged.append(ip)
            return True

        client = Client(resolve=resolve, keep=False)
        async with serving(answer()) as server:
            await client.fetch(call(server), judge)
            assert (asked, judged) == (["localhost"], ["127.0.0.1"])
            with pytest.raises(ForbiddenError, match=r"leads to 127.0.0.1, where this request must not go"):
                await client.fetch(call(server), lambda _ip: False)
            assert server.connections == 1

    run(main)


def test_a_kept_connection_is_judged_again() -> None:
    async def main() -> None:
        client = Client(resolve=names())
        async with serving(answer()) as server:
            await client.fetch(call(server))
            with pytest.raises(ForbiddenError):
                await client.fetch(call(server), lambda _ip: False)
            assert len(server.asked) == 1
        client.close()

    run(main)


@loops
def test_the_next_address_is_tried_when_one_refuses(loop: str) -> None:
    async def main() -> None:
        async with serving(answer()) as server:
            with socket.socket() as closed:
                closed.bind(("127.0.0.2", 0))

                async def resolve(_host: str, port: int) -> Sequence[Address]:
                    family = socket.AF_INET
                    return [Address(family, closed.getsockname()), Address(family, ("127.0.0.1", port))]

                client = Client(resolve=resolve)
                assert (await client.fetch(call(server))).status == 200
                client.close()

    run(main, loop)


@loops
def test_the_system_resolves_names_and_a_refusal_is_told(loop: str) -> None:
    async def main() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = parse_url(f"http://localhost:{closed.getsockname()[1]}/")
            with pytest.raises(UnreachableError, match=r"localhost:\d+: no connection: Connection refused; see that"):
                await Client().fetch(ClientRequest(url))

    run(main, loop)


@loops
def test_a_unix_socket_is_a_way_to_every_host(loop: str, tmp_path: Path) -> None:
    async def main() -> None:
        path = str(tmp_path / "server.sock")
        client = Client(path=path)
        async with serving(answer(), path=path) as server:
            assert (await client.fetch(ClientRequest(parse_url("http://flags.example/x")))).body == FLAGS
            assert server.asked[0].headers["host"] == "flags.example"
        client.close()
        with pytest.raises(UnreachableError, match="no connection"):
            await Client(path=str(tmp_path / "nobody.sock")).fetch(ClientRequest(parse_url("http://flags.example/x")))

    run(main, loop)


# limits


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "the head is larger than 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300 + b"\r\n", "the head has more than 256 fields"),
        (b"HTTP/1.1 103 Hints\r\n\r\n" * 5000, "the head is larger than 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789", "larger than the limit of 8 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n123456789", "larger than the limit of 8 bytes"),
    ],
)
def test_an_answer_that_is_too_large_is_refused(sent: bytes, said: str) -> None:
    async def main() -> None:
        client = Client(resolve=names(), limits=ResponseLimits(body_bytes=8))
        async with serving(raw(sent)) as server:
            with pytest.raises(OversizeError, match=said):
                await client.fetch(call(server))

    run(main)


@loops
def test_every_wait_has_an_end(loop: str) -> None:
    async def forever(_host: str, _port: int) -> Sequence[Address]:
        await asyncio.Event().wait()
        return ()

    async def stuck(_asked: Asked, server: Server) -> bool:
        await server.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1")
        return await silence(_asked, server)

    async def main() -> None:
        async with serving(silence) as server:
            with pytest.raises(SlowError, match="does not let us connect"):
                await Client(resolve=forever, limits=ResponseLimits(connect=0.05)).fetch(call(server))
            with pytest.raises(SlowError, match="does not answer in time"):
                await Client(resolve=names(), limits=ResponseLimits(head=0.05)).fetch(call(server))
            with pytest.raises(SlowError, match="does not answer in time"):
                await Client(resolve=names(), limits=ResponseLimits(total=0.05)).fetch(call(server))
            server.behaviour = stuck
            with pytest.raises(SlowError, match="sends the body too slowly"):
                await Client(resolve=names(), limits=ResponseLimits(idle=0.05)).fetch(call(server))

    run(main, loop)


def test_what_cannot_be_sent_is_refused_before_it_is() -> None:
    async def main() -> None:
        client = Client(resolve=names())
        async with serving(answer()) as server:
            for name, value in (("X", "a\r\nY: b"), ("X\r\nY", "b"), ("Content-Length", "7"), ("X", "\u20ac")):
                with pytest.raises(UsageError):
                    await client.fetch(call(server, fields=((name, value),)))
            assert server.asked == []
        client.close()

    run(main)


# TLS


@loops
def test_tls_with_an_authority_of_ones_own(loop: str, tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority(tmp_path)
        async with serving(answer(b"x" * 3_000_000), authority.context("localhost")) as server:
            client = Client(resolve=names(), trust=Trust(str(authority.path)))
            for _ in range(2):
                assert len((await client.fetch(call(server))).body) == 3_000_000
            assert server.connections == 1
            client.close()
            with pytest.raises(UntrustedError, match=r"not trusted: .*; trust its authority"):
                await Client(resolve=names()).fetch(call(server))
            url = parse_url(server.url.replace("localhost", "other.example"))
            with pytest.raises(UntrustedError, match="use a name that the certificate is for"):
                await Client(resolve=names(), trust=Trust(str(authority.path))).fetch(ClientRequest(url))

    run(main, loop)


@loops
def test_a_client_certificate_is_shown_to_a_server_that_asks(loop: str, tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority(tmp_path)
        context = authority.context("localhost")
        context.load_verify_locations(authority.path)
        context.verify_mode = ssl.CERT_REQUIRED
        certificate = str(authority.issue("client.example"))
        async with serving(answer(), context) as server:
            client = Client(resolve=names(), trust=Trust(str(authority.path), certificate))
            assert (await client.fetch(call(server))).body == FLAGS
            client.close()
            with pytest.raises((UntrustedError, BrokenError, UnreachableError)):
                await Client(resolve=names(), trust=Trust(str(authority.path))).fetch(call(server))
            assert len(server.asked) == 1

    run(main, loop)


def test_old_tls_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority(tmp_path)
        context = authority.context("localhost")
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        async with serving(answer(), context) as server:
            with pytest.raises((UntrustedError, UnreachableError)):
                await Client(resolve=names(), trust=Trust(str(authority.path))).fetch(call(server))

    run(main)


@loops
def test_a_reader_gets_its_turn_when_nothing_comes_and_loses_nothing(loop: str) -> None:
    async def main() -> None:
        woken = asyncio.Event()

        async def watch(_asked: Asked, server: Server) -> bool:
            await server.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
            await woken.wait()
            await server.write(b"3\r\ntwo\r\n2\r\n's\r\n0\r\n\r\n")
            return True

        def soon() -> float:
            return asyncio.get_running_loop().time() + (60.0 if woken.is_set() else 0.01)

        client = Client(resolve=names(), limits=ResponseLimits(total=None, idle=None, body_bytes=None))
        async with serving(watch) as server:
            found = []
            async with client.stream(call(server)) as incoming:
                async for piece in incoming.pieces(soon):
                    found.append(piece)
                    if not piece:
                        woken.set()
            assert found[:2] == [b"one", b""]
            assert b"".join(found) == b"onetwo's"
        client.close()

    run(main, loop)


@loops
def test_a_stream_that_is_cancelled_is_freed_without_the_garbage_collector(loop: str) -> None:
    """What a connection costs is not Python's memory, so the collector would let thousands of them stay."""

    async def main() -> None:
        client = Client(resolve=names())
        reached = asyncio.Event()
        kept: list[weakref.ref[Any]] = []

        async def hang(_asked: Asked, server: Server) -> bool:
            await server.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            await asyncio.Event().wait()
            return False

        async def read(server: Server) -> None:
            async with client.stream(call(server)) as incoming:
                kept.append(weakref.ref(incoming))
                async for _ in incoming.pieces():
                    reached.set()

        async with serving(hang) as server, asyncio.TaskGroup() as group:
            task = group.create_task(read(server))
            await reached.wait()
            await settle()
            task.cancel()
            del task
            await settle()
            assert kept[0]() is None
        client.close()

    gc.disable()
    try:
        run(main, loop)
    finally:
        gc.enable()
