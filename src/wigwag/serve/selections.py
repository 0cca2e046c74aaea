"""The documents that an agent syncs: for each selection and encoding that streams ask for, one broadcast.

    snapshots ─▶ Selection ─ differs? ─▶ its flags written, some at a time ─▶ Broadcast ─▶ streams

A selection publishes a document when its flags really changed, or the facts that go with them: a provider evaluates
with those it was sent last. It exists for as long as streams read it. Nothing is published before the flags of all
required sources are there; a stream that waits for them ends after `PATIENCE`.

The hard case is a large set: to write a hundred thousand flags takes seconds. They are written in slices, and other
work gets its turn in between. A stream that joins meanwhile waits for the new document instead of reading the old one.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from wigwag.flags.selector import Selector
from wigwag.pipeline.broadcast import Broadcast
from wigwag.serve import messages
from wigwag.serve.context import SELECTOR, select
from wigwag.serve.streams import NOT_YET, timed_out
from wigwag.serve.sync import PATIENCE, SERVICE, Sync
from wigwag.wire.rpc import Code, Method, RpcError
from wigwag.wire.server.broadcast import Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wigwag.flags.flag import Flag
    from wigwag.serve.management.metrics import Metrics
    from wigwag.serve.snapshot import Snapshot
    from wigwag.serve.sync import Encode
    from wigwag.wire.rpc import Call
    from wigwag.wire.server.broadcast import BroadcastStream, Guard

METADATA = f"/{SERVICE}/GetMetadata".encode()
SLICE = 100
"""Flags that are written before others get their turn: about two milliseconds."""
SENT = 100
"""Documents whose snapshot is remembered, to tell how far behind a stream is."""
MANY = 2_000
"""Flags of a document that takes a millisecond to put together."""


class SyncRequest(NamedTuple):
    """What a client asks for, and what it calls itself."""

    provider_id: str
    selector: str


class OpenStream(NamedTuple):
    """A stream that is open: what it asked for, from where, and since when."""

    request: SyncRequest
    address: str
    since: float


class Selections:
    """All selections that streams read, as the source of the sync service."""

    def __init__(
        self,
        snapshots: Broadcast[Snapshot],
        metrics: Metrics,
        context: dict[str, str],
        *,
        metadata: bool = True,
        deadline: float = 0.0,
    ) -> None:
        """`context` is sent with every document; `metadata` enables GetMetadata; `deadline` ends every stream."""
        self._snapshots, self._metrics, self._context = snapshots, metrics, context
        self._metadata, self._deadline = metadata, deadline
        self._open: dict[tuple[str, Encode], Selection] = {}
        self._streams: dict[BroadcastStream, OpenStream] = {}

    def methods(self) -> dict[bytes, Method]:
        """Return the methods of the sync services."""
        return {**Sync(self).methods(), METADATA: Method(unary=self._get_metadata)}

    def _get_metadata(self, call: Call) -> bytes:
        if not self._metadata:
            raise RpcError(Code.UNIMPLEMENTED, "metadata endpoint disabled")
        messages.read_nothing(call.body, call.json)
        return messages.metadata({**self._snapshots.value.facts, **self._context}, json=call.json)

    def target(self, call: Call) -> SyncRequest:
        """Return what a call asks for."""
        request = _read(call)
        select(self._snapshots.value, call, request.selector)
        return request

    def admit(self, call: Call, target: SyncRequest) -> Guard:
        """Return what counts a stream, and limits its time."""
        peer = call.request.peer
        return partial(self._begin, target, str(peer.address) if peer is not None and peer.address else "")

    def _begin(self, request: SyncRequest, address: str, stream: BroadcastStream) -> None:
        labels = self._metrics.stream_opened(request.selector, request.provider_id)
        stream.on_close(partial(self._closed, stream, labels, monotonic()))
        self._streams[stream] = OpenStream(request, address, monotonic())
        stream.on_close(partial(self._streams.pop, stream, None))
        if self._deadline:
            stream.on_close(asyncio.get_running_loop().call_later(self._deadline, stream.end, timed_out()).cancel)

    def _closed(self, stream: BroadcastStream, labels: tuple[str, str], start: float) -> None:
        reason = "client_disconnect"
        if stream.error is not None:
            reason = "deadline_exceeded" if stream.error.code is Code.DEADLINE_EXCEEDED else "normal_close"
        self._metrics.stream_closed(labels, monotonic() - start, reason)

    def describe(self) -> list[dict[str, Any]]:
        """Return who reads which documents, and which snapshot was sent last, as plain JSON."""
        numbers = {selection.broadcast: selection for selection in self._open.values()}
        described = []
        for stream, opened in self._streams.items():
            selection = numbers.get(stream.broadcast) if stream.broadcast is not None else None
            described.append(
                {
                    "provider": opened.request.provider_id,
                    "selector": opened.request.selector,
                    "address": opened.address,
                    "seconds": round(monotonic() - opened.since, 3),
                    "snapshot": None if selection is None else selection.sent.get(stream.seen),
                    "newest": selection is not None and stream.seen == selection.broadcast.serial,
                }
            )
        return described

    def join(self, target: SyncRequest, encode: Encode, stream: BroadcastStream) -> Broadcast[Message]:
        """Return the broadcast of a selection."""
        key = target.selector, encode
        selection = self._open.get(key)
        if selection is None:
            selection = self._open[key] = Selection(self._snapshots, target.selector, encode, self._context)
        stream.on_close(partial(self._leave, key, selection))
        selection.join(stream)
        return selection.broadcast

    def _leave(self, key: tuple[str, Encode], selection: Selection) -> None:
        if not selection.broadcast.subscribers:
            selection.close()
            self._open.pop(key, None)


class Selection:
    """The documents of one selector in one encoding."""

    def __init__(
        self, snapshots: Broadcast[Snapshot], selector: str, encode: Encode, context: Mapping[str, str]
    ) -> None:
        self._snapshots, self._selector, self._encode, self._context = snapshots, selector, encode, context
        self._loop = asyncio.get_running_loop()
        self._published: Snapshot | None = None
        """What the last document is of; None: the next snapshot is published whatever is in it."""
        self._update: Iterator[None] = iter(())
        self._next: asyncio.Handle | None = None
        """The next slice of the update."""
        self.broadcast = Broadcast[Message]()
        self.sent: dict[int, int] = {}
        """The number of the snapshot that each of the last documents is of, by serial."""
        snapshots.subscribe(self.notify)
        self.notify()

    def join(self, stream: BroadcastStream) -> None:
        """Let a stream begin with the document of now, even if that is still being written."""
        if self._next is not None and self._differs(self._snapshots.value):
            self._published = None  # the stream waits for it, even if the flags change back meanwhile
            stream.seen = self.broadcast.serial
        if not self._ready:
            stream.on_close(self._loop.call_later(PATIENCE, self._late, stream).cancel)

    def close(self) -> None:
        """Follow the snapshots no longer."""
        self._snapshots.unsubscribe(self.notify)
        if self._next is not None:
            self._next.cancel()

    def notify(self) -> None:
        """Begin to write the newest snapshot, unless one is being written: then it follows."""
        if self._snapshots.error is not None:
            self.broadcast.end(self._snapshots.error)
        elif self._next is None:
            self._update = self._updating()
            self._next = self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        self._next = None
        for _ in self._update:
            self._next = self._loop.call_soon(self._continue)
            break

    def _updating(self) -> Iterator[None]:
        """Publish the newest snapshot if the selection differs; yield to give others their turn."""
        while self._ready and (snapshot := self._snapshots.value) is not self._published:
            if self._differs(snapshot):
                flags = chosen(snapshot, self._selector)
                unwritten = [flag for flag in flags.values() if not flag.written]
                for number, flag in enumerate(unwritten):
                    if number and not number % SLICE:
                        yield
                    _ = flag.member
                if len(flags) > MANY:
                    yield  # before all are put together
                data = snapshot.keep(self._selector, self._encode, partial(self._encoded, snapshot))
                self._published = snapshot
                self.broadcast.publish(_message(data))
                self.sent[self.broadcast.serial] = snapshot.number
                self.sent.pop(self.broadcast.serial - SENT, None)
            self._published = snapshot

    def _encoded(self, snapshot: Snapshot) -> bytes:
        return self._encode(document(snapshot, self._selector), {**snapshot.facts, **self._context})

    def _differs(self, snapshot: Snapshot) -> bool:
        before = self._published
        return before is None or before.facts != snapshot.facts or _differ(before, snapshot, self._selector)

    @property
    def _ready(self) -> bool:
        return self._snapshots.value.extent == "whole"

    def _late(self, stream: BroadcastStream) -> None:
        if not self._ready:
            stream.end(RpcError(Code.UNAVAILABLE, NOT_YET))


def _message(data: bytes) -> Message:
    return Message(lambda: data)  # which holds on to no snapshot


def document(snapshot: Snapshot, selector: str) -> str:
    """Return the flags of a selection as a document that every provider understands."""
    flags = chosen(snapshot, selector).values()
    return '{"flags":{' + ",".join([flag.written or flag.member for flag in flags]) + "}}"


def chosen(snapshot: Snapshot, selector: str) -> Mapping[str, Flag]:
    """Return the flags of a selection by key, as their sources have them.

    The selector is reflected in the metadata of evaluations, not in documents.
    """
    return snapshot.keep(selector, "chosen", lambda: _chosen(snapshot, Selector.parse(selector)))


def _chosen(snapshot: Snapshot, wanted: Selector) -> Mapping[str, Flag]:
    sets = snapshot.flags.sets
    if wanted.only_set is not None:
        return sets.get(wanted.only_set, {})
    in_order = [flags for _, flags in sorted(sets.items()) if flags]
    if len(in_order) == 1 and not wanted.key:
        return in_order[0]
    return {key: flag for flags in in_order for key, flag in flags.items() if wanted.matches(flag)}


def _differ(previous: Snapshot, current: Snapshot, selector: str) -> bool:
    before, after = previous.select(selector), current.select(selector)
    return before is not after and before.id != after.after(before).id


def selection(call: Call) -> str | None:
    """Return the selector that a call comes with; None if it asks for no flags."""
    return None if call.request.path == METADATA else _read(call).selector


def _read(call: Call) -> SyncRequest:
    """Read a request: the header counts if it is there, even empty, else the body."""
    provider_id, selector = messages.read_sync(call.body, call.json)
    header = call.header(SELECTOR)
    return SyncRequest(provider_id, selector if header is None else header.decode("utf-8", "replace"))
