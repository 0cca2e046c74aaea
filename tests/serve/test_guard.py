"""The guard of a port, called without a socket. Tokens are tested with the API that has them."""

from __future__ import annotations

import pytest

from wigwag.serve.access.guard import TokenGuard
from wigwag.wire.http import Headers, Reply, Request
from wigwag.wire.peer import Peer

OTHER_MACHINE = Peer("10.0.0.1:5")


def status_of(peer: Peer | None, *headers: tuple[bytes, bytes], path: bytes = b"/x") -> int:
    handler = TokenGuard().handler(lambda request: Reply(200))
    fields: Headers = headers
    answer = handler(Request(b"GET", path, headers=fields, peer=peer))
    assert isinstance(answer, Reply)
    return answer.status


def test_another_machine_may_use_any_name_of_ours() -> None:
    assert status_of(OTHER_MACHINE, (b"host", b"watt.shop.svc:7000")) == 200


@pytest.mark.parametrize("peer", [Peer("127.0.0.1:5"), Peer("[::1]:5"), Peer("unix"), None])
def test_this_machine_must_name_itself(peer: Peer | None) -> None:
    assert status_of(peer, (b"host", b"localhost")) == 200
    assert status_of(peer, (b"host", b"watt.shop.svc:7000")) == 421
    assert status_of(peer) == 421


def test_no_page_of_another_site_gets_through_from_anywhere() -> None:
    for peer in (OTHER_MACHINE, Peer("127.0.0.1:5")):
        assert status_of(peer, (b"host", b"10.0.0.2"), (b"origin", b"https://evil.example")) == 403


def test_probes_are_for_everybody() -> None:
    for path in (b"/healthz", b"/readyz"):
        assert status_of(Peer("127.0.0.1:5"), (b"host", b"evil.example"), path=path) == 200
