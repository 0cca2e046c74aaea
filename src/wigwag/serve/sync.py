"""Whole flag documents for in-process providers: `flagd.sync.v1`, and the older `sync.v1`.

A stream gets the document of its selection at once and again whenever that selection really changed, or the facts that
go with it: a provider evaluates with those it was sent last. A document is encoded once for all streams that want it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from wigwag.flags.selector import Selector
from wigwag.serve import messages
from wigwag.serve.context import SELECTOR
from wigwag.serve.evaluation import select
from wigwag.serve.feed import stopping
from wigwag.wire.rpc import Code, Method, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from wigwag.flags.flag import Flag
    from wigwag.serve.feed import Feed
    from wigwag.serve.management.metrics import Metrics
    from wigwag.serve.snapshot import Snapshot
    from wigwag.wire.rpc import Call, ServerStream

    class Encode(Protocol):
        """Writes a document as a message."""

        def __call__(self, document: str, context: dict[str, Any], /, *, json: bool) -> bytes: ...


SERVICE, OLD = "flagd.sync.v1.FlagSyncService", "sync.v1.FlagSyncService"
METADATA = f"/{SERVICE}/GetMetadata".encode()
AT_ONCE = 100
"""Flags that are written before others get their turn: about two milliseconds."""
MANY = 2_000
"""Flags of a document that takes a millisecond to put together."""
PATIENCE = 5.0
"""How long a client waits for the first document: one without flags, or with a part, would make it drop its own."""


class Sync:
    """The sync service. `context` is what every document is sent with; `metadata` turns GetMetadata on."""

    def __init__(
        self, feed: Feed, metrics: Metrics, context: dict[str, str], *, metadata: bool = True, deadline: float = 0.0
    ) -> None:
        self._feed, self._metrics, self._context = feed, metrics, context
        self._metadata, self._deadline = metadata, deadline

    def methods(self) -> dict[bytes, Method]:
        """Return the methods of both services."""
        found = {}
        for service, encode in ((SERVICE, messages.synced), (OLD, _without_context)):
            found[f"/{service}/SyncFlags".encode()] = Method(stream=self._stream(service, encode))
            found[f"/{service}/FetchAllFlags".encode()] = Method(unary=self._fetch)
        found[METADATA] = Method(unary=self._get_metadata)
        return found

    def _context_of(self, snapshot: Snapshot) -> dict[str, Any]:
        return {**snapshot.facts, **self._context}

    async def _fetch(self, call: Call) -> bytes:
        _, selector = _wanted(call)
        snapshot = await self._feed.whole(PATIENCE)
        select(snapshot, call, selector)
        await written(chosen(snapshot, selector))
        return snapshot.keep(
            selector, ("fetch", call.json), lambda: messages.synced(document(snapshot, selector), None, json=call.json)
        )

    def _get_metadata(self, call: Call) -> bytes:
        if not self._metadata:
            raise RpcError(Code.UNIMPLEMENTED, "metadata endpoint disabled")
        messages.read_nothing(call.body, call.json)
        return messages.metadata(self._context_of(self._feed.current()), json=call.json)

    def _stream(self, service: str, encode: Encode) -> ServerStream:
        def handler(call: Call) -> AsyncIterator[bytes]:
            provider_id, selector = _wanted(call)
            select(self._feed.current(), call, selector)

            def message(snapshot: Snapshot) -> bytes:
                form = service, call.json
                return snapshot.keep(
                    selector,
                    form,
                    lambda: encode(document(snapshot, selector), self._context_of(snapshot), json=call.json),
                )

            return self._documents(selector, provider_id, message)

        return handler

    async def _documents(
        self, selector: str, provider_id: str, message: Callable[[Snapshot], bytes]
    ) -> AsyncIterator[bytes]:
        start, ended = monotonic(), "client_disconnect"
        labels = self._metrics.stream_opened(selector, provider_id)
        try:
            await written(chosen(await self._feed.whole(PATIENCE), selector))
            first = self._feed.current()  # which may be a newer one; what it has more is written at once
            async with aclosing(self._feed.steps(first, deadline=self._deadline)) as steps:
                yield message(first)
                del first
                async for previous, current in steps:
                    if current is None:
                        raise stopping()
                    if current is not previous and _differ(previous, current, selector):
                        await written(chosen(current, selector))
                        yield message(current)
                    del previous  # or a quiet stream would keep it alive
        except RpcError as error:
            ended = "deadline_exceeded" if error.code is Code.DEADLINE_EXCEEDED else "normal_close"
            raise
        finally:
            self._metrics.stream_closed(labels, monotonic() - start, ended)


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


async def written(flags: Mapping[str, Flag]) -> None:
    """Write every flag that was not written yet, some at a time: others get their turn in between."""
    fresh = [flag for flag in flags.values() if not flag.written]
    for start in range(0, len(fresh), AT_ONCE):
        if start:
            await asyncio.sleep(0)
        for flag in fresh[start : start + AT_ONCE]:
            _ = flag.member
    if len(flags) > MANY:
        await asyncio.sleep(0)  # before all are put together


def _without_context(document: str, _: dict[str, Any], *, json: bool) -> bytes:
    return messages.synced_of_old(document, json=json)


def _differ(previous: Snapshot, current: Snapshot, selector: str) -> bool:
    before, after = previous.select(selector), current.select(selector)
    return previous.facts != current.facts or (before is not after and before.id != after.after(before).id)


def selection(call: Call) -> str | None:
    """Return the selector that a call comes with; None if it asks for no flags."""
    return None if call.request.path == METADATA else _wanted(call)[1]


def _wanted(call: Call) -> tuple[str, str]:
    """Return (provider id, selector): the header counts if it is there, even empty, else the body."""
    provider_id, selector = messages.read_sync(call.body, call.json)
    header = call.header(SELECTOR)
    return provider_id, selector if header is None else header.decode("utf-8", "replace")
