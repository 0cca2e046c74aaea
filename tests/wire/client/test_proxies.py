"""By a proxy or not, and what it gets to see."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sources.faulty import Asked, Authority, Server, answer, names, redirect, serving
from tests.wire.served import LOOPS, run
from wigwag.errors import UsageError
from wigwag.wire.client.client import Client
from wigwag.wire.client.errors import BrokenError, ForbiddenError, UnreachableError
from wigwag.wire.client.proxies import Proxies
from wigwag.wire.client.redirects import elsewhere, fetch_following
from wigwag.wire.client.tls import Trust
from wigwag.wire.client.url import parse_url
from wigwag.wire.h1.client import ClientRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FLAGS_URL = parse_url("https://flags.example/flags?x=1")


def by(server: Server, userinfo: str = "") -> Proxies:
    proxy = f"http://{userinfo}127.0.0.1:{server.port}"
    return Proxies.of({"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy})


def test_http_goes_to_the_proxy_as_a_whole_url() -> None:
    async def main() -> None:
        async with serving(answer()) as proxy:
            client = Client(resolve=names(), proxies=by(proxy, "me:pw@"))
            for _ in range(2):
                await client.fetch(ClientRequest(parse_url("http://user:secret@flags.example:81/flags?x=1")))
            client.close()
            asked = proxy.asked[0]
            assert asked.target == "http://flags.example:81/flags?x=1"
            assert asked.headers["host"] == "flags.example:81"
            assert asked.headers["proxy-authorization"] == "Basic bWU6cHc="
            assert asked.headers["authorization"] == "Basic dXNlcjpzZWNyZXQ="
            assert proxy.connections == 1

    run(main)


@asynccontextmanager
async def tunnelling(target: Server) -> AsyncIterator[Server]:
    """A proxy that connects everybody through to one server."""

    async def behave(_asked: Asked, proxy: Server) -> bool:
        near = proxy.ends
        far = await asyncio.open_connection("127.0.0.1", target.port)
        await proxy.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            async with asyncio.TaskGroup() as group:
                for (reader, _), (_, writer) in ((near, far), (far, near)):
                    group.create_task(pump(reader, writer))
        finally:
            far[1].transport.abort()
        return False

    async with serving(behave) as proxy:
        yield proxy


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.transport.abort()


@pytest.mark.parametrize("loop", LOOPS)
def test_https_goes_through_a_tunnel_that_sees_the_host_only(loop: str, tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority(tmp_path)
        async with (
            serving(answer(b"x" * 3_000_000), authority.context("flags.example")) as server,
            tunnelling(server) as proxy,
        ):
            client = Client(resolve=names(), proxies=by(proxy, "me:pw@"), trust=Trust(str(authority.path)))
            for _ in range(2):
                reply = await client.fetch(ClientRequest(FLAGS_URL, fields=(("Authorization", "Bearer secret"),)))
                assert len(reply.body) == 3_000_000
            client.close()
            [asked] = proxy.asked
            assert (asked.method, asked.target) == ("CONNECT", "flags.example:443")
            assert asked.headers == {"host": "flags.example:443", "proxy-authorization": "Basic bWU6cHc="}
            assert server.asked[0].target == "/flags?x=1"
            assert "proxy-authorization" not in server.asked[0].headers

    run(main, loop)


def test_a_proxy_that_refuses_is_told_without_its_credentials() -> None:
    async def main() -> None:
        async with serving(answer(b"no", "407 Proxy Authentication Required")) as proxy:
            client = Client(resolve=names(), proxies=by(proxy, "me:hunter2@"))
            with pytest.raises(UnreachableError) as caught:
                await client.fetch(ClientRequest(FLAGS_URL))
            assert str(caught.value) == (
                f"proxy 127.0.0.1:{proxy.port}: answered 407 to CONNECT flags.example:443; "
                "check its rules, and its credentials"
            )

    run(main)


def test_a_proxy_that_is_not_there_or_breaks_off_is_told() -> None:
    async def gone(_asked: Asked, _server: Server) -> bool:
        return False

    async def main() -> None:
        async with serving(gone) as proxy:
            proxies = by(proxy)
            with pytest.raises(BrokenError, match=rf"proxy 127.0.0.1:{proxy.port}: the connection was closed"):
                await Client(resolve=names(), proxies=proxies).fetch(ClientRequest(FLAGS_URL))
        with pytest.raises(UnreachableError, match=r"proxy 127.0.0.1:\d+: no connection: Connection refused"):
            await Client(resolve=names(), proxies=proxies).fetch(ClientRequest(FLAGS_URL))

    run(main)


def test_a_redirect_by_a_proxy_is_judged_as_far_as_we_can_see() -> None:
    async def main() -> None:
        async with serving(redirect("http://metadata.example/")) as proxy:
            resolve = names(metadata_example="169.254.169.254")
            client = Client(resolve=resolve, proxies=by(proxy))
            with pytest.raises(ForbiddenError, match=r"leads to 169.254.169.254"):
                await fetch_following(client, ClientRequest(parse_url("http://flags.example/")))
            client.close()
            assert len(proxy.asked) == 1
            proxy.behaviour = answer()
            url = parse_url("http://flags.example/")
            await client.fetch(ClientRequest(url))
            await client.fetch(ClientRequest(url), elsewhere)  # through the proxy nobody knows what was connected to
            assert proxy.connections == 3
            client.close()

    run(main)


@pytest.mark.parametrize(
    ("url", "without", "proxied"),
    [
        ("https://flags.example/", "", True),
        ("https://flags.example/", "*", False),
        ("https://flags.example/", "other.example, flags.example", False),
        ("https://a.flags.example/", "flags.example", False),
        ("https://a.flags.example/", ".flags.example", False),
        ("https://flags.example/", ".flags.example", True),
        ("https://flags.example/", "*.flags.example", True),
        ("https://badflags.example/", "flags.example", True),
        ("https://flags.example/", "FLAGS.example:443", False),
        ("https://flags.example/", "flags.example:444", True),
        ("https://10.2.3.4/", "10.0.0.0/8", False),
        ("https://10.2.3.4/", "10.2.3.4:443", False),
        ("https://11.2.3.4/", "10.0.0.0/8", True),
        ("https://[2001:db8::1]/", "2001:db8::/32", False),
        ("https://[2001:db8::1]:8443/", "[2001:db8::1]:8443", False),
        ("https://localhost/", "", False),
        ("https://127.1.2.3/", "", False),
        ("https://[::1]/", "", False),
    ],
)
def test_no_proxy_is_read_as_go_reads_it(url: str, without: str, proxied: bool) -> None:
    proxies = Proxies.of({"https_proxy": "http://proxy.example:3128", "no_proxy": without})
    assert (proxies.choose(parse_url(url)) is not None) == proxied


def test_each_scheme_has_its_own_proxy_and_cgi_has_none_for_http() -> None:
    environment = {"HTTP_PROXY": "http://one.example", "HTTPS_PROXY": "two.example:8080"}
    http, https = parse_url("http://flags.example/"), parse_url("https://flags.example/")
    proxies = Proxies.of(environment)
    assert [str(proxies.choose(url)) for url in (http, https)] == ["http://one.example/", "http://two.example:8080/"]
    assert Proxies.of({**environment, "REQUEST_METHOD": "GET"}).choose(http) is None
    assert Proxies.of({}).choose(http) is None


@pytest.mark.parametrize("proxy", ["https://me:hunter2@p.example", "socks5://me:hunter2@p", "http://me:hunter2@p:x"])
def test_a_proxy_that_cannot_be_used_is_told_without_its_credentials(proxy: str) -> None:
    proxies = Proxies.of({"HTTP_PROXY": proxy})
    assert "hunter2" not in repr(proxies)
    with pytest.raises(UsageError, match="HTTP_PROXY: ") as caught:
        proxies.choose(parse_url("http://flags.example/"))
    assert "hunter2" not in str(caught.value)
