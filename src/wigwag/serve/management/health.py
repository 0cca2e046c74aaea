"""gRPC health checks: `grpc.health.v1`, for the server as a whole. It answers for no single service, as flagd's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.serve import messages
from wigwag.wire.rpc import Code, Method, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from wigwag.wire.rpc import Call


class HealthService:
    """Serving from the first moment to the last, as flagd's is."""

    def __init__(self, over: Callable[[], Awaitable[object]]) -> None:
        """`over` returns when the end has come."""
        self._over = over

    def methods(self) -> dict[bytes, Method]:
        """Return the methods of the service."""
        return {
            b"/grpc.health.v1.Health/Check": Method(unary=self._check),
            b"/grpc.health.v1.Health/Watch": Method(stream=self._watch),
        }

    def _check(self, call: Call) -> bytes:
        if messages.read_health(call.body, call.json):
            raise RpcError(Code.NOT_FOUND, "unknown service")
        return messages.health("SERVING", json=call.json)

    async def _watch(self, call: Call) -> AsyncIterator[bytes]:
        """A service that is unknown may become known later: the stream says so and stays open, by the protocol."""
        known = not messages.read_health(call.body, call.json)
        yield messages.health("SERVING" if known else "SERVICE_UNKNOWN", json=call.json)
        await self._over()
        if known:
            yield messages.health("NOT_SERVING", json=call.json)
