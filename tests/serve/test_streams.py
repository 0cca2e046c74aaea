"""Event streams, sync streams and server-sent events: what subscribers get, in which order, and never miss."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from google.protobuf import json_format
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2 as sync_v1
from openfeature.schemas.protobuf.sync.v1 import sync_service_pb2 as old_sync

import wigwag
from tests.simulation.loop import VirtualLoop
from wigwag.pipeline.broadcast import Broadcast
from wigwag.serve.events import ChangeStreams
from wigwag.serve.management.metrics import Metrics
from wigwag.serve.selections import Selections
from wigwag.serve.snapshot import Snapshot
from wigwag.serve.streams import stopping
from wigwag.wire.http import Request
from wigwag.wire.rpc import Call, Code, RpcError

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}


def snapshot(number: int = 1, **flags: Any) -> Snapshot:
    return Snapshot(wigwag.load({"flags": flags}, source="f.json"), number=number, published=1700000000.5)


def call(body: bytes = b"", *, codec: str = "json", **headers: str) -> Call:
    fields = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    body = body or (b"{}" if codec == "json" else b"")
    return Call(body, codec == "json", Request(b"POST", b"/", headers=tuple(fields.items())), fields)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await main()

    asyncio.run(bounded())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def events(snapshots: Broadcast[Snapshot], request: Call, **options: Any) -> AsyncIterator[bytes]:
    stream: Any = ChangeStreams(snapshots, **options).event_stream(bounded=True)
    found: AsyncIterator[bytes] = stream(request)
    return found


def test_ready_comes_first_then_changes_with_keys_and_kinds_then_goodbye() -> None:
    async def main() -> None:
        snapshots = Broadcast(snapshot(a=FLAG, b=FLAG))
        stream = events(snapshots, call())
        assert json.loads(await anext(stream)) == {"type": "provider_ready", "data": {}}
        snapshots.publish(snapshot(a={**FLAG, "state": "DISABLED"}, c=FLAG))
        assert json.loads(await anext(stream)) == {
            "type": "configuration_change",
            "data": {"flags": {"a": {"type": "update"}, "b": {"type": "delete"}, "c": {"type": "write"}}},
        }
        snapshots.end(stopping())
        assert json.loads(await anext(stream)) == {"type": "provider_shutdown", "data": {}}
        with pytest.raises(RpcError, match="is stopping"):
            await anext(stream)

    run(main)


def test_events_in_protobuf() -> None:
    async def main() -> None:
        snapshots = Broadcast(snapshot())
        stream = events(snapshots, call(codec="proto"))
        assert v1.EventStreamResponse.FromString(await anext(stream)).type == "provider_ready"
        snapshots.publish(snapshot(a=FLAG))
        message = v1.EventStreamResponse.FromString(await anext(stream))
        assert json_format.MessageToDict(message.data) == {"flags": {"a": {"type": "write"}}}

    run(main)


def test_a_change_between_ready_and_waiting_is_not_lost() -> None:
    async def main() -> None:
        snapshots = Broadcast(snapshot())
        stream = events(snapshots, call())
        await anext(stream)
        for _ in range(3):
            snapshots.publish(snapshot(a=FLAG))
        snapshots.publish(snapshot(b=FLAG))
        assert json.loads(await anext(stream))["data"] == {"flags": {"b": {"type": "write"}}}

    run(main)


def test_only_the_selection_counts() -> None:
    async def main() -> None:
        snapshots = Broadcast(snapshot())
        mine = {**FLAG, "metadata": {"flagSetId": "mine"}}
        stream = events(snapshots, call(flagd_selector="flagSetId=mine"))
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await settle()
        snapshots.publish(snapshot(other=FLAG))
        await settle()
        assert not waiting.done()
        snapshots.publish(snapshot(other=FLAG, a=mine))
        assert json.loads(await waiting)["data"] == {"flags": {"a": {"type": "write"}}}

    run(main)


def test_silence_is_broken_by_keep_alives() -> None:
    async def main() -> None:
        snapshots = Broadcast(snapshot())
        stream = events(snapshots, call(), keep_alive=0.01)
        await anext(stream)
        assert json.loads(await anext(stream)) == {"type": "keep_alive", "data": {}}
        assert json.loads(await anext(stream)) == {"type": "keep_alive", "data": {}}

    run(main)


def test_changes_of_other_flags_do_not_put_a_sign_of_life_off() -> None:
    """On a clock of its own: a change every second, none of them in the selection."""

    async def main() -> None:
        snapshots = Broadcast(snapshot())
        stream = events(snapshots, call(flagd_selector="flagSetId=mine"), keep_alive=5.0)
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        for number in range(4):
            await asyncio.sleep(1)
            snapshots.publish(snapshot(number + 2, other={**FLAG, "metadata": {"number": number}}))
        assert not waiting.done()
        await asyncio.sleep(1.1)
        assert json.loads(waiting.result()) == {"type": "keep_alive", "data": {}}

    loop = VirtualLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def test_the_stream_deadline_ends_a_stream_with_an_error() -> None:
    async def main() -> None:
        snapshots = Broadcast(snapshot())
        stream = events(snapshots, call(), deadline=0.01)
        await anext(stream)
        with pytest.raises(RpcError, match="server-side timeout") as caught:
            await anext(stream)
        assert caught.value.code is Code.DEADLINE_EXCEEDED

    run(main)


def test_an_invalid_selector_is_refused_before_the_stream_begins() -> None:
    with pytest.raises(RpcError, match="invalid selector key"):
        events(Broadcast(snapshot()), call(flagd_selector="colour=red"))


def sync(snapshots: Broadcast[Snapshot], **options: Any) -> Any:
    return Selections(snapshots, options.pop("metrics", Metrics()), options.pop("context", {}), **options).methods()


def documents(snapshots: Broadcast[Snapshot], request: Call, **options: Any) -> AsyncIterator[bytes]:
    return sync(snapshots, **options)[b"/flagd.sync.v1.FlagSyncService/SyncFlags"].stream(request)  # type: ignore[no-any-return]


def flags_of(message: bytes) -> Any:
    return json.loads(json.loads(message)["flagConfiguration"])["flags"]


def test_a_document_has_only_the_known_members_and_references_resolved() -> None:
    document = {
        "metadata": {"owner": "me"},
        "$evaluators": {"gold": {"==": [{"var": "tier"}, "gold"]}},
        "flags": [
            {"key": "a", **FLAG, "targeting": {"if": [{"$ref": "gold"}, "on"]}, "x": 1},
            {"key": "b", "variants": {"v": 1}},
        ],
    }

    async def main() -> None:
        snapshots = Broadcast(Snapshot(wigwag.load(document, source="f.json")))
        flags = flags_of(await anext(documents(snapshots, call())))
        assert flags["a"] == {
            **FLAG,
            "targeting": {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]},
            "source": "f.json",
            "metadata": {"owner": "me"},
        }
        assert flags["b"]["defaultVariant"] == ""
        assert set(flags["b"]) == {"state", "defaultVariant", "variants", "source", "metadata"}

    run(main)


def test_a_document_comes_at_once_and_again_only_when_it_changed() -> None:
    async def main() -> None:
        snapshots = Broadcast(snapshot(a=FLAG))
        metrics = Metrics()
        stream = documents(
            snapshots, call(b'{"providerId": "p", "selector": "f.json"}'), metrics=metrics, context={"env": "prod"}
        )
        first = json.loads(await anext(stream))
        assert first["syncContext"] == {"env": "prod"}
        assert metrics.streams == {("f.json", "p"): 1}
        waiting = asyncio.ensure_future(anext(stream))
        await settle()
        snapshots.publish(snapshot(a=FLAG))
        await settle()
        assert not waiting.done()
        snapshots.publish(snapshot(b=FLAG))
        assert list(flags_of(await waiting)) == ["b"]
        await stream.aclose()  # type: ignore[attr-defined]
        assert metrics.streams == {}
        assert 'reason="client_disconnect"' in metrics.registry.render()

    run(main)


def test_documents_end_with_an_error_so_that_every_provider_reconnects() -> None:
    async def main() -> None:
        snapshots, metrics = Broadcast(snapshot(a=FLAG)), Metrics()
        stream = documents(snapshots, call(), metrics=metrics)
        await anext(stream)
        snapshots.end(stopping())
        with pytest.raises(RpcError, match="is stopping") as caught:
            await anext(stream)
        assert caught.value.code is Code.UNAVAILABLE
        assert 'reason="normal_close"' in metrics.registry.render()

    run(main)


@pytest.mark.parametrize("selector", ["c.json", "source=c.json", "flagSetId="])
def test_a_document_has_the_metadata_of_its_source_and_nothing_of_the_selector(selector: str) -> None:
    async def main() -> None:
        flags = wigwag.load({"flags": {"a": FLAG, "b": {**FLAG, "metadata": {"team": "x"}}}}, source="c.json")
        stream = documents(Broadcast(Snapshot(flags)), call(flagd_selector=selector))
        sent = flags_of(await anext(stream))
        assert {key: flag.get("metadata") for key, flag in sent.items()} == {"a": None, "b": {"team": "x"}}

    run(main)


def sources(*documents: dict[str, Any]) -> Snapshot:
    sets = [wigwag.load(document, source=f"{number}.json") for number, document in enumerate(documents)]
    return Snapshot(wigwag.merge(sets))


@pytest.mark.parametrize("selector", ["flagSetId=mine", "flagSetId=", "0.json"])
def test_a_document_is_not_sent_again_when_only_other_sources_change(selector: str) -> None:
    ours = {"flags": {"a": {**FLAG, "metadata": {"flagSetId": "mine"}}, "b": FLAG}}
    theirs = {"metadata": {"flagSetId": "theirs"}, "flags": {"c": FLAG}}

    async def main() -> None:
        snapshots = Broadcast(sources(ours, theirs))
        stream = documents(snapshots, call(flagd_selector=selector))
        assert flags_of(await anext(stream))
        following = asyncio.ensure_future(anext(stream))
        others: tuple[dict[str, Any], ...] = (
            {**theirs, "metadata": {"flagSetId": "theirs", "team": "y"}},
            {"flags": {}},
        )
        for other in others:
            snapshots.publish(sources(ours, other))
            await settle()
            assert not following.done()
        changed = {"flags": {key: {**flag, "state": "DISABLED"} for key, flag in ours["flags"].items()}}
        snapshots.publish(sources(changed, {"flags": {}}))
        sent = flags_of(await following)
        assert {flag["state"] for flag in sent.values()} == {"DISABLED"}

    run(main)


def test_a_header_selector_beats_the_body_even_when_it_is_empty() -> None:
    async def main() -> None:
        snapshots = Broadcast(snapshot(a=FLAG))
        body = b'{"selector": "other.json"}'
        assert flags_of(await anext(documents(snapshots, call(body)))) == {}
        assert list(flags_of(await anext(documents(snapshots, call(body, flagd_selector=""))))) == ["a"]
        assert list(flags_of(await anext(documents(snapshots, call(body, flagd_selector="source=f.json"))))) == ["a"]

    run(main)


def test_fetch_and_metadata() -> None:
    snapshots = Broadcast(snapshot(a=FLAG))
    table = sync(snapshots, context={"env": "prod"})
    message = sync_v1.FetchAllFlagsResponse.FromString(
        asyncio.run(table[b"/flagd.sync.v1.FlagSyncService/FetchAllFlags"].unary(call(codec="proto")))
    )
    assert list(json.loads(message.flag_configuration)["flags"]) == ["a"]
    told = sync_v1.GetMetadataResponse.FromString(
        table[b"/flagd.sync.v1.FlagSyncService/GetMetadata"].unary(call(codec="proto"))
    )
    assert json_format.MessageToDict(told.metadata) == {"env": "prod"}
    with pytest.raises(RpcError, match="metadata endpoint disabled"):
        sync(snapshots, metadata=False)[b"/flagd.sync.v1.FlagSyncService/GetMetadata"].unary(call())


def test_the_older_service_tells_a_state_instead_of_a_context() -> None:
    async def main() -> None:
        method = sync(Broadcast(snapshot(a=FLAG)), context={"env": "prod"})[b"/sync.v1.FlagSyncService/SyncFlags"]
        message = old_sync.SyncFlagsResponse.FromString(await anext(method.stream(call(codec="proto"))))
        assert list(json.loads(message.flag_configuration)["flags"]) == ["a"]
        assert message.state == old_sync.SyncState.SYNC_STATE_ALL
        assert json.loads(await anext(method.stream(call())))["state"] == "SYNC_STATE_ALL"

    run(main)


def test_a_thousand_subscribers_share_one_document_and_none_misses_the_last() -> None:
    async def main() -> None:
        snapshots = Broadcast(snapshot())
        last = [b""] * 1000

        async def subscriber(index: int) -> None:
            async for message in documents(snapshots, call()):
                last[index] = message
                if index % 7 == 0:
                    await asyncio.sleep(0)  # busy readers skip documents

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(subscriber(index)) for index in range(1000)]
            await settle()
            for number in range(30):
                snapshots.publish(snapshot(number, **{f"flag-{number}": FLAG}))
                await asyncio.sleep(0)
            await settle()
            for task in tasks:
                task.cancel()
        assert len({id(message) for message in last}) == 1
        assert list(flags_of(last[0])) == ["flag-29"]

    run(main)


def test_server_sent_events_tell_to_fetch_again() -> None:
    async def main() -> None:
        snapshots = Broadcast(snapshot(0))
        stream = ChangeStreams(snapshots).server_sent("flagSetId=mine")
        assert await anext(stream) == b": connected\n\n"
        new = snapshot(7, a={**FLAG, "metadata": {"flagSetId": "mine"}}, b=FLAG)
        snapshots.publish(new)
        text = (await anext(stream)).decode()
        assert text.startswith(f"id: {new.select('flagSetId=mine').id}\nevent: message\ndata: ")
        told = json.loads(text.partition("data: ")[2])
        assert (told["type"], told["lastModified"]) == ("refetchEvaluation", 1700000000)
        snapshots.end(stopping())
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(main)


def test_a_client_that_comes_back_is_told_at_once_of_what_it_missed_in_its_selection() -> None:
    mine = {**FLAG, "metadata": {"flagSetId": "mine"}}

    async def first(current: Snapshot, last: str = "") -> bytes:
        return await anext(ChangeStreams(Broadcast(current)).server_sent("flagSetId=mine", last))

    async def main() -> None:
        welcome = await first(snapshot(a=mine))
        last = welcome.decode().partition("id: ")[2].strip()
        assert welcome == f": connected\nid: {last}\n\n".encode()  # no data, so no event: only an id to come back with
        assert await first(snapshot(a=mine, b=FLAG), last) == welcome
        assert b"refetchEvaluation" in await first(snapshot(a={**mine, "state": "DISABLED"}), last)
        assert await first(snapshot(0), last) == b": connected\n\n"

    run(main)


def test_before_the_first_snapshot_a_client_waits_instead_of_getting_none() -> None:
    async def main() -> None:
        snapshots = Broadcast(Snapshot(wigwag.load({"flags": {}}), extent="none"))
        stream = documents(snapshots, call())
        waiting = asyncio.ensure_future(anext(stream))
        fetching = asyncio.ensure_future(sync(snapshots)[b"/flagd.sync.v1.FlagSyncService/FetchAllFlags"].unary(call()))
        await settle()
        assert not waiting.done()
        assert not fetching.done()
        snapshots.publish(snapshot(a=FLAG))
        assert list(flags_of(await waiting)) == list(flags_of(await fetching)) == ["a"]

    run(main)


def test_a_rule_that_cannot_be_sent_takes_no_other_flag_down() -> None:
    doubling: dict[str, Any] = {f"e{n}": {"and": [{"$ref": f"e{n + 1}"}] * 2} for n in range(60)}
    bad = {**FLAG, "targeting": {"$ref": "e0"}}
    flags = wigwag.load({"flags": {"bad": bad, "good": FLAG}, "$evaluators": doubling})

    async def main() -> None:
        sent = flags_of(await anext(documents(Broadcast(Snapshot(flags)), call())))
        assert sent["good"]["variants"] == FLAG["variants"]
        assert wigwag.load({"flags": sent}).resolve("bad").error == flags.resolve("bad").error == "PARSE_ERROR"

    run(main)


def test_an_old_snapshot_is_forgotten_while_streams_are_open() -> None:
    async def main() -> None:
        first = snapshot(0, a=FLAG)
        snapshots, gone = Broadcast(first), weakref.ref(first.flags)
        del first
        streams = [events(snapshots, call()), ChangeStreams(snapshots).server_sent("")]
        for stream in streams:
            await anext(stream)
        for number in range(1, 4):
            snapshots.publish(snapshot(number, **{f"flag-{number}": FLAG}))
            for stream in streams:
                await anext(stream)
        gc.collect()
        assert gone() is None

    run(main)


def test_a_quiet_stream_keeps_no_snapshot_but_the_current_one() -> None:
    async def main() -> None:
        first = snapshot(1, a=FLAG)
        snapshots, gone = Broadcast(first), weakref.ref(first.flags)
        del first
        streams: list[Any] = [
            events(snapshots, call()),
            documents(snapshots, call()),
            ChangeStreams(snapshots).server_sent(""),
        ]
        for stream in streams:
            await anext(stream)
        snapshots.publish(snapshot(2, b=FLAG))
        for stream in streams:
            await anext(stream)
        waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await settle()
        gc.collect()
        assert gone() is None
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(main)


def test_silence_leaves_nothing_behind() -> None:
    async def main() -> None:
        snapshots = Broadcast(snapshot())
        stream = events(snapshots, call(), keep_alive=0.001)
        for _ in range(20):
            await anext(stream)
        assert snapshots.subscribers <= 1

    run(main)


def test_selectors_that_clients_make_up_are_not_remembered() -> None:
    shown = snapshot(a=FLAG)
    for number in range(100):
        assert len(shown.select(f"flagSetId=made-up-{number}")) == 0
        shown.keep(f"source=made-up-{number}", "x", lambda: b"x" * 1000)
    assert len(shown._kept) == 1
    assert shown.select("flagSetId=nope").resolve("a").metadata == {"flagSetId": "nope"}
    assert shown.select("source=f.json") is shown.select("source=f.json")
    with pytest.raises(wigwag.SelectorError, match="at most"):
        shown.select("flagSetId=" + "x" * 2000)


def test_what_clients_say_of_themselves_makes_short_labels_and_not_too_many() -> None:
    metrics = Metrics()
    for number in range(2000):
        metrics.stream_opened("s" * 1_000_000, f"{number}" + "z" * 1_000_000)
    assert len(metrics.streams) <= 501
    assert len(metrics.registry.render()) < 1_000_000


def test_streams_beyond_the_limit_of_labels_leave_the_gauge_as_they_found_it() -> None:
    metrics = Metrics()
    opened = [metrics.stream_opened("s", str(number)) for number in range(600)]
    assert metrics.streams[("(others)", "(others)")] == 100
    for labels in opened:
        metrics.stream_closed(labels, 1.0, "normal_close")
    assert metrics.streams == {}


def test_sync_streams_have_no_task_and_share_one_encoded_document() -> None:
    async def main() -> None:
        snapshots, sent = Broadcast(snapshot(a=FLAG)), list[bytes]()
        streams: list[Any] = [documents(snapshots, call()) for _ in range(50)]
        for stream in streams:
            stream.open(partial(send, stream, sent))
        await settle()
        assert len(asyncio.all_tasks()) == 1
        snapshots.publish(snapshot(2, b=FLAG))
        await settle()
        assert len(sent) == 100
        assert len({id(message) for message in sent}) == 2
        for stream in streams:
            stream.close()
        assert snapshots.subscribers == 0

    run(main)


def send(stream: Any, sent: list[bytes]) -> None:
    sent.append(stream.broadcast.value.framed(unframed))


def unframed(message: bytes) -> bytes:
    return message


def test_a_stream_that_joins_while_a_document_is_written_begins_with_the_new_one() -> None:
    async def main() -> None:
        snapshots = Broadcast(snapshot(a=FLAG))
        methods = sync(snapshots)
        subscribe = methods[b"/flagd.sync.v1.FlagSyncService/SyncFlags"].stream
        first = subscribe(call())
        assert list(flags_of(await anext(first))) == ["a"]
        snapshots.publish(snapshot(2, **{f"flag-{number}": FLAG for number in range(1000)}))
        await asyncio.sleep(0)
        late = subscribe(call())
        waiting = asyncio.ensure_future(anext(late))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert len(flags_of(await waiting)) == len(flags_of(await anext(first))) == 1000

    run(main)
