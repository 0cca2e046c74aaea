"""Credentials in a directory: what each kind of source sends, what replaces them, and what is never sent."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from pathlib import Path
from typing import Any

import h2.events
import pytest

from tests.dflag.kubelet import Volume
from tests.pipeline.fakes import run
from tests.sources.blob_stores import AWS, Scripted
from tests.sources.consul.test_access import ENTRY
from tests.sources.consul.test_access import first as first_of_consul
from tests.sources.faulty import FLAGS, Asked, Authority, Server, answer, serving, watching, whole
from tests.sources.grpc_server import document
from tests.sources.test_blob import following as following_blob
from tests.sources.test_grpc import checking, following, until
from tests.wire.client.server import Scripted as Link
from wigwag.errors import UsageError
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.credentials import CredentialsFolder, is_below
from wigwag.sources.document import Document
from wigwag.sources.kinds import documents, kind_named, parse_sources
from wigwag.sources.remote.grpc import GrpcWatch, watch_grpc

ADDRESS = "https://flags.example.com/team-a.json"


@pytest.fixture
def mount(tmp_path: Path) -> Volume:
    """A Secret as the kubelet mounts it: first it is not there."""
    return Volume(tmp_path / "team-a-remote")


def folder(mount: Volume, address: str = ADDRESS) -> CredentialsFolder:
    return CredentialsFolder(str(mount.path), address)


def headers(server: Server, name: str = "authorization") -> list[str]:
    return [asked.headers.get(name, "") for asked in server.asked]


@pytest.mark.parametrize(
    ("keys", "header"),
    [
        ({"token": "abc\n"}, "Bearer abc"),
        ({"authorization": "Digest x, y=z"}, "Digest x, y=z"),
        ({"username": "me", "password": "a b:ü"}, "Basic " + b64encode("me:a b:ü".encode()).decode()),
        ({"token": "abc", "username": "me", "password": "x"}, "Bearer abc"),
        ({"ca.crt": "x"}, ""),
    ],
)
def test_each_key_makes_its_header(mount: Volume, keys: dict[str, str], header: str) -> None:
    mount.write(keys)
    assert folder(mount).authorization() == header


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "has none of the files token, authorization, username, ca.crt, tls.crt"),
        ({"other": "hush"}, "create the Secret team-a-remote with one of these keys"),
        ({"token": ""}, "/token: is empty"),
        ({"token": "hush hush"}, "/token: holds text that cannot be sent"),
        ({"authorization": "hush\nX-Evil: 1"}, "/authorization: has a line break"),
        ({"username": "hush"}, "/password: No such file"),
        ({"token": "hush", "uri": "https://flags.example.com/team-b.json"}, "/uri: these credentials are for another"),
    ],
)
def test_what_is_missing_or_wrong_is_named_and_never_quoted(mount: Volume, keys: dict[str, str], words: str) -> None:
    mount.write(keys)
    with pytest.raises(UsageError) as caught:
        folder(mount).authorization()
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(folder(mount))


@pytest.mark.parametrize(
    ("uri", "base", "below"),
    [
        ("https://a.test/x", "https://a.test", True),
        ("https://a.test", "https://a.test/", True),
        ("https://A.test/x/y", "https://a.test/x/", True),
        ("https://a.test/x/y", "https://a.test/y", False),
        ("https://a.test:8443/x", "https://a.test/x", False),
        ("https://a.test@evil.test/x", "https://a.test", False),
        ("https://a.test/x/%2e%2e/y", "https://a.test/x", False),
        ("s3://flags/a.json?endpoint=http://evil", "s3://flags", False),
        ("grpc://flags:8015", "grpcs://flags:8015", False),
    ],
)
def test_credentials_may_be_for_one_address_only(uri: str, base: str, below: bool) -> None:
    assert is_below(uri, base) is below


def test_http_reads_them_for_each_request_and_sends_nothing_without(mount: Volume) -> None:
    async def main() -> None:
        async with serving(answer()) as server, watching(server.url, credentials=folder(mount)) as watched:
            assert "create the Secret team-a-remote" in (await watched.next()).reason
            assert server.asked == []
            mount.write({"token": "one"})
            assert await watched.on() == Document(FLAGS)
            mount.write({"token": "two"})
            assert await watched.on() is UNCHANGED
            mount.write({})
            assert isinstance(await watched.on(), Unavailable)
            assert headers(server) == ["Bearer one", "Bearer two"]

    run(main)


def test_http_tries_a_token_at_once_that_came_while_the_old_one_was_refused(mount: Volume) -> None:
    mount.write({"token": "one"})

    async def picky(asked: Asked, _server: Server) -> bytes:
        if asked.headers["authorization"] == "Bearer two":
            return whole()
        mount.write({"token": "two"})
        return whole(b"", "401 Unauthorized")

    async def main() -> None:
        async with serving(picky) as server, watching(server.url, credentials=folder(mount)) as watched:
            assert await watched.next() == Document(FLAGS)
            assert headers(server) == ["Bearer one", "Bearer two"]

    run(main)


def mutual(authority: Authority) -> ssl.SSLContext:
    """A server's context that asks for a certificate of the client."""
    context = authority.context("localhost")
    context.load_verify_locations(authority.path)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def tls_keys(authority: Authority, tmp_path: Path) -> dict[str, str]:
    own = authority.issue("agent").read_text()
    return {"ca.crt": authority.path.read_text(), "tls.crt": own, "tls.key": own}


