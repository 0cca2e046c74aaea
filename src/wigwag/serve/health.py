"""gRPC health checks, for whoever probes with `grpc.health.v1`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.serve import messages
from wigwag.wire.rpc import Method

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from wigwag.wire.rpc import Call


class Health:
    """Serving from the first moment to the last, as flagd's is."""

    def __init__(self, over: Callable[[], Awaitable[object]]) -> None:
        """`over` returns when the end has come."""
        self._over = over

    def methods(self) -> dict[bytes, Method]:
        """Return the methods of the service."""
        return {
            b"/grpc.health.v1.Health/Check": Method(unary=lambda call: messages.serving(json=call.json)),
            b"/grpc.health.v1.Health/Watch": Method(stream=self._watch),
        }

    async def _watch(self, call: Call) -> AsyncIterator[bytes]:
        yield messages.serving(json=call.json)
        await self._over()
        yield messages.serving(json=call.json, serving=False)
