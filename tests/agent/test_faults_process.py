"""Faults as the operator of a real agent meets them: a process of its own, real time, all sources struck at once.

What takes longer than a few seconds, and how often servers are asked in it, is in `test_faults` on a clock of its own.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.agent import seen
from tests.agent.process import TIMEOUT, AgentProcess, write
from tests.agent.seen import evaluations, flags
from tests.agent.upstreams import KINDS, BlobUpstream, GrpcUpstream, HttpUpstream, upstream
from tests.sources.blob_stores import Store
from tests.sources.faulty import Authority, answer, raw
from tests.wire.client.server import bytes_only

GARBAGE = b"\xde\xad\xbe\xefSSH-2.0 <html>" * 9
SOONEST = 0.1
"""Seconds between two questions to a web server or a store, at least."""
STREAMS = 12
"""Tries to connect to a gRPC server in a few seconds of refusals: pauses of up to 0.2, 0.4, 0.8, 1.6 … s, by lot."""


def until(condition: Callable[[], Any]) -> Any:
    """Look again and again until something is so, and return it."""
    end = time.monotonic() + TIMEOUT
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


class World:
    """Three servers, one of each kind."""

    def __init__(self, http: HttpUpstream, rpc: GrpcUpstream, blob: BlobUpstream) -> None:
        self.http, self.grpc, self.blob = http, rpc, blob
        self.all = http, rpc, blob

    def serve(self, revision: int) -> None:
        for up in self.all:
            up.serve(flags(revision, up.kind))

    def sources(self) -> str:
        polled: dict[str, Any] = {"interval": 1}
        return json.dumps([self.http.source(**polled), self.grpc.source(), self.blob.source(**polled)])


@contextmanager
def world(store: Store, authority: Authority | None = None) -> Iterator[World]:
    with HttpUpstream(authority) as http, GrpcUpstream(authority) as rpc, BlobUpstream(store, authority) as blob:
        yield World(http, rpc, blob)


class Subscriber:
    """An in-process provider's stream: every document that the agent sends."""

    def __init__(self, agent: AgentProcess) -> None:
        self.documents: list[str] = []
        self._channel = grpc.insecure_channel(agent.address("sync"))
        stub = sync_pb2_grpc.FlagSyncServiceStub(self._channel)
        self._stream = stub.SyncFlags(sync_pb2.SyncFlagsRequest())
        self._reader = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.cancel()
        self._reader.join()
        self._channel.close()

    def flags(self) -> dict[str, Any]:
        """Return the flags of the last document."""
        found: dict[str, Any] = json.loads(self.documents[-1])["flags"] if self.documents else {}
        return found

    def _read(self) -> None:
        with suppress(grpc.RpcError):
            for answer in self._stream:
                self.documents.append(answer.flag_configuration)


def answers(agent: AgentProcess) -> list[dict[str, Any]]:
    return [evaluations(agent, kind) for kind in KINDS]


def pages(agent: AgentProcess) -> list[dict[str, Any]]:
    return [seen.source(agent, priority) for priority in range(len(KINDS))]


def all_are(agent: AgentProcess, state: str, *words: str) -> Callable[[], list[dict[str, Any]] | None]:
    """Return what looks whether every source is in a state, with one of these words in each error."""

    def look() -> list[dict[str, Any]] | None:
        found = pages(agent)
        told = all(word in page["error"] for page, word in zip(found, words, strict=False) if page["error"])
        return found if told and all(page["state"] == state for page in found) else None

    return look


def serves(agent: AgentProcess, revision: int) -> Callable[[], bool]:
    return lambda: all(seen.value(agent, kind) == f"revision {revision}" for kind in KINDS)


def failing(world: World) -> None:
    for up in (world.http, world.blob):
        up.behave(answer(b"hush-header", "500 Internal Server Error"))
    world.grpc.decline(grpc.StatusCode.UNAVAILABLE)


def denied(world: World) -> None:
    for up in (world.http, world.blob):
        up.behave(answer(b"hush-header", "401 Unauthorized"))
    world.grpc.decline(grpc.StatusCode.UNAUTHENTICATED)


def garbage(world: World) -> None:
    for up in (world.http, world.blob):
        up.behave(raw(GARBAGE))
    world.grpc.script(bytes_only(GARBAGE))


def gone(world: World) -> None:
    for up in world.all:
        up.refuse()


def expired(world: World) -> None:
    for up in world.all:
        up.certify(days=-1)


