"""An http source against everything a server can do wrong: trouble that says what, and recovery without help.

Each fault is played after a good document, then the server recovers. The requests are counted, and
so is the time between them.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.pipeline.fakes import run
from tests.sources.faulty import (
    FLAGS,
    Asked,
    Authority,
    Behaviour,
    Server,
    Watched,
    answer,
    drip,
    endless,
    extension,
    raw,
    redirect,
    serving,
    silence,
    watching,
)
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.sources.document import Document
from wigwag.wire.client.addresses import Address
from wigwag.wire.h1.client import ResponseLimits

HASTY = ResponseLimits(head=2.0, total=2.0)
SLOW = ("slow drip", "silence")
MEGABYTE = b"x" * (1 << 20)

FAULTS: dict[str, tuple[Behaviour, str]] = {
    "500": (answer(b"oops", "500 Internal Server Error"), "answered 500 where a document is expected; look at the"),
    "401": (answer(b"", "401 Unauthorized"), "answered 401 where a document is expected; check its credentials"),
    "404": (answer(b"", "404 Not Found"), "answered 404 where a document is expected; check the URL"),
    "204": (answer(b"", "204 No Content"), "answered 204 where a document is expected"),
    "206": (answer(b"{", "206 Partial Content"), "answered 206 where a document is expected"),
    "garbage": (raw(b"\x16\x03\x01\x02SSH-2.0 <html>" * 9), "the response is not HTTP/1.1"),
    "nothing": (raw(b""), "closed before the response was whole"),
    "half a head": (raw(b"HTTP/1.1 200 OK\r\nContent-Le"), "closed before the head was whole"),
    "truncated": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"), "closed before the body was whole"),
    "truncated chunks": (
        raw(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"fl\r\n'),
        "closed before the body was whole",
    ),
    "truncated gzip": (answer(gzip.compress(FLAGS)[:-9], Content_Encoding="gzip"), "compressed body breaks off"),
    "no gzip": (answer(FLAGS, Content_Encoding="gzip"), "cannot be decompressed"),
    "two gzips": (answer(gzip.compress(FLAGS) * 2, Content_Encoding="gzip"), "something follows the compressed body"),
    "brotli": (answer(FLAGS, Content_Encoding="br"), "serve it plain or as gzip"),
    "100 MB told": (
        endless(MEGABYTE, 100, b"Content-Length: 104857600\r\n"),
        "the body is larger than the limit of 65536 bytes",
    ),
    "100 MB in chunks": (endless(MEGABYTE, 100), "the body is larger than the limit of 65536 bytes"),
    "100 MB to the end": (endless(MEGABYTE, 100, b""), "the body is larger than the limit of 65536 bytes"),
    "gzip bomb": (
        answer(gzip.compress(b"\0" * (50 << 20)), Content_Encoding="gzip"),
        "the body is larger than the limit of 65536 bytes",
    ),
    "endless head": (raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200_000), "the head "),
    "endless extension": (extension, "far more framing than body"),
    "slow drip": (drip(0.01), "sends the body too slowly"),
    "silence": (silence, "does not answer in time"),
    "redirect loop": (redirect("/flags"), "redirects more than 10 times"),
    "redirect to another scheme": (redirect("https://localhost/flags"), "redirects to another scheme"),
    "redirect to link-local": (redirect("http://169.254.169.254/"), "leads to 169.254.169.254, where"),
    "redirect to nowhere": (answer(b"", "302 Found"), "without saying where to go"),
}


async def trouble(watched: Watched, said: str) -> None:
    found = await watched.on()
    assert isinstance(found, Unavailable)
    assert said in found.reason
    assert "localhost" in found.reason or "169.254" in found.reason


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_and_survived(name: str) -> None:
    behaviour, said = FAULTS[name]

    async def main() -> None:
        deps: dict[str, Any] = {"limits": HASTY if name in SLOW else ResponseLimits()}
        async with (
            serving(answer(ETag='"1"')) as server,
            watching(server.url, deps, most=65536) as watched,
        ):
            assert await watched.next() == Document(FLAGS)
            server.behaviour = behaviour
            times = 1 if name in SLOW else 3
            for _ in range(times):
                await trouble(watched, said)
            hops = 11 if "loop" in name else 1
            repeated = name == "nothing"  # a kept connection that is closed in silence is replaced, once
            assert len(server.asked) == 1 + times * hops + repeated
            assert server.asked[-1].headers["if-none-match"] == '"1"'  # trouble changes nothing
            server.behaviour = answer(ETag='"1"')
            assert await watched.on() is UNCHANGED
            server.behaviour = answer(b"news")
            assert await watched.on() == Document(b"news")

    run(main)


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in SLOW])
def test_a_fault_at_the_start_is_told_and_survived(name: str) -> None:
    behaviour, said = FAULTS[name]

    async def main() -> None:
        async with serving(behaviour) as server, watching(server.url, most=65536) as watched:
            assert said in (await watched.next()).reason
            server.behaviour = answer()
            assert await watched.on() == Document(FLAGS)

    run(main)


@pytest.mark.parametrize("name", ["100 MB in chunks", "100 MB to the end", "gzip bomb", "endless extension"])
def test_what_is_too_large_is_cut_and_not_held_in_memory(name: str) -> None:
    async def main() -> None:
        async with serving(answer()) as server, watching(server.url, most=65536) as watched:
            await watched.next()
            server.behaviour = FAULTS[name][0]
            tracemalloc.start()
            try:
                await trouble(watched, FAULTS[name][1])
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < 2_500_000  # two of them are the server's own
            assert server.sent < 40 << 20  # the kernel's buffers take some that nobody reads

    run(main)


def test_a_wrong_type_is_a_document_for_the_parser_to_refuse() -> None:
    async def main() -> None:
        page = b"<html>please log in</html>"
        async with serving(answer(page, Content_Type="text/html")) as server, watching(server.url) as watched:
            assert await watched.next() == Document(page)
            server.behaviour = answer(FLAGS, Content_Type="text/plain")
            assert await watched.on() == Document(FLAGS)

    run(main)


def minute(random: Any) -> int:
    """Return how often a server that refuses connections is asked in a minute."""

    async def main() -> int:
        with socket.socket() as held:  # bound and not listening: nobody else gets the port
            held.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{held.getsockname()[1]}/"
            async with watching(url, {"random": random}) as watched:
                began, count = watched.clock.now(), 1
                assert "no connection: Connection refused; see that the server is up" in (await watched.next()).reason
                while watched.clock.now() < began + 60:
                    assert (await watched.on()).reason.startswith("UnreachableError: 127.0.0.1:")
                    count += 1
                assert max(watched.paused) <= 30
                return count

    return run(main)


def test_a_minute_of_refused_connections_is_a_handful_of_requests() -> None:
    counts = [minute(Random(seed).random) for seed in range(20)]
    assert max(counts) <= 30
    assert minute(lambda: 0.5) <= 12


def test_after_a_minute_of_refusals_the_server_is_found_again() -> None:
    async def main() -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            async with watching(f"http://127.0.0.1:{held.getsockname()[1]}/") as watched:
                began = watched.clock.now()
                await watched.next()
                while watched.clock.now() < began + 60:
                    assert isinstance(await watched.on(), Unavailable)
                assert watched.paused[0] < 1
                async with serving(answer(), held=held):
                    assert await watched.on() == Document(FLAGS)

    run(main)


def test_a_name_without_an_address_is_told_and_survived() -> None:
    found = {"up": False}

    async def resolve(_host: str, port: int) -> Sequence[Address]:
        if not found["up"]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [Address(socket.AF_INET, ("127.0.0.1", port))]

    async def main() -> None:
        async with serving(answer()) as server, watching(server.url, {"resolve": resolve}) as watched:
            reason = f"UnreachableError: localhost:{server.port}: no address: Name or service not known; "
            assert (await watched.next()).reason == reason + "check the name and this machine's DNS"
            found["up"] = True
            assert await watched.on() == Document(FLAGS)

    run(main)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"days": -1}, "not trusted: certificate has expired; renew the server's certificate"),
        ({"dns": "other.example"}, "certificate is not valid for 'localhost'"),
        ({"unknown": True}, "unable to get local issuer certificate; trust its authority"),
    ],
)
def test_a_certificate_that_proves_nothing_is_told_and_survived(bad: dict[str, Any], said: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signer = Authority(tmp_path, "another") if "unknown" in bad else authority

    async def main() -> None:
        context = signer.context(bad.get("dns", "localhost"), days=bad.get("days", 1))
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            where = f"localhost:{held.getsockname()[1]}"
            async with watching(f"https://{where}/", ca_path=str(authority.path)) as watched:
                async with serving(answer(), context, held=held.dup()) as server:
                    for reason in ((await watched.next()).reason, (await watched.on()).reason):
                        assert reason.startswith(f"UntrustedError: {where}: ")
                        assert said in reason
                    assert server.asked == []
                async with serving(answer(), authority.context("localhost"), held=held.dup()):
                    assert await watched.on() == Document(FLAGS)

    run(main)


def test_a_server_that_does_not_speak_tls_is_told() -> None:
    async def plain(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(plain, "127.0.0.1", 0)
        async with server, watching(f"https://localhost:{server.sockets[0].getsockname()[1]}/") as watched:
            assert "speaks TLS 1.2 or newer on this port" in (await watched.next()).reason

    run(main)


def test_a_ca_file_is_read_again_when_it_is_mended(tmp_path: Path) -> None:
    async def main() -> None:
        authority, ca = Authority(tmp_path), tmp_path / "mounted.pem"
        context = authority.context("localhost")
        async with serving(answer(), context) as server, watching(server.url, ca_path=str(ca)) as watched:
            assert f"UsageError: {ca}: cannot be used for TLS: No such file" in (await watched.next()).reason
            ca.write_text("nonsense")
            assert f"{ca}: cannot be used for TLS" in (await watched.on()).reason
            ca.write_bytes(authority.path.read_bytes())
            assert await watched.on() == Document(FLAGS)

    run(main)


@pytest.mark.parametrize(
    ("value", "pause"),
    [("20", 20.375), ("999999", 300.375), ("soon", 0.375), ("Tue, 14 Nov 2023 22:31:00 GMT", 60.375)],
)
def test_retry_after_is_honoured_within_reason(value: str, pause: float) -> None:
    async def main() -> None:
        busy = answer(b"", "503 Service Unavailable", Retry_After=value)
        async with serving(busy) as server, watching(server.url) as watched:
            assert "answered 503" in (await watched.next()).reason
            server.behaviour = answer()
            assert await watched.on() == Document(FLAGS)
            assert watched.paused == [pytest.approx(pause, abs=0.01)]

    run(main)


def test_it_asks_no_more_often_than_twice_an_interval_when_every_second_answer_fails() -> None:
    async def main() -> None:
        async with serving(answer()) as server, watching(server.url) as watched:
            await watched.next()
            began = watched.clock.now()
            while watched.clock.now() < began + 60:
                server.behaviour = (answer(), answer(b"", "500 Oops"))[len(server.asked) % 2]
                await watched.on()
            assert len(server.asked) <= 2 * 60 / 5 + 3

    run(main)


def test_a_watcher_that_is_stopped_while_it_waits_closes_its_connection() -> None:
    async def main() -> None:
        came, went = asyncio.Event(), asyncio.Event()

        async def hang(_asked: Asked, server: Server) -> bool:
            came.set()
            await server.gone()
            went.set()
            return False

        async with serving(hang) as server:
            async with watching(server.url):
                await came.wait()
            await went.wait()

    run(main)
