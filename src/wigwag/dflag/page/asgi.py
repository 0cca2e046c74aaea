"""The flags page as an ASGI application, for uvicorn, hypercorn and granian, or mounted in Starlette or FastAPI.

A change calls notifiers of the program, and these may block, so each request is answered in a thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

from wigwag.dflag.page.messages import PageRequest, folded

if TYPE_CHECKING:
    from wigwag.dflag.page.site import Site

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def asgi(site: Site) -> App:
    """Return the application.

    >>> from wigwag import dflag
    >>> from wigwag.dflag.page.site import Site
    >>> app = asgi(Site(dflag.FlagSet("example")))
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await _http(site, scope, receive, send)
            case "lifespan":
                await _lifespan(receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1000})
            case other:
                raise ValueError(f"the flags page supports HTTP, not {other!r}")

    return app


async def _http(site: Site, scope: Scope, receive: Receive, send: Send) -> None:
    import asyncio

    body = await _body(receive, site.limits.body)
    if body is None:
        return
    response = await asyncio.to_thread(site, _request(scope, body))
    await send({"type": "http.response.start", "status": response.status, "headers": response.raw_headers()})
    await send({"type": "http.response.body", "body": response.body})


async def _body(receive: Receive, most: int) -> bytes | None:
    """Read a body, at most one message over the limit; None if the client has disconnected."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False) or len(body) > most:
            return bytes(body)


def _request(scope: Scope, body: bytes) -> PageRequest:
    """Servers differ in whether `path` includes `root_path`; if it does, it is removed."""
    root = scope.get("root_path", "").rstrip("/")
    path = scope["path"]
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return PageRequest(
        scope["method"],
        path or "/",
        scope.get("query_string", b"").decode("latin-1"),
        folded((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]),
        body,
        (scope.get("client") or ("",))[0],
        root,
    )


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
