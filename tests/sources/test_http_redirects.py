"""Where an http source lets itself be sent, and what it takes along."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.pipeline.fakes import run
from tests.sources.faulty import FLAGS, Asked, Server, answer, names, redirect, serving, watching, whole
from wigwag.pipeline.spec import UNCHANGED
from wigwag.sources.document import Document
from wigwag.wire.client.addresses import resolve


def chain(hops: int) -> Any:
    """Redirect so many times, then answer."""

    async def behave(asked: Asked, _server: Server) -> bytes:
        number = int(asked.target.rpartition("/")[2].removeprefix("flags") or 0)
        return whole() if number >= hops else whole(b"", "307 Temporary Redirect", Location=f"/{number + 1}")

    return behave


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_redirect_is_followed_to_the_document(status: str) -> None:
    async def main() -> None:
        async with serving(answer(ETag='"1"')) as target, serving(redirect("/", status)) as server:
            server.behaviour = redirect(target.url.replace("localhost", "other.example"), status)
            async with watching(server.url) as watched:
                assert await watched.next() == Document(FLAGS)
                target.behaviour = answer(b"", "304 Not Modified")
                assert await watched.on() is UNCHANGED
                assert target.asked[1].headers["if-none-match"] == '"1"'

    run(main)


def test_ten_redirects_are_followed_and_not_eleven() -> None:
    async def main() -> None:
        async with serving(chain(10)) as server, watching(server.url) as watched:
            assert await watched.next() == Document(FLAGS)
            server.behaviour = chain(11)
            assert "redirects more than 10 times; name the URL at the end" in (await watched.on()).reason
            assert len(server.asked) == 11 + 11

    run(main)


SECRETS: dict[str, Any] = {
    "headers": (("X-Key", "hunter2"), ("Host", "flags.example")),
    "auth_header": "Bearer hunter2",
}


def test_what_is_for_one_host_is_not_sent_to_another_nor_back() -> None:
    async def main() -> None:
        async with serving(answer()) as server, serving(answer()) as other:

            async def back(asked: Asked, _server: Server) -> bytes:
                away = f"http://other.example:{other.port}/away"
                return whole() if asked.target == "/back" else whole(b"", "302 Found", Location=away)

            server.behaviour = back
            other.behaviour = redirect(f"http://localhost:{server.port}/back")
            async with watching(server.url, **SECRETS) as watched:
                assert await watched.next() == Document(FLAGS)
            first, last = server.asked
            assert first.headers["x-key"] == "hunter2"
            assert first.headers["host"] == "flags.example"
            [away] = other.asked
            assert away.headers["host"] == f"other.example:{other.port}"
            assert "hunter2" not in str(away) + str(last)
            assert away.headers["accept"] == first.headers["accept"]

    run(main)


def test_another_port_is_another_host_and_another_path_is_not() -> None:
    async def main() -> None:
        async with serving(answer()) as server, serving(answer()) as other:
            server.behaviour = chain(1)
            async with watching(server.url.replace("//", "//me:pw@"), **SECRETS) as watched:
                assert await watched.next() == Document(FLAGS)
                assert server.asked[1].headers["authorization"] == "Bearer hunter2"
                server.behaviour = redirect(other.url.replace("//", "//me:hunter2@"))
                assert await watched.on() is UNCHANGED
                assert "authorization" not in other.asked[0].headers

    run(main)


LINK_LOCAL = {
    "an address": ("http://169.254.169.254/latest/meta-data", {}),
    "as one number": ("http://2852039166/", {"2852039166": "169.254.169.254"}),
    "mapped": ("http://[::ffff:169.254.169.254]/", {}),
    "IPv6": ("http://[fe80::1]/", {}),
    "a name": ("http://metadata.google.internal/", {"metadata_google_internal": "169.254.169.254"}),
    "AWS over IPv6": ("http://[fd00:ec2::254]/", {}),
}


@pytest.mark.parametrize("name", LINK_LOCAL)
def test_link_local_addresses_are_never_a_target(name: str) -> None:
    location, known = LINK_LOCAL[name]

    async def main() -> None:
        async with serving(redirect(location)) as server, watching(server.url, {"resolve": names(**known)}) as watched:
            reason = (await watched.next()).reason
            assert reason.startswith("ForbiddenError: ")
            assert "where this request must not go" in reason

    run(main)


def test_a_redirect_is_judged_by_what_its_name_resolves_to_at_that_moment() -> None:
    where = {"link_example": "127.0.0.1"}

    async def main() -> None:
        async with serving(answer()) as server:
            url = f"http://link.example:{server.port}/"
            async with watching(url, {"resolve": lambda *at: names(**where)(*at)}) as watched:
                await watched.next()
                where["link_example"] = "169.254.0.1"
                server.behaviour = redirect(f"http://link.example:{server.port + 1}/")
                assert "leads to 169.254.0.1" in (await watched.on()).reason

    run(main)


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("https://localhost/flags", "redirects to another scheme, which is never followed; configure https://"),
        ("ftp://localhost/", "redirects to what cannot be read: the URL is not of the scheme http or https"),
        ("file:///etc/passwd", "redirects to what cannot be read"),
        ("http://a b/", "spaces or control characters"),
        ("http://h:99999/", "host or port is malformed"),
        ("http://[::1/", "redirects to what cannot be read"),
        ("http://" + "\u00fc" * 70 + ".example/", "host or port is malformed"),
        ("http://a..b/", "the name is too long, or has an empty part"),
    ],
)
def test_a_redirect_that_leads_nowhere_is_told(location: str, said: str) -> None:
    async def main() -> None:
        async def behave(_asked: Asked, _server: Server) -> bytes:
            line = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: "
            return line + location.encode("latin-1") + b"\r\n\r\n"

        async with serving(behave) as server, watching(server.url, {"resolve": resolve}) as watched:
            assert said in (await watched.next()).reason
            server.behaviour = answer()
            assert await watched.on() == Document(FLAGS)

    run(main)


def test_the_time_of_a_request_is_that_of_all_its_redirects_together() -> None:
    async def main() -> None:
        async def slowly(asked: Asked, _server: Server) -> bytes:
            await asyncio.sleep(0.2)
            return whole(b"", "302 Found", Location=asked.target + "x")

        async with serving(slowly) as server, watching(server.url, timeout=0.5) as watched:
            assert "does not answer in time" in (await watched.next()).reason
            assert len(server.asked) <= 3

    run(main)


def test_a_location_in_utf_8_is_understood() -> None:
    async def main() -> None:
        async def behave(asked: Asked, _server: Server) -> bytes:
            line = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /\u00fc\r\n\r\n"
            return whole() if asked.target == "/%C3%BC" else line.encode()

        async with serving(behave) as server, watching(server.url) as watched:
            assert await watched.next() == Document(FLAGS)

    run(main)
