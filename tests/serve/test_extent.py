"""Nothing yet, and a part, are not the same as no flags."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import wigwag
from wigwag.pipeline.broadcast import Broadcast
from wigwag.serve import sync as sync_module
from wigwag.serve.context import Enrichment
from wigwag.serve.evaluation import V1, Evaluation
from wigwag.serve.events import ChangeStreams
from wigwag.serve.management.metrics import Metrics
from wigwag.serve.ofrep import BULK, Ofrep
from wigwag.serve.resolve import AGE, SNAPSHOT, Resolver
from wigwag.serve.selections import Selections
from wigwag.serve.snapshot import Extent, Snapshot
from wigwag.serve.sync import SERVICE
from wigwag.wire.http import Reply, Request
from wigwag.wire.rpc import Call, Code, RpcError

FLAG = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}


def snapshot(extent: Extent, *keys: str, number: int = 1) -> Snapshot:
    return Snapshot(wigwag.load({"flags": dict.fromkeys(keys, FLAG)}), number=number, extent=extent, origins=("x",))


def call(path: str) -> Call:
    return Call(b"{}", True, Request(b"POST", path.encode()), {})


def bulk(resolver: Resolver, current: Snapshot, *headers: tuple[bytes, bytes]) -> Reply:
    ofrep = Ofrep(lambda: current, Enrichment(), resolver, ChangeStreams(Broadcast(current)))
    answer = ofrep.handler()(Request(b"POST", BULK, headers=headers))
    assert isinstance(answer, Reply)
    return answer


def test_before_anything_is_known_nobody_is_told_that_there_are_no_flags() -> None:
    nothing = snapshot("none")
    answer = bulk(Resolver(Metrics()), nothing)
    assert (answer.status, json.loads(answer.body)["errorCode"]) == (503, "PROVIDER_NOT_READY")
    methods = Evaluation(
        lambda: nothing, Enrichment(), Resolver(Metrics()), ChangeStreams(Broadcast(nothing))
    ).methods()
    resolve_all: Any = methods[f"/{V1}/ResolveAll".encode()].unary
    with pytest.raises(RpcError) as refused:
        resolve_all(call("/"))
    assert refused.value.code is Code.UNAVAILABLE


@pytest.mark.parametrize("extent", ["none", "part"])
def test_documents_are_handed_out_only_when_they_are_whole(extent: Extent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_module, "PATIENCE", 0.0)
    snapshots = Broadcast(snapshot(extent, "a"))
    methods = Selections(snapshots, Metrics(), {}).methods()
    fetch: Any = methods[f"/{SERVICE}/FetchAllFlags".encode()].unary
    stream: Any = methods[f"/{SERVICE}/SyncFlags".encode()].stream

    async def main() -> None:
        attempts: list[Any] = [lambda: fetch(call("/")), lambda: anext(stream(call("/")))]
        for attempt in attempts:
            with pytest.raises(RpcError) as refused:
                await attempt()
            assert refused.value.code is Code.UNAVAILABLE
        snapshots.publish(snapshot("whole", "a", "b", number=2))
        found = json.loads(json.loads(await fetch(call("/")))["flagConfiguration"])
        assert found["flags"].keys() == {"a", "b"}

    asyncio.run(main())


def test_whoever_waits_for_the_whole_gets_it_when_it_comes() -> None:
    snapshots = Broadcast(snapshot("none"))

    async def main() -> None:
        fetch: Any = Selections(snapshots, Metrics(), {}).methods()[f"/{SERVICE}/FetchAllFlags".encode()].unary
        waiting = asyncio.create_task(fetch(call("/")))
        await asyncio.sleep(0)
        snapshots.publish(snapshot("part", "a"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        snapshots.publish(snapshot("whole", "a", "b", number=2))
        found = json.loads(json.loads(await waiting)["flagConfiguration"])
        assert found["flags"].keys() == {"a", "b"}

    asyncio.run(main())


def test_a_bulk_answer_tells_its_age_outside_of_what_the_tag_is_about() -> None:
    class Ageing:
        stale: frozenset[Any] = frozenset()
        now = 0.0

        def age(self, origin: object) -> float | None:
            return self.now if origin == "x" else None

    freshness, current = Ageing(), snapshot("whole", "a")
    resolver = Resolver(Metrics(), freshness, metadata=True)
    first = bulk(resolver, current)
    freshness.now = 5.0
    later = bulk(resolver, current)
    (tag,) = [value for name, value in later.headers if name == b"etag"]
    assert (b"etag", tag) in first.headers
    assert json.loads(later.body)["metadata"] == {SNAPSHOT: current.id, AGE: 5.0}
    assert bulk(resolver, current, (b"if-none-match", tag)).status == 304


class Aged:
    """Every source has an age of its own."""

    stale: frozenset[Any] = frozenset()

    def age(self, origin: object) -> float | None:
        return {"a.json": 1.0, "b.json": 99.0}.get(str(origin))


def two_tenants(theirs: str) -> Snapshot:
    """Two flag sets of two sources; the second is another team's business."""
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
    own = wigwag.load({"flags": {"x": flag}, "metadata": {"flagSetId": "a"}}, source="a.json")
    other = wigwag.load(
        {"flags": {"y": {**flag, "defaultVariant": theirs}}, "metadata": {"flagSetId": "b"}}, source="b.json"
    )
    return Snapshot(wigwag.merge([own, other]), origins=("a.json", "b.json"), facts={"pod": {"name": "p"}})


def test_what_is_told_of_a_snapshot_is_about_the_selected_flags_only() -> None:
    """The digest and the age of another team's flags would tell when that team changes something."""
    resolver = Resolver(Metrics(), Aged(), metadata=True)
    header = b"flagd-selector", b"flagSetId=a"

    def told(snapshot: Snapshot) -> Any:
        single = resolver.resolve(snapshot, snapshot.select("flagSetId=a"), "x", None, {}).metadata[SNAPSHOT]
        return single, json.loads(bulk(resolver, snapshot, header).body)["metadata"]

    before, after = two_tenants("off"), two_tenants("on")
    assert before.id != after.id
    assert told(before) == told(after)
    single, metadata = told(before)
    assert metadata[SNAPSHOT] == single == before.version("flagSetId=a")
    assert metadata[AGE] == 1.0
    assert json.loads(bulk(resolver, before).body)["metadata"][SNAPSHOT] == before.id
