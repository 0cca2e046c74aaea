"""The real Consul that other tests rely on does what they rely on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.real.consul import Consul, ConsulCluster, ConsulServer, index_of
from tests.real.processes import until
from tests.real.rest import RestError

NewConsul = Callable[..., ConsulServer]


def test_a_key_is_written_read_and_deleted(consul: Consul, prefix: str) -> None:
    key = f"{prefix}/flags"
    assert consul.get(key) is None
    consul.put(key, "{}")
    assert consul.get(key) == b"{}"
    consul.delete(f"{prefix}/", below=True)
    assert consul.get(key) is None


def test_a_blocking_query_answers_with_the_change(consul: Consul, prefix: str) -> None:
    key = f"{prefix}/flags"
    consul.put(key, "old")
    before = consul.index(key)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(consul.read, key, after=before, raw="true")
        consul.put(key, "new")
        answer = asked.result(20)
    assert answer.body == b"new"
    assert index_of(answer) > before


def test_a_blocking_query_without_a_change_answers_the_same_after_its_time(consul: Consul, prefix: str) -> None:
    key = f"{prefix}/flags"
    consul.put(key, "old")
    before = consul.index(key)
    answer = consul.read(key, after=before, wait="50ms", raw="true")
    assert (index_of(answer), answer.body) == (before, b"old")


def test_a_restored_snapshot_moves_the_index_back(private_consul: NewConsul) -> None:
    consul = private_consul().consul
    consul.put("flags", "first")
    snapshot, before = consul.save(), consul.index("flags")
    for number in range(20):
        consul.put("flags", str(number))
    assert consul.index("flags") > before
    consul.restore(snapshot)
    assert consul.get("flags") == b"first"
    assert consul.index("flags") <= before


def test_a_killed_consul_comes_back_empty(private_consul: NewConsul) -> None:
    server = private_consul()
    server.consul.put("flags", "first")
    server.server.kill()
    with pytest.raises(OSError, match="refused"):
        server.consul.get("flags")
    server.server.start()
    assert server.consul.get("flags") is None


def test_without_a_leader_a_read_is_an_error_and_a_stale_read_is_not(consul_cluster: ConsulCluster) -> None:
    first, second = consul_cluster.servers
    first.consul.put("flags", "first")
    until(lambda: second.consul.read("flags", stale="").status == 200, "the write being everywhere")
    first.server.kill()
    until(lambda: second.consul.read("flags").status == 500, "the leader being missed")
    assert second.consul.read("flags", stale="").status == 200
    first.server.start()
    until(lambda: second.consul.read("flags").status == 200, "a leader being there again")
    assert second.consul.get("flags") == b"first"


def test_a_token_may_do_what_its_policy_says_until_it_is_revoked(private_consul: NewConsul) -> None:
    consul = private_consul(acl=True).consul
    consul.put("flags/shop", "first")
    assert consul.with_token("").read("flags/shop").status == 403
    accessor, secret = consul.add_token('key_prefix "flags/" { policy = "read" }')
    reader = consul.with_token(secret)
    assert reader.get("flags/shop") == b"first"
    with pytest.raises(RestError, match="403"):
        reader.put("flags/shop", "second")
    consul.revoke(accessor)
    until(lambda: reader.read("flags/shop").status == 403, "the token being refused")
