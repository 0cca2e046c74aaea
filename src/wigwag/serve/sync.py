"""Whole flag documents for in-process providers: `flagd.sync.v1`, and the older `sync.v1`.

    request ─▶ target ─▶ admit ─▶ BroadcastStream ─ join ─▶ the target's broadcast of encoded documents

The agent and the proxy serve the same two methods; a `DocumentSource` says what a request asks for, who may have it,
and which broadcast carries it. A stream gets the newest document at once, or as soon as there is one, and then each
that differs. A document is encoded once for all streams that want it in the same form, and no stream has a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from wigwag.serve import messages
from wigwag.wire.rpc import Code, Method, RpcError
from wigwag.wire.server.broadcast import BroadcastStream, Guard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.wire.rpc import Call, ServerStream
    from wigwag.wire.server.broadcast import Message

T = TypeVar("T")
Encode: TypeAlias = Callable[[str, Mapping[str, Any] | None], bytes]
"""Encodes a document, and the context that goes with it, as a message. There are six, and each is one object."""
SERVICE, OLD = "flagd.sync.v1.FlagSyncService", "sync.v1.FlagSyncService"
PATIENCE = 5.0
"""How long a client waits for the first document: one without flags, or with a part, would make it drop its own."""


class DocumentSource(Protocol[T]):
    """Where the documents come from: the selections of an agent, or the targets of a proxy."""

    def target(self, call: Call) -> T:
        """Return what a call asks for; `RpcError` if there is no such thing."""
        ...

    def admit(self, call: Call, target: T) -> Guard | Awaitable[Guard] | None:
        """Return what to call when a stream of this target begins, if anything; `RpcError` if the call is refused."""
        ...

    def join(self, target: T, encode: Encode, stream: BroadcastStream) -> Broadcast[Message]:
        """Return the broadcast that a stream reads."""
        ...


class Sync(Generic[T]):
    """The sync service."""

    def __init__(self, source: DocumentSource[T], late: str = "", patience: float | None = None) -> None:
        """A fetch fails with `late` after `patience` seconds without a document; None: the source says when."""
        self._source, self._late, self._patience = source, late, patience

    def methods(self) -> dict[bytes, Method]:
        """Return the methods of both services."""
        methods = {}
        for service, encoders in ((SERVICE, _NEW), (OLD, _OLD)):
            methods[f"/{service}/SyncFlags".encode()] = Method(stream=self._stream(encoders))
            methods[f"/{service}/FetchAllFlags".encode()] = Method(unary=self._fetch)
        return methods

    def _stream(self, encoders: tuple[Encode, Encode]) -> ServerStream:
        def handler(call: Call) -> AsyncIterator[bytes] | Awaitable[AsyncIterator[bytes]]:
            target = self._source.target(call)
            stream = BroadcastStream(partial(self._source.join, target, encoders[call.json]))
            guard = self._source.admit(call, target)
            if isawaitable(guard):
                return _admitted(stream, guard)
            if guard is not None:
                stream.guard(guard)
            return stream

        return handler

    async def _fetch(self, call: Call) -> bytes:
        target = self._source.target(call)
        guard = self._source.admit(call, target)
        if isawaitable(guard):
            await guard
        stream = BroadcastStream(partial(self._source.join, target, _FETCHED[call.json]))
        try:
            async with asyncio.timeout(self._patience):
                return await anext(stream)
        except TimeoutError:
            raise RpcError(Code.UNAVAILABLE, self._late) from None
        finally:
            stream.close()


async def _admitted(stream: BroadcastStream, guard: Awaitable[Guard]) -> AsyncIterator[bytes]:
    stream.guard(await guard)
    return stream


def _old(document: str, _: Mapping[str, Any] | None, *, json: bool) -> bytes:
    return messages.synced_of_old(document, json=json)


def _fetched(document: str, _: Mapping[str, Any] | None, *, json: bool) -> bytes:
    return messages.synced(document, None, json=json)


_NEW: tuple[Encode, Encode] = partial(messages.synced, json=False), partial(messages.synced, json=True)
_OLD: tuple[Encode, Encode] = partial(_old, json=False), partial(_old, json=True)
_FETCHED: tuple[Encode, Encode] = partial(_fetched, json=False), partial(_fetched, json=True)
"""In protobuf and in JSON."""