def test_http_uses_the_files_for_tls_as_soon_as_they_are_there(mount: Volume, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mount.write({"token": "one"})

    async def main() -> None:
        async with (
            serving(answer(), mutual(authority)) as server,
            watching(server.url, credentials=folder(mount)) as watched,
        ):
            assert "certificate" in (await watched.next()).reason
            mount.write(tls_keys(authority, tmp_path))
            assert await watched.on() == Document(FLAGS)
            assert headers(server) == [""]

    run(main)


def test_grpc_connects_again_when_the_old_token_is_refused(mount: Volume, tmp_path: Path) -> None:
    tokens = list[str]()
    mount.write({"token": "first-token"})

    async def main() -> None:
        over = asyncio.Event()
        async with following(checking(tokens, over), tmp_path, keep_alive=0, credentials=folder(mount)) as reader:
            assert await reader.next() == Document(b"1", "json")
            mount.write({"token": "next-token"})
            over.set()
            await until(lambda: reader.clock.pending())
            await reader.clock.advance(0.2)
            assert await reader.next() == Document(b"2", "json")

    run(main)
    assert tokens == ["Bearer first-token", "Bearer next-token"]


def test_grpc_shows_its_certificate(mount: Volume, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = mutual(authority)
    context.set_alpn_protocols(["h2"])
    mount.write(tls_keys(authority, tmp_path))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(reader, writer)
        link.greet()
        await link.until(h2.events.RequestReceived)
        link.say(await link.asked(), document("{}"))
        await link.gone()

    async def main() -> Any:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            stream = watch_grpc(GrpcWatch(f"localhost:{port}", tls=True, credentials=folder(mount)))
            try:
                return await anext(aiter(stream))
            finally:
                await stream.aclose()  # type: ignore[attr-defined]

    assert run(main) == Document(b"{}", "json")


def test_consul_gets_the_token_and_a_proxy_before_it_the_header(mount: Volume) -> None:
    mount.write({"token": "acl", "username": "me", "password": "x"})

    async def main() -> None:
        async with serving(answer(ENTRY, X_Consul_Index="7")) as server:
            access = ConsulAccess(f"127.0.0.1:{server.port}", credentials=folder(mount))
            assert await first_of_consul(access) == Document(b"{}", "json")
            assert headers(server, "x-consul-token") == ["acl"]
            assert headers(server)[0].startswith("Basic ")

    run(main)


def test_a_source_of_consul_fails_until_its_credentials_are_there(mount: Volume) -> None:
    element = {"uri": "consul://127.0.0.1:1/flags.json", "provider": "consul", "credentialsFolder": str(mount.path)}
    (source,) = parse_sources((), [element])
    kind_named("consul").prepare(source, print, {})

    async def main() -> Any:
        stream = documents(source)
        try:
            return await anext(aiter(stream))
        finally:
            await stream.aclose()  # type: ignore[attr-defined]

    assert "create the Secret team-a-remote" in run(main).reason


def test_a_blob_store_is_asked_with_new_credentials_as_soon_as_they_are_there(mount: Volume) -> None:
    server = Scripted()
    server.start()

    def key(request: dict[str, str]) -> str:
        return {name.lower(): value for name, value in request.items()}["authorization"].partition("=")[2][:3]

    async def main() -> None:
        async with following_blob(f"s3://flags/a.json{server.query}", AWS, credentials=folder(mount)) as blob:
            assert "AWS_ACCESS_KEY_ID" in (await blob.next()).reason
            assert server.requests == []
            mount.write({"AWS_ACCESS_KEY_ID": "one", "AWS_SECRET_ACCESS_KEY": "x"})
            assert await blob.next() == Document(b"{}", "json")
            mount.write({"AWS_ACCESS_KEY_ID": "two", "AWS_SECRET_ACCESS_KEY": "x"})
            assert await blob.next() is UNCHANGED
            assert [key(each) for each in server.requests] == ["one", "two"]

    try:
        run(main)
    finally:
        server.stop()


def test_a_directory_is_the_only_credential() -> None:
    for other in ({"tokenFile": "/t"}, {"authHeader": "x"}, {"headers": {"authorization": "x"}}):
        element = {"uri": ADDRESS, "provider": "http", "credentialsFolder": "/c", **other}
        with pytest.raises(UsageError, match="credentialsFolder: is one of several credentials"):
            parse_sources((), [element])
