"""The targets that clients subscribe to: one watch each, and one broadcast for each encoding of its documents.

    join ─▶ SyncTarget ─▶ wanted ─▶ Pipeline ─▶ documents ─▶ SyncTarget ─▶ Broadcasts ─▶ streams
                                                                    leave ─▶ (linger) ─▶ no longer wanted

A target is watched from its first subscriber on, and for a while after its last one: a client that reconnects must not
cost a watch. While nothing is known of a target its streams are open and silent. Whatever goes wrong with the watch is
in its status; streams keep the last good document and learn of the next one.

The hard case is the limit of targets: when it is reached, a target without subscribers is dropped early. Only if there
is none, a new target is refused.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from wigwag.observe import Counter
from wigwag.pipeline.broadcast import Broadcast
from wigwag.pipeline.parse import parsed_in_order
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted
from wigwag.proxy.documents import check
from wigwag.serve.streams import stopping
from wigwag.sources.critical import PAUSE, CriticalChanges
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.server.broadcast import BroadcastStream, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from wigwag.pipeline.clock import Timer
    from wigwag.pipeline.watch import WatchPolicy
    from wigwag.proxy.documents import RelayedDocument
    from wigwag.proxy.options import ProxyOptions
    from wigwag.serve.sync import Encode
    from wigwag.sources.document import AnyDocument
    from wigwag.sources.kind import Documents
    from wigwag.sources.source import Source

    TargetDocuments = Mapping[Source, RelayedDocument]


class SyncTarget:
    """One source, and the streams that carry its documents."""

    __slots__ = ("_broadcasts", "document", "source", "streams")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.streams: dict[BroadcastStream, float] = {}
        """The open streams, and since when."""
        self.document: RelayedDocument | None = None
        self._broadcasts: dict[Encode, Broadcast[Message]] = {}

    @property
    def subscribers(self) -> int:
        """How many streams are open."""
        return len(self.streams)

    @property
    def sent(self) -> int:
        """On how many of them the newest document has left."""
        return sum(each.broadcast is not None and each.seen == each.broadcast.serial > 0 for each in self.streams)

    def broadcast(self, encode: Encode) -> Broadcast[Message]:
        """Return the broadcast of the documents in an encoding."""
        broadcast = self._broadcasts.get(encode)
        if broadcast is None:
            broadcast = self._broadcasts[encode] = Broadcast()
            if self.document is not None:
                broadcast.publish(_message(encode, self.document))
        return broadcast

    def publish(self, document: RelayedDocument) -> None:
        """Send a document to all streams, if it is another one."""
        before, self.document = self.document, document
        if before is not document and (before is None or before.text != document.text):
            for encode, broadcast in self._broadcasts.items():
                broadcast.publish(_message(encode, document))

    def end(self, error: RpcError) -> None:
        """End all streams."""
        for broadcast in self._broadcasts.values():
            broadcast.end(error)


class Targets:
    """All targets. `refusals` counts subscribers that were refused."""

    def __init__(self, options: ProxyOptions, documents: Callable[[Source], Documents], policy: WatchPolicy) -> None:
        self._most, self._most_subscribers, self._linger = options.max_targets, options.max_subscribers, options.linger
        self._clock = policy.clock
        self._targets: dict[Source, SyncTarget] = {}
        self._lingering: dict[SyncTarget, Timer] = {}
        self._changed = asyncio.Event()
        self._closed = False
        self.subscribers = 0
        self.refusals = Counter("wigwag_proxy_refusals", "Subscribers that were refused, by reason.", ("reason",))
        self.critical = CriticalChanges(policy.clock)
        self.pipeline: Pipeline[Source, RelayedDocument, TargetDocuments] = Pipeline(
            (),
            parsed_in_order(documents, check, _never_large, self.critical),  # type: ignore[misc]  # see `Loader.watcher`
            _passed_through,
            policy=replace(policy, pause=PAUSE),
        )

    def __len__(self) -> int:
        return len(self._targets)

    def __iter__(self) -> Iterator[SyncTarget]:
        return iter(list(self._targets.values()))

    def get(self, source: Source) -> SyncTarget | None:
        """Return what is known of a source, if anybody subscribes to it, or did just now."""
        return self._targets.get(source)

    def join(self, source: Source, encode: Encode, stream: BroadcastStream) -> Broadcast[Message]:
        """Subscribe a stream: return the broadcast that it reads."""
        if self._closed:
            raise stopping()
        if self.subscribers >= self._most_subscribers:
            raise self._refuse("subscribers", f"{self._most_subscribers} streams are open already; try again later")
        target = self._targets.get(source) or self._opened(source)
        if timer := self._lingering.pop(target, None):
            timer.cancel()
        target.streams[stream] = self._clock.now()
        self.subscribers += 1
        stream.on_close(partial(self._leave, target, stream))
        return target.broadcast(encode)

    def described_streams(self) -> Iterator[dict[str, Any]]:
        """Return each stream, and what it waits for, as plain JSON."""
        now = self._clock.now()
        for target in self._targets.values():
            for stream, since in target.streams.items():
                yield {
                    "target": target.source.name,
                    "seconds": round(now - since, 3),
                    "sent": stream.seen,
                    "waits": _waits_for(target, stream),
                }

    def close(self) -> None:
        """Refuse new streams, and end all open ones."""
        self._closed = True
        for target in self._targets.values():
            target.end(stopping())

    async def run(self) -> None:
        """Watch what is wanted, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.pipeline.run())
                group.create_task(self._hand_out())
                await self._steer()
        finally:
            for timer in self._lingering.values():
                timer.cancel()

    async def _steer(self) -> None:
        """Pass the wanted targets to the pipeline, once for all streams that open and close at the same moment."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self.pipeline.want([Wanted(source, required=False) for source in self._targets])

    async def _hand_out(self) -> None:
        async for documents in self.pipeline.published:
            for source, document in critical_first(documents):
                target = self._targets.get(source)
                if target is not None:
                    target.publish(document)

    def _opened(self, source: Source) -> SyncTarget:
        if len(self._targets) >= self._most:
            if not self._lingering:
                raise self._refuse("targets", f"{self._most} targets are watched already; try again later")
            self._drop(next(iter(self._lingering)))
        self._changed.set()
        target = self._targets[source] = SyncTarget(source)
        return target

    def _leave(self, target: SyncTarget, stream: BroadcastStream) -> None:
        del target.streams[stream]
        self.subscribers -= 1
        if not target.streams:
            when = self._clock.now() + self._linger
            self._lingering[target] = self._clock.call_at(when, partial(self._drop, target))

    def _drop(self, target: SyncTarget) -> None:
        """Drop a target without subscribers."""
        self._lingering.pop(target).cancel()
        del self._targets[target.source]
        self._changed.set()

    def _refuse(self, reason: str, message: str) -> RpcError:
        self.refusals.add((reason,))
        return RpcError(Code.RESOURCE_EXHAUSTED, message)


def _waits_for(target: SyncTarget, stream: BroadcastStream) -> str:
    if target.document is None:
        return "the first document of the target"
    newest = stream.broadcast is not None and stream.seen == stream.broadcast.serial
    return "the next change" if newest else "room to send the newest document"


def _message(encode: Encode, document: RelayedDocument) -> Message:
    return Message(partial(encode, document.text, None))


def critical_first(documents: TargetDocuments) -> list[tuple[Source, RelayedDocument]]:
    """Return all documents, those with critical flags first: what is sent to thousands of streams takes its time."""
    return sorted(documents.items(), key=lambda item: not item[1].critical)


def _never_large(_: Source, __: AnyDocument) -> bool:
    return False  # it is not loaded, only looked at


def _passed_through(values: Mapping[Source, RelayedDocument]) -> TargetDocuments:
    return values
