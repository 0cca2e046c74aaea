"""The management port, called without a socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import wigwag
from wigwag.observe import Registry
from wigwag.serve.context import Enrichment
from wigwag.serve.management.debug import Debug
from wigwag.serve.management.manage import HealthService, Management
from wigwag.serve.snapshot import Snapshot
from wigwag.wire.http import Handler, Reply, Request
from wigwag.wire.peer import Peer
from wigwag.wire.rpc import Call, Code, RpcError

FLAG = {"state": "ENABLED", "variants": {"on": 1}, "targeting": {"if": [{"==": [{"var": "env"}, "prod"]}, "on"]}}

HOST = ((b"host", b"localhost:8014"),)


def management(*, everybody: bool = False, ready: bool = True) -> Handler:
    snapshot = Snapshot(wigwag.load({"flags": {"x": FLAG}}))
    debug = Debug(lambda: snapshot, list, Enrichment({"env": "prod"}), everybody=everybody)
    return Management(lambda: ready, Registry(), debug).handler()


def get(handler: Handler, path: bytes, address: str = "127.0.0.1:5", query: bytes = b"") -> Reply:
    answer = handler(Request(b"GET", path, query, headers=HOST, peer=Peer(address)))
    assert isinstance(answer, Reply)
    return answer


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 412)])
def test_ready_is_200_and_not_yet_is_412(ready: bool, status: int) -> None:
    assert get(management(ready=ready), b"/readyz").status == status
    assert get(management(ready=ready), b"/healthz").status == 200


@pytest.mark.parametrize("address", ["127.0.0.1:5", "::1:5", "[::1]:5", "::ffff:127.0.0.1:5", "unix"])
def test_this_machine_may_look(address: str) -> None:
    assert get(management(), b"/debug/flags", address).status == 200


@pytest.mark.parametrize("address", ["10.0.0.1:5", "fe80::1%eth0:5", "::ffff:10.0.0.1:5"])
def test_others_may_only_if_the_operator_says_so(address: str) -> None:
    assert get(management(), b"/debug/flags", address).status == 403
    assert get(management(everybody=True), b"/debug/flags", address).status == 200
    assert get(management(), b"/metrics", address).status == 200


def health(body: bytes, *, json: bool) -> bytes | RpcError:
    check = HealthService(asyncio.Event().wait).methods()[b"/grpc.health.v1.Health/Check"].unary
    assert check is not None
    try:
        answer = check(Call(body, json, Request(b"POST", b"/"), {}))
    except RpcError as error:
        return error
    assert isinstance(answer, bytes)
    return answer


def test_health_is_that_of_the_server_and_of_no_single_service() -> None:
    assert health(b"", json=False) == b"\x08\x01"
    assert health(b'{"service": ""}', json=True) == b'{"status":"SERVING"}'
    for error in (health(b"\x0a\x01x", json=False), health(b'{"service": "x"}', json=True)):
        assert isinstance(error, RpcError)
        assert error.code is Code.NOT_FOUND


def test_watching_the_health_of_an_unknown_service_says_so() -> None:
    async def first(body: bytes) -> bytes:
        watch = HealthService(asyncio.Event().wait).methods()[b"/grpc.health.v1.Health/Watch"].stream
        assert watch is not None
        stream: Any = watch(Call(body, False, Request(b"POST", b"/"), {}))
        answer: bytes = await anext(stream)
        await stream.aclose()
        return answer

    assert asyncio.run(first(b"\x0a\x01x")) == b"\x08\x03"
    assert asyncio.run(first(b"")) == b"\x08\x01"


def test_an_explanation_sees_what_the_operator_adds() -> None:
    told = json.loads(get(management(), b"/debug/explain", query=b"key=x").body)
    assert told["variant"] == "on"


@pytest.mark.parametrize("body", [b"[", b'{"a":"\xff"}', b'{"a":' * 20_000, b"[1]"])
def test_a_context_that_is_none_is_refused(body: bytes) -> None:
    answer = management()(Request(b"POST", b"/debug/explain", b"key=x", HOST, body, peer=Peer("127.0.0.1:5")))
    assert isinstance(answer, Reply)
    assert answer.status == 400


def test_other_methods_are_refused() -> None:
    answer = management()(Request(b"DELETE", b"/metrics", headers=HOST, peer=Peer("127.0.0.1:5")))
    assert isinstance(answer, Reply)
    assert answer.status == 405


def status_of(*headers: tuple[bytes, bytes]) -> int:
    answer = management()(Request(b"GET", b"/debug/flags", headers=headers, peer=Peer("127.0.0.1:5")))
    assert isinstance(answer, Reply)
    return answer.status


@pytest.mark.parametrize("host", [b"localhost", b"127.0.0.1:8014", b"[::1]:8014", b"wigwag.localhost"])
def test_debugging_is_for_who_names_this_machine_by_an_address_or_as_localhost(host: bytes) -> None:
    assert status_of((b"host", host)) == 200


@pytest.mark.parametrize("host", [b"evil.example", b"evil.example:8014", b"localhost.evil.example", b"", b"a,b"])
def test_a_page_that_points_its_own_name_at_us_sees_nothing(host: bytes) -> None:
    """DNS rebinding: the browser is on this machine, the page is not."""
    assert status_of((b"host", host)) == 403


def test_debugging_needs_a_host() -> None:
    assert status_of() == 403


@pytest.mark.parametrize(
    "header",
    [
        (b"x-forwarded-for", b"192.0.2.1"),
        (b"x-forwarded-host", b"flags.example.org"),
        (b"forwarded", b"for=192.0.2.1"),
        (b"via", b"1.1 proxy"),
        (b"x-real-ip", b"192.0.2.1"),
        (b"origin", b"https://evil.example"),
        (b"origin", b"http://localhost:9999"),
        (b"origin", b"null"),
        (b"sec-fetch-site", b"cross-site"),
    ],
)
def test_what_a_proxy_or_a_page_elsewhere_passes_on_is_not_local(header: tuple[bytes, bytes]) -> None:
    assert status_of(*HOST) == 200
    assert status_of(*HOST, header) == 403


def test_a_page_of_our_own_is_local() -> None:
    assert status_of(*HOST, (b"origin", b"http://localhost:8014"), (b"sec-fetch-site", b"same-origin")) == 200
