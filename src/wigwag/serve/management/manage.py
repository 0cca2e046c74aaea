"""The management port: probes and metrics, as flagd has them. Ready is 200, not yet is 412. The rest is in `debug`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from wigwag.wire.http import Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from wigwag.observe import Registry
    from wigwag.wire.http import Handler, Headers, Request

    Page = Callable[[Request], Reply | Awaitable[Reply]]

_TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"),)
_METHODS = (b"GET", b"HEAD", b"POST")
_METRICS: Headers = ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),)


class Debugging(Protocol):
    """The debug pages of a face."""

    def pages(self) -> Mapping[bytes, Page]:
        """Return the pages by their path."""
        ...


class Management:
    """The management service."""

    def __init__(self, ready: Callable[[], bool], registry: Registry, debug: Debugging) -> None:
        self._ready, self._registry, self._debug = ready, registry, debug

    def handler(self) -> Handler:
        """Return the function that answers requests."""
        pages: dict[bytes, Page] = {
            b"/healthz": lambda request: Reply(200, _TEXT),
            b"/readyz": lambda request: Reply(200 if self._ready() else 412, _TEXT),
            b"/metrics": lambda request: Reply(200, _METRICS, self._registry.render().encode()),
            **self._debug.pages(),
        }

        def handle(request: Request) -> Reply | Awaitable[Reply]:
            page = pages.get(request.path)
            if page is None:
                return Reply(404, _TEXT, b"404 page not found\n")
            if request.method not in _METHODS:
                return Reply(405, (*_TEXT, (b"allow", b", ".join(_METHODS))), b"method not allowed\n")
            return page(request)

        return handle
