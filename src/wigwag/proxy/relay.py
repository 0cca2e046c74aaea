"""What the sync service of a proxy serves: the selector of a request names a target, as with flagd-proxy.

The header `Flagd-Selector`, which flagd-proxy does not know, counts where the request has no selector. A stream whose
target has no document yet is open and silent; a fetch fails after a while. Documents go out as they came, without a
context: the agent that evaluates adds it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from wigwag.errors import UsageError
from wigwag.origin import bearer_token
from wigwag.serve import messages
from wigwag.serve.context import SELECTOR
from wigwag.serve.sync import PATIENCE, Sync
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.server.broadcast import Guard

if TYPE_CHECKING:
    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.serve.sync import Encode
    from wigwag.sources.source import Source
    from wigwag.wire.rpc import Call, Method
    from wigwag.wire.server.broadcast import BroadcastStream, Message

Authorize: TypeAlias = "Callable[[str | None, Source], Awaitable[Guard]]"
"""Given the bearer token of a call, if it has one, and its target: returns a guard of the stream, or raises."""
Join: TypeAlias = "Callable[[Source, Encode, BroadcastStream], Broadcast[Message]]"
LATE = "there is no document of this target yet; what the proxy waits for is in its log and on /debug/targets"


class Relay:
    """The source of a proxy's sync service."""

    def __init__(
        self,
        read: Callable[[str], Source],
        join: Join,
        authorize: Authorize | None = None,
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`read` returns the target of a selector, or raises `UsageError`; `join` subscribes a stream to it."""
        self._read, self._authorize, self._refused = read, authorize, refused
        self.join = join

    def methods(self, patience: float = PATIENCE) -> dict[bytes, Method]:
        """Return the methods of the sync services."""
        return Sync(self, LATE, patience).methods()

    def target(self, call: Call) -> Source:
        """Return the target that a call names."""
        _, selector = messages.read_sync(call.body, call.json)
        header = call.header(SELECTOR)
        if not selector and header is not None:
            selector = header.decode("utf-8", "replace")
        try:
            return self._read(selector)
        except UsageError as error:
            self._refused("selector")
            raise RpcError(Code.INVALID_ARGUMENT, str(error)) from error

    def admit(self, call: Call, target: Source) -> Awaitable[Guard] | None:
        """Ask whether the caller may have a target, if callers are authorized at all."""
        return None if self._authorize is None else self._authorized(self._authorize, call, target)

    async def _authorized(self, authorize: Authorize, call: Call, target: Source) -> Guard:
        token = bearer_token(call.header(b"authorization"))
        try:
            return await authorize(token.decode("ascii", "replace") if token is not None else None, target)
        except RpcError:
            self._refused("authorization")
            raise
