"""The management port: probes, metrics and gRPC health checks, as flagd has them. The rest is in `debug`.

Ready is 200, not yet is 412. `grpc.health.v1` answers for the server as a whole, for no single service. It says SERVING
from the first moment to the last, so it is no readiness probe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from wigwag.serve import messages
from wigwag.wire.http import Reply
from wigwag.wire.rpc import Code, Method, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from wigwag.observe import Registry
    from wigwag.wire.http import Handler, Headers, Request, Response
    from wigwag.wire.rpc import Call

    Page = Callable[[Request], Reply | Awaitable[Reply]]

TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"),)
CONSOLE = b"/console/"
_METHODS = (b"GET", b"HEAD", b"POST")
_METRICS: Headers = ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),)


class Debugging(Protocol):
    """More pages of a face, most of them for debugging."""

    def pages(self) -> Mapping[bytes, Page]:
        """Return the pages by their path."""
        ...


class Management:
    """The management service."""

    def __init__(self, ready: Callable[[], bool], registry: Registry, *more: Debugging) -> None:
        self._ready, self._registry, self._more = ready, registry, more

    def handler(self) -> Handler:
        """Return the function that answers requests."""
        pages: dict[bytes, Page] = {
            b"/healthz": lambda request: Reply(200, TEXT),
            b"/readyz": lambda request: Reply(200 if self._ready() else 412, TEXT),
            b"/metrics": metrics_page(self._registry),
        }
        for each in self._more:
            pages |= each.pages()
        return paged(pages)


def with_console(handler: Handler, console: Callable[[], Handler]) -> Handler:
    """Return a handler with the console under `/console`, which is made when somebody asks for it."""
    made: list[Handler] = []

    def handle(request: Request) -> Response | Awaitable[Response]:
        if not (request.path + b"/").startswith(CONSOLE):
            return handler(request)
        if not made:
            made.append(console())
        return made[0](request)

    return handle


def metrics_page(registry: Registry) -> Page:
    """Return the page with all metrics."""
    return lambda request: Reply(200, _METRICS, registry.render().encode())


def paged(pages: Mapping[bytes, Page]) -> Handler:
    """Return the function that answers requests for pages by their path."""

    def handle(request: Request) -> Reply | Awaitable[Reply]:
        page = pages.get(request.path)
        if page is None:
            return Reply(404, TEXT, b"404 page not found\n")
        if request.method not in _METHODS:
            return Reply(405, (*TEXT, (b"allow", b", ".join(_METHODS))), b"method not allowed\n")
        return page(request)

    return handle


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
