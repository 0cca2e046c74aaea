"""The management port, called without a socket."""

from __future__ import annotations

import json

import pytest

import wigwag
from wigwag.observe import Registry
from wigwag.serve.context import Enrichment
from wigwag.serve.debug import Debug
from wigwag.serve.manage import Management
from wigwag.serve.snapshot import Snapshot
from wigwag.wire.http import Handler, Peer, Reply, Request

FLAG = {"state": "ENABLED", "variants": {"on": 1}, "targeting": {"if": [{"==": [{"var": "env"}, "prod"]}, "on"]}}


def management(*, everybody: bool = False, ready: bool = True) -> Handler:
    snapshot = Snapshot(wigwag.load({"flags": {"x": FLAG}}))
    debug = Debug(lambda: snapshot, list, Enrichment({"env": "prod"}), everybody=everybody)
    return Management(lambda: ready, Registry(), debug).handler()


def get(handler: Handler, path: bytes, address: str = "127.0.0.1:5", query: bytes = b"") -> Reply:
    answer = handler(Request(b"GET", path, query, peer=Peer(address)))
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


def test_an_explanation_sees_what_the_operator_adds() -> None:
    told = json.loads(get(management(), b"/debug/explain", query=b"key=x").body)
    assert told["variant"] == "on"


@pytest.mark.parametrize("body", [b"[", b'{"a":"\xff"}', b'{"a":' * 20_000, b"[1]"])
def test_a_context_that_is_none_is_refused(body: bytes) -> None:
    answer = management()(Request(b"POST", b"/debug/explain", b"key=x", body=body, peer=Peer("127.0.0.1:5")))
    assert isinstance(answer, Reply)
    assert answer.status == 400


def test_other_methods_are_refused() -> None:
    answer = management()(Request(b"DELETE", b"/metrics", peer=Peer("127.0.0.1:5")))
    assert isinstance(answer, Reply)
    assert answer.status == 405
