"""Consul asked over a real connection: what is sent, what is refused, and that nothing secret is said."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.fakes import run
from tests.sources.faulty import Authority, answer, serving
from wigwag.pipeline.spec import Unavailable
from wigwag.pipeline.watch import closing
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.keys import ConsulWatch, watch_consul
from wigwag.sources.consul.query import ConsulDeps
from wigwag.sources.document import Document

SECRET = "0f8fad5b-d9cb-469f-a165-70867728950e"
ENTRY = json.dumps([{"Key": "flags/a b.json", "Value": b64encode(b"{}").decode()}]).encode()


async def first(access: ConsulAccess, key: str = "flags/a b.json") -> Any:
    async with closing(watch_consul(ConsulWatch(access, key), ConsulDeps(environment={}))) as stream:
        return await anext(aiter(stream))


def test_it_asks_as_told() -> None:
    async def main() -> None:
        async with serving(answer(ENTRY, X_Consul_Index="7")) as server:
            access = ConsulAccess(
                f"127.0.0.1:{server.port}",
                datacenter="east",
                namespace="team",
                partition="part",
                token=SECRET,
                auth_header="Basic abc",
                consistency="consistent",
            )
            assert await first(access) == Document(b"{}", "json")
            [asked] = server.asked
            assert asked.target == "/v1/kv/flags/a%20b.json?dc=east&ns=team&partition=part&consistent="
            assert asked.headers["x-consul-token"] == SECRET
            assert asked.headers["authorization"] == "Basic abc"
            assert SECRET not in repr(access) + str(ConsulWatch(access, "a")) + repr(ConsulWatch(access, "a"))

    run(main)


def test_it_is_asked_with_tls_and_shows_its_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = authority.context("localhost")
    context.load_verify_locations(authority.path)
    context.verify_mode = ssl.CERT_REQUIRED
    own = str(authority.issue("agent"))

    async def main() -> None:
        async with serving(answer(ENTRY, X_Consul_Index="7"), context) as server:
            address = f"127.0.0.1:{server.port}"
            trusted = ConsulAccess(address, tls=True, ca_path=str(authority.path), cert_path=own)
            assert await first(trusted) == Document(b"{}", "json")
            assert "not trusted" in (await first(ConsulAccess(address, tls=True, cert_path=own))).reason

    run(main)


def test_it_is_asked_by_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "consul.sock")

    async def main() -> None:
        async with serving(answer(ENTRY, X_Consul_Index="7"), path=path):
            assert await first(ConsulAccess(path)) == Document(b"{}", "json")

    run(main)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        ("500 Oops", b"No cluster leader", "Consul has no leader"),
        ("500 Oops", b"No path to datacenter", "cannot reach that datacenter"),
        ("500 Oops", b"rpc error making call: " + SECRET.encode(), "answered 500: look at Consul"),
        ("403 No", b"ACL not found", "does not know the token, or it was revoked"),
        ("403 No", b"Permission denied: token with AccessorID '" + SECRET.encode(), "the token may not read this"),
        ("400 No", b"... Enterprise feature", "has no namespaces and partitions"),
        ("429 No", b"", "too many requests or connections"),
        ("404 No", b"page not found", "check that this is Consul"),
        ("200 OK", b"<html>", "not one of Consul"),
        ("200 OK", b'[{"Key": "a", "Value": "%%%"}]', "not one of Consul"),
        ("301 Go", b"", "answered 301"),
    ],
)
def test_a_refusal_is_told_in_our_own_words(status: str, body: bytes, said: str) -> None:
    async def main() -> None:
        async with serving(answer(body, status)) as server:
            found = await first(ConsulAccess(f"127.0.0.1:{server.port}", token=SECRET))
            assert isinstance(found, Unavailable)
            assert said in found.reason
            assert SECRET not in found.reason

    run(main)


def test_a_key_that_is_not_there_is_another_thing_than_a_page_that_is_not() -> None:
    async def main() -> None:
        async with serving(answer(b"", "404 Not Found", X_Consul_Index="3")) as server:
            assert "there is no such key" in (await first(ConsulAccess(f"127.0.0.1:{server.port}"))).reason

    run(main)