WORDS: dict[Callable[[World], None], tuple[str, str, str]] = {
    failing: ("answered 500", "UNAVAILABLE: not with '***'", "500 Internal Server Error"),
    denied: ("answered 401", "UNAUTHENTICATED: not with '***'", "401 Unauthorized"),
    garbage: ("not HTTP/1.1", "cannot connect", "s3://flags/team.json: "),
    gone: ("Connection refused", "Connection refused", "Connection refused"),
    expired: ("certificate has expired", "certificate has expired", "certificate is not accepted: expired"),
}
"""What operators must be told of a fault, for each source."""


def live_through(agent: AgentProcess, subscriber: Subscriber, world: World, fault: Callable[[World], None]) -> None:
    """All sources fail at once, and recover with other flags."""
    before, began, documents = answers(agent), time.monotonic(), len(subscriber.documents)
    counts = [up.asked for up in world.all]
    fault(world)
    struck = until(all_are(agent, "failing", *WORDS[fault]))
    assert [page["metrics"]["up"] for page in struck] == [0, 0, 0]
    older = until(lambda: grown(pages(agent), struck))
    assert answers(agent) == before
    assert len(subscriber.documents) == documents
    assert "hush" not in "".join(page["text"] for page in struck + older)
    bounded(world, counts, time.monotonic() - began)
    mended = time.monotonic()
    world.serve(2)
    until(serves(agent, 2))
    for page in until(all_are(agent, "live")):
        assert (page["error"], page["metrics"]["up"]) == (None, 1)
        assert page["ageSeconds"] <= time.monotonic() - mended
    until(lambda: all(flag["defaultVariant"] == "r2" for flag in subscriber.flags().values()))


def bounded(world: World, before: list[int], seconds: float) -> None:
    """See that no server was asked too often."""
    http, rpc, blob = (up.asked - count for up, count in zip(world.all, before, strict=True))
    assert max(http, blob) <= 2 + seconds / SOONEST
    assert rpc <= STREAMS + seconds


def grown(pages: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Tell whether every source is older than it was, on the page and in the metrics."""
    pairs = list(zip(pages, before, strict=True))
    older = all(now["ageSeconds"] > then["ageSeconds"] for now, then in pairs)
    return pages if older and all(now["metrics"]["age_seconds"] > then["ageSeconds"] for now, then in pairs) else None


@pytest.mark.parametrize("fault", WORDS, ids=lambda fault: fault.__name__)
def test_an_agent_lives_through_a_fault_of_all_its_sources(
    fault: Callable[[World], None], store: Store, tmp_path: Path
) -> None:
    with world(store, Authority(tmp_path) if fault is expired else None) as outside:
        outside.serve(1)
        with AgentProcess(f"--sources={outside.sources()}") as agent:
            until(serves(agent, 1))
            with Subscriber(agent) as subscriber:
                until(lambda: len(subscriber.flags()) == len(KINDS))
                live_through(agent, subscriber, outside, fault)
            assert seen.ready(agent) == 200
            assert "hush" not in json.dumps(agent.lines)
            assert not [line for line in agent.lines if "Traceback" in str(line)]
            assert agent.stop() == 0


def test_names_that_do_not_resolve_are_told_and_others_are_served(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "near.json", flags(1, "near"))
    with world(store) as outside:
        named = [up.source("flags.invalid", optional=True) for up in outside.all]
        sources = json.dumps([*named, {"uri": str(tmp_path / "near.json"), "provider": "file"}])
        with AgentProcess(f"--sources={sources}") as agent:
            until(lambda: seen.value(agent, "near") == "revision 1")
            assert seen.ready(agent) == 200
            for page in until(all_are(agent, "failing")):
                assert "flags.invalid" in page["source"]
                assert "no address" in page["error"] or "cannot be resolved" in page["error"]
                assert "hush" not in page["text"]


@pytest.mark.parametrize("kind", KINDS)
def test_with_all_sources_dead_at_the_start_it_serves_nothing_and_later_everything(kind: str, store: Store) -> None:
    with upstream(kind, store) as up:
        up.refuse()
        polled: dict[str, Any] = {} if kind == "grpc" else {"interval": 1}
        with AgentProcess(f"--sources={json.dumps([up.source(**polled)])}", ready=False) as agent:
            page = until(lambda: (found := seen.source(agent))["state"] == "failing" and found)
            assert "onnection refused" in page["error"]
            assert (page["ageSeconds"], page["updates"], page["metrics"]["up"]) == (None, 0, 0)
            assert agent.fetch("management", "/healthz")[0] == 200
            assert seen.ready(agent) == 412
            assert seen.value(agent, "far") == "not_found"
            up.serve(flags(1, "far"))
            until(lambda: seen.value(agent, "far") == "revision 1")
            assert seen.ready(agent) == 200
            assert seen.source(agent)["error"] is None
