"""Documents of many targets for whoever subscribes to one: `flagd.sync.v1` and the older `sync.v1`, as flagd-proxy has.

The selector in the request is the target. (The header `Flagd-Selector`, which flagd-proxy does not know, counts where
the request has none.) A stream gets the newest document at once, or when there is one, and then each that differs.
There is no context beside it and no metadata: both are the business of whoever evaluates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from wigwag.errors import UsageError
from wigwag.origin import bearer_token
from wigwag.serve import messages
from wigwag.serve.context import SELECTOR
from wigwag.serve.sync import OLD, PATIENCE, SERVICE
from wigwag.wire.rpc import Code, Method, RpcError
from wigwag.wire.server.board import Board, Posted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wigwag.wire.rpc import Call, ServerStream, Unary

T = TypeVar("T")
Encode: TypeAlias = Callable[[str], bytes]
"""Writes a document as a message. There are four, and each is one object."""
Joined: TypeAlias = tuple[Board, Callable[[], None]]
"""The board of a stream, and what to call at its end."""
Admit: TypeAlias = Callable[[Joined], Joined]
"""Returns what a stream reads instead of what it has joined, so that it can be ended when its permission ends."""
Authorize: TypeAlias = Callable[[str | None, T], Awaitable[Admit]]
"""Given the bearer token of a call, if it has one, and its target: returns if that is allowed, or raises `RpcError`."""
LATE = "there is no document of this target yet; what the proxy waits for is in its log and on /debug/targets"


class Relay(Generic[T]):
    """The sync service of a proxy."""

    def __init__(
        self,
        read: Callable[[str], T],
        join: Callable[[T, Encode], Joined],
        authorize: Authorize[T] | None = None,
        refused: Callable[[str], None] = lambda reason: None,
        patience: float = PATIENCE,
    ) -> None:
        """`read` finds the target of a selector, `UsageError` if there is none; `join` subscribes to it."""
        self._read, self._join, self._authorize, self._refused = read, join, authorize, refused
        self._patience = patience

    def methods(self) -> dict[bytes, Method]:
        """Return the methods of both services."""
        found = {}
        for service, forms in ((SERVICE, _NEW), (OLD, _OF_OLD)):
            found[f"/{service}/SyncFlags".encode()] = Method(stream=self._stream(forms))
            found[f"/{service}/FetchAllFlags".encode()] = Method(unary=self._fetch())
        return found

    def _stream(self, forms: tuple[Encode, Encode]) -> ServerStream:
        def handler(call: Call) -> AsyncIterator[bytes] | Awaitable[AsyncIterator[bytes]]:
            target = self._target(call)
            join = partial(self._join, target, forms[call.json])
            return Posted(join) if self._authorize is None else self._admitted(call, target, join)

        return handler

    async def _admitted(self, call: Call, target: T, join: Callable[[], Joined]) -> AsyncIterator[bytes]:
        admit = await self._check(call, target)
        return Posted(lambda: admit(join()))

    def _fetch(self) -> Unary:
        async def fetch(call: Call) -> bytes:
            target = self._target(call)
            await self._check(call, target)
            posted = Posted(partial(self._join, target, _NEW[call.json]))
            try:
                async with asyncio.timeout(self._patience):
                    return await anext(posted)
            except TimeoutError:
                raise RpcError(Code.UNAVAILABLE, LATE) from None
            finally:
                await posted.aclose()

        return fetch

    def _target(self, call: Call) -> T:
        _, selector = messages.read_sync(call.body, call.json)
        header = call.header(SELECTOR)
        if not selector and header is not None:
            selector = header.decode("utf-8", "replace")
        try:
            return self._read(selector)
        except UsageError as error:
            self._refused("selector")
            raise RpcError(Code.INVALID_ARGUMENT, str(error)) from error

    async def _check(self, call: Call, target: T) -> Admit:
        if self._authorize is None:
            return lambda joined: joined
        token = bearer_token(call.header(b"authorization"))
        try:
            return await self._authorize(token.decode("ascii", "replace") if token is not None else None, target)
        except RpcError:
            self._refused("authorization")
            raise


def _new(document: str) -> bytes:
    return messages.synced(document, None, json=False)


def _new_json(document: str) -> bytes:
    return messages.synced(document, None, json=True)


def _of_old(document: str) -> bytes:
    return messages.synced_of_old(document, json=False)


def _of_old_json(document: str) -> bytes:
    return messages.synced_of_old(document, json=True)


_NEW, _OF_OLD = (_new, _new_json), (_of_old, _of_old_json)
