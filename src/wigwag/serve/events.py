"""Streams of changes: the event stream of the evaluation services, and server-sent events.

Every subscriber compares the snapshot it saw last with the current one, within its own selection. A slow one skips
snapshots but never misses the difference. A thousand subscribers of one selection share one comparison and encoding.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.flags.store import diff
from wigwag.serve import messages
from wigwag.serve.context import select, selector_of
from wigwag.serve.streams import steps, stopping

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.serve.snapshot import Snapshot
    from wigwag.wire.rpc import Call, ServerStream

KEEP_ALIVE_SECONDS = 20.0
HEARTBEAT_SECONDS = 30.0


class ChangeStreams:
    """Streams of changes to the published flags."""

    def __init__(
        self, snapshots: Broadcast[Snapshot], deadline: float = 0.0, keep_alive: float = KEEP_ALIVE_SECONDS
    ) -> None:
        self._snapshots, self._deadline, self._keep_alive = snapshots, deadline, keep_alive

    def event_stream(self, *, bounded: bool) -> ServerStream:
        """Return the handler of `EventStream`; `bounded` by the stream deadline."""

        def handler(call: Call) -> AsyncIterator[bytes]:
            messages.read_nothing(call.body, call.json)
            if self._snapshots.error is not None:  # or it would say that it is ready, and then that it is not
                raise stopping()
            select(self._snapshots.value, call)
            return self._events(selector_of(call), call.json, self._deadline if bounded else 0.0)

        return handler

    async def _events(self, selector: str, json: bool, deadline: float) -> AsyncIterator[bytes]:
        """Yield ready at once, then each change, something every 20 seconds, and a farewell; then fail."""
        async with aclosing(steps(self._snapshots, self._snapshots.value, self._keep_alive, deadline)) as stream:
            yield messages.event("provider_ready", {}, json=json)
            async for previous, snapshot in stream:
                if snapshot is None:
                    yield messages.event("provider_shutdown", {}, json=json)
                    raise stopping()
                elif snapshot is previous:
                    yield messages.event("keep_alive", {}, json=json)
                else:
                    changed = changes(previous, snapshot, selector)
                    if changed:
                        form = "event", previous.number, json
                        yield snapshot.keep(selector, form, lambda: _change(changed, json))  # noqa: B023 - called at once
                del previous  # or a quiet stream would keep it alive

    async def server_sent(self, selector: str, last: str = "") -> AsyncIterator[bytes]:
        """Yield server-sent events that make a client evaluate again.

        `last` is the id of the last event of a client that reconnects: it gets an event at once if it missed a change.
        Ids are digests of the selection, so they hold across restarts and agents.
        """
        async with aclosing(steps(self._snapshots, self._snapshots.value, HEARTBEAT_SECONDS)) as stream:
            yield _welcome(self._snapshots.value, selector, last)
            async for previous, snapshot in stream:
                if snapshot is None:
                    return
                if snapshot is previous:
                    yield b": heartbeat\n\n"
                elif changes(previous, snapshot, selector) or previous.facts != snapshot.facts:
                    yield _refetch(snapshot, selector)
                del previous


def changes(previous: Snapshot, snapshot: Snapshot, selector: str) -> dict[str, str]:
    """Return what happened to which key of a selection between two snapshots: write, update or delete."""
    form = "changes", previous.number  # not the snapshot itself, which would keep all that went before it alive
    return snapshot.keep(selector, form, lambda: diff(previous.select(selector), snapshot.select(selector)).kinds())


def _change(kinds: dict[str, str], json: bool) -> bytes:
    data: dict[str, Any] = {"flags": {key: {"type": kind} for key, kind in kinds.items()}}
    return messages.event("configuration_change", data, json=json)


def _welcome(snapshot: Snapshot, selector: str, last: str) -> bytes:
    """Return the first event: the current id; while there are no flags yet, nothing that makes clients drop theirs."""
    if not snapshot.number:
        return b": connected\n\n"
    current = snapshot.version(selector)
    return b": connected\nid: %s\n\n" % current.encode() if last in ("", current) else _refetch(snapshot, selector)


def _refetch(snapshot: Snapshot, selector: str) -> bytes:
    event = {"type": "refetchEvaluation", "etag": f'"{snapshot.id}"', "lastModified": int(snapshot.published)}
    current = snapshot.version(selector).encode()
    return b"id: %s\nevent: message\ndata: %s\n\n" % (current, msgspec.json.encode(event))
