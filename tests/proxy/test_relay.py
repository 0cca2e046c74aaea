"""The sync service of a proxy: which target a request names, who is let in, and how documents are written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import pytest
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2 as sync_v1
from openfeature.schemas.protobuf.sync.v1 import sync_service_pb2 as old_sync

from tests.pipeline.fakes import run
from wigwag.errors import UsageError
from wigwag.pipeline.broadcast import Broadcast
from wigwag.proxy.relay import Relay
from wigwag.serve.sync import Encode
from wigwag.sources.source import Source
from wigwag.wire.http import Request
from wigwag.wire.rpc import Call, Code, RpcError
from wigwag.wire.server.broadcast import BroadcastStream, Guard, Message

NEW, OLD = "flagd.sync.v1.FlagSyncService", "sync.v1.FlagSyncService"
DOCUMENT = '{"flags": {"grün": {}}}'


class Station:
    """Has one document, or none yet, for every target."""

    def __init__(self, document: str | None = DOCUMENT) -> None:
        self.document = document
        self.joined: list[str] = []
        self.left = 0
        self.refused: list[str] = []

    def read(self, selector: str) -> Source:
        if not selector.startswith("file:"):
            raise UsageError("only file:PATH")
        return Source(selector, "file")

    def join(self, target: Source, encode: Encode, stream: BroadcastStream) -> Broadcast[Message]:
        self.joined.append(target.name)
        broadcast, document = Broadcast[Message](), self.document
        if document is not None:
            broadcast.publish(Message(lambda: encode(document, None)))
        stream.on_close(self._leave)
        return broadcast

    def _leave(self) -> None:
        self.left += 1

    def method(self, name: str, authorize: Any = None) -> Any:
        relay = Relay(self.read, self.join, authorize, self.refused.append)
        method = relay.methods(patience=0.01)[f"/{name}".encode()]
        return method.unary or method.stream


def call(selector: str = "file:a", *, json: bool = False, **headers: str) -> Call:
    fields = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    message = sync_v1.SyncFlagsRequest(provider_id="p", selector=selector)
    body = f'{{"selector": "{selector}"}}'.encode() if json else message.SerializeToString()
    return Call(body, json, Request(b"POST", b"/", headers=tuple(fields.items())), fields)


def test_both_services_write_the_same_document() -> None:
    async def main() -> None:
        station = Station()
        new = sync_v1.SyncFlagsResponse.FromString(await anext(station.method(f"{NEW}/SyncFlags")(call())))
        assert (new.flag_configuration, new.HasField("sync_context")) == (DOCUMENT, False)
        old = old_sync.SyncFlagsResponse.FromString(await anext(station.method(f"{OLD}/SyncFlags")(call())))
        assert (old.flag_configuration, old.state) == (DOCUMENT, old_sync.SYNC_STATE_ALL)
        for service in (NEW, OLD):
            found = await station.method(f"{service}/FetchAllFlags")(call())
            assert sync_v1.FetchAllFlagsResponse.FromString(found).flag_configuration == DOCUMENT

    run(main)


def test_connect_gets_json() -> None:
    async def main() -> None:
        station = Station()
        new = await anext(station.method(f"{NEW}/SyncFlags")(call(json=True)))
        assert json.loads(new) == {"flagConfiguration": DOCUMENT}
        old = await anext(station.method(f"{OLD}/SyncFlags")(call(json=True)))
        assert json.loads(old) == {"flagConfiguration": DOCUMENT, "state": "SYNC_STATE_ALL"}

    run(main)


@pytest.mark.parametrize(
    ("body", "header", "target"),
    [("file:a", None, "file:a"), ("file:a", "file:b", "file:a"), ("", "file:b", "file:b")],
)
def test_the_header_counts_only_where_the_request_says_nothing(body: str, header: str | None, target: str) -> None:
    async def main() -> None:
        station = Station()
        asked = call(body) if header is None else call(body, flagd_selector=header)
        await anext(station.method(f"{NEW}/SyncFlags")(asked))
        assert station.joined == [target]

    run(main)


@pytest.mark.parametrize("method", ["SyncFlags", "FetchAllFlags"])
def test_a_target_that_is_none_is_refused_and_counted(method: str) -> None:
    async def main() -> None:
        station = Station()
        with pytest.raises(RpcError, match="only file:PATH") as caught:
            await station.method(f"{NEW}/{method}")(call("https://x"))
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert (station.joined, station.refused) == ([], ["selector"])

    run(main)


def test_a_fetch_waits_for_a_document_but_not_for_ever() -> None:
    async def main() -> None:
        station = Station(None)
        with pytest.raises(RpcError, match="no document of this target yet") as caught:
            await station.method(f"{NEW}/FetchAllFlags")(call())
        assert (caught.value.code, station.left) == (Code.UNAVAILABLE, 1)

    run(main)


class Doorman:
    """Lets one token in, when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, str]] = []
        self.open = asyncio.Event()

    async def __call__(self, token: str | None, target: Source) -> Guard:
        self.asked.append((token, target.name))
        await self.open.wait()
        if token != "good":
            raise RpcError(Code.PERMISSION_DENIED, "not you")
        return lambda stream: None


def test_who_is_let_in_is_asked_before_there_is_a_stream() -> None:
    async def main() -> None:
        station, guard = Station(), Doorman()
        answer: Awaitable[BroadcastStream] = station.method(f"{NEW}/SyncFlags", guard)(
            call(authorization="Bearer good")
        )
        waiting = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        assert (guard.asked, station.joined) == ([("good", "file:a")], [])
        guard.open.set()
        assert DOCUMENT.encode() in await anext(await waiting)

    run(main)


@pytest.mark.parametrize("method", ["SyncFlags", "FetchAllFlags"])
def test_who_is_not_let_in_reads_nothing_and_is_counted(method: str) -> None:
    async def main() -> None:
        station, guard = Station(), Doorman()
        guard.open.set()
        with pytest.raises(RpcError, match="not you"):
            await station.method(f"{NEW}/{method}", guard)(call(authorization="Basic good"))
        assert guard.asked == [(None, "file:a")]
        assert (station.joined, station.refused) == ([], ["authorization"])

    run(main)
