"""Clients of streams: each knows what it was told, and so what it believes the flags to be.

A client that reads is up to date whenever nothing is under way. One that stalls has one message in flight and no more;
when it reads again it must end on the newest state all the same.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2

from tests.simulation.surfaces import Asked, plain
from wigwag.wire.http import Request, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.surfaces import Surfaces
    from wigwag.serve.snapshot import Snapshot

EVENTS = {
    "events v1, gRPC": (b"/flagd.evaluation.v1.Service/EventStream", b"application/grpc"),
    "events v2, gRPC": (b"/flagd.evaluation.v2.Service/EventStream", b"application/grpc"),
    "events v1, Connect": (b"/flagd.evaluation.v1.Service/EventStream", b"application/connect+json"),
}
SYNC = {
    "sync, gRPC": (b"/flagd.sync.v1.FlagSyncService/SyncFlags", b"application/grpc"),
    "sync of old, gRPC": (b"/sync.v1.FlagSyncService/SyncFlags", b"application/grpc"),
    "sync, Connect": (b"/flagd.sync.v1.FlagSyncService/SyncFlags", b"application/connect+json"),
}
SSE = "OFREP SSE"
KINDS = (*EVENTS, *SYNC, SSE)
PATIENCE = 5.0
"""How long a sync stream waits for the flags of all required sources."""
SILENCE = dict.fromkeys(EVENTS, 20.5) | {SSE: 30.5}
"""Seconds after which a stream has said something, if only that it is there. Sync streams do not."""


def numbers(snapshot: Snapshot, selector: str) -> dict[str, frozenset[int]]:
    """Return what a client finds that looks now: the definitions of each key."""
    found: dict[str, frozenset[int]] = {}
    for flag in snapshot.select(selector).flags():
        found[flag.key] = found.get(flag.key, frozenset()) | {flag.metadata["number"]}
    return found


@dataclass(eq=False)
class Subscriber:
    """A client of one stream."""

    kind: str
    selector: str
    surfaces: Surfaces
    current: Callable[[], Snapshot]
    now: Callable[[], float]
    view: dict[str, frozenset[int]] | None = None
    """What it believes: of event streams, by looking again at what it was told of."""
    documents: list[str] = field(default_factory=list)
    """What came over a sync stream, since somebody looked, and the last before that."""
    place: int = 0
    """Which of the published states the last document of these that was looked at is."""
    last_id: str = ""
    told: list[str] = field(default_factory=list)
    """The events that came."""
    reading: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    status: str = ""
    in_flight: bytes = b""

    def __post_init__(self) -> None:
        self.joined = self.heard = self.now()
        self.reading.set()
        self.task = asyncio.ensure_future(self._run(self._open()))

    def _open(self) -> Stream:
        asked = Asked(self.selector, "")
        if self.kind == SSE:
            headers = asked.headers(b"text/plain")
            headers = (*headers, (b"last-event-id", self.last_id.encode())) if self.last_id else headers
            answer = self.surfaces.ofrep(Request(b"GET", b"/ofrep/v1/sse", b"", headers))
        else:
            path, content_type = (EVENTS | SYNC)[self.kind]
            body = b"{}" if content_type.endswith(b"json") else b""
            handler = self.surfaces.evaluation if self.kind in EVENTS else self.surfaces.sync
            answer = handler(
                Request(b"POST", path, b"", asked.headers(content_type), len(body).to_bytes(5, "big") + body)
            )
        assert isinstance(answer, Stream), f"{self.kind}: {answer!r}"
        return answer

    async def _run(self, stream: Stream) -> None:
        """Take what comes, one message at a time, each when the one before is read; as the wire layer does."""
        chunks: Any = stream.chunks
        try:
            async for chunk in chunks:
                self.in_flight = chunk
                await self.reading.wait()
                self.in_flight = b""
                self.heard = self.now()
                self._take(chunk)
            trailers = dict(stream.trailers() if stream.trailers else ())
            self.status = self.status or trailers.get(b"grpc-status", b"0").decode()
            self.ended = True
        finally:
            await chunks.aclose()

    def leave(self) -> None:
        """Go away without a word."""
        self.task.cancel()

    def _take(self, chunk: bytes) -> None:
        if self.kind == SSE:
            self._server_sent(chunk.decode())
            return
        flags, message = chunk[0], chunk[5:]
        json_form = self.kind.endswith("Connect")
        if flags & 2:
            self.status = json.loads(message).get("error", {}).get("code", "0")
        elif self.kind in SYNC:
            self.documents.append(
                json.loads(message)["flagConfiguration"]
                if json_form
                else sync_pb2.SyncFlagsResponse.FromString(message).flag_configuration
            )
        elif json_form:
            told = json.loads(message)
            self._event(told["type"], told["data"])
        else:
            event = v1.EventStreamResponse.FromString(message)
            self._event(event.type, plain(event.data))

    def _event(self, name: str, data: dict[str, Any]) -> None:
        self.told.append(name)
        if name == "provider_ready":
            self.view = numbers(self.current(), self.selector)
        elif name == "configuration_change":
            found = numbers(self.current(), self.selector)
            assert self.view is not None, "P5: a change came before anything else"
            for key in data["flags"]:
                self.view.pop(key, None)
                if key in found:
                    self.view[key] = found[key]

    def _server_sent(self, text: str) -> None:
        fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line and not line.startswith(":"))
        first = self.view is None
        if "id" in fields:
            self.last_id = fields["id"]
        if first or "data" in fields:
            self.told.append("refetch" if "data" in fields else "welcome")
            self.view = numbers(self.current(), self.selector)
