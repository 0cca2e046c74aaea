"""Targets on other servers: what is not there yet, comes, changes, fails and recovers, as subscribers see it.

Consul and Kubernetes are in `tests/real/test_proxy.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest
from obstore.store import S3Store

from tests.agent.upstreams import KINDS, upstream
from tests.proxy.process import ProxyProcess, document, subscribed
from tests.sources.blob_stores import AWS, Store, s3
from tests.sources.faulty import answer

ALLOWED = {"http": "http", "grpc": "grpc", "blob": "s3"}
PATIENCE = 100.0
"""Web addresses and blobs are asked for every five seconds."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """S3, and in the environment of the proxy what it takes to be let in."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with s3() as found:
        yield found


def selector(there: Any) -> str:
    forms = {"http": f"http://{there.address}/flags", "grpc": f"grpc://{there.address}"}
    return forms.get(there.kind) or str(there.source()["uri"])


def have_none(there: Any, store: Store) -> None:
    """Be there, and have no document: 404, no such key, or for gRPC nobody who answers."""
    if there.kind == "blob":
        there.serve("{}")
        (endpoint,) = parse_qs(store.query.removeprefix("?"))["endpoint"]
        config = {"endpoint": endpoint, "access_key_id": "me", "secret_access_key": "hush-hush"}
        bucket = S3Store("flags", config=config, client_options={"allow_http": True})  # type: ignore[arg-type]
        bucket.delete("team.json")
    elif there.kind == "http":
        there.behave(answer(status="404 Not Found"))
    else:
        there.refuse()


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_appears_changes_fails_and_recovers_and_streams_stay_open(kind: str, store: Store) -> None:
    with upstream(kind, store) as there, ProxyProcess("--allow", ALLOWED[kind]) as proxy:
        have_none(there, store)
        say: Callable[[int], None] = lambda number: there.serve(json.dumps(document(number)))  # noqa: E731
        target = selector(there)
        name = target.removeprefix("grpc://").partition("?")[0]
        with subscribed(proxy, target, PATIENCE) as one, subscribed(proxy, target, PATIENCE) as two:
            proxy.wait_for_trouble(name)
            say(0)
            assert one.said() == two.said() == 0
            say(1)
            assert one.said() == two.said() == 1
            seen = len(proxy.lines)
            there.refuse()
            proxy.wait_for_trouble(name, seen)
            with subscribed(proxy, target, PATIENCE) as late:
                assert late.said() == 1
                (told,) = proxy.targets()["targets"]
                assert (told["state"], told["subscribers"]) == ("failing", 3)
                asked = there.asked
                say(2)
                assert one.said() == two.said() == late.said() == 2
        assert there.asked - asked <= 4, "one watch for all, and no storm after an outage"
