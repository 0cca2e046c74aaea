"""What the sync service of a proxy serves: the selector of a request names a target, as with flagd-proxy.

The header `Flagd-Selector`, which flagd-proxy does not know, counts where the request has no selector. A stream whose
target has no document yet is open and silent; a fetch fails after a while. Documents go out as they came, without a
context: that is the business of whoever evaluates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from wigwag.errors import UsageError
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
LATE = "there is no document of this target yet; what the proxy waits for is in its log and on /debug/targets"


class SyncTargets(Protocol):
    """The targets, as far as they are needed here."""

    def join(self, source: Source, encode: Encode, stream: BroadcastStream) -> Broadcast[Message]: ...


class Relay:
    """The source of a proxy's sync service."""

    def __init__(
        self,
        read: Callable[[str], Source],
        targets: SyncTargets,
        authorize: Authorize | None = None,
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`read` returns the target that a selector names, `UsageError` if it names none."""
        self._read, self._authorize, self._refused = read, authorize, refused
        self.join = targets.join

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
        """Ask whether the caller may have a target, if somebody is to be asked."""
        return None if self._authorize is None else self._authorized(self._authorize, call, target)

    async def _authorized(self, authorize: Authorize, call: Call, target: Source) -> Guard:
        try:
            return await authorize(bearer_token(call.header(b"authorization")), target)
        except RpcError:
            self._refused("authorization")
            raise


def bearer_token(header: bytes | None) -> str | None:
    """Return the token of an Authorization header, if it has one.

    >>> bearer_token(b"Bearer abc"), bearer_token(b"Basic abc"), bearer_token(None)
    ('abc', None, None)
    """
    scheme, _, credentials = (header or b"").strip().partition(b" ")
    token = credentials.strip().decode("ascii", "replace")
    return token if scheme.lower() == b"bearer" and token else None
