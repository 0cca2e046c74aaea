"""Where a redirect may lead, decided for each hop.

A server may send us on, but not everywhere: never to another scheme (an upgrade is a change of configuration, a
downgrade is an attack), never to a link-local address, where clouds hand out credentials, and at most ten times. What
was meant for one host alone, credentials first of all, does not go to another, nor back once it was left.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.wire.client.addresses import anywhere, link_local
from wigwag.wire.client.errors import BrokenError, ForbiddenError

if TYPE_CHECKING:
    from wigwag.wire.client.client import Client, ClientResponse
    from wigwag.wire.h1.client import ClientRequest

MOST = 10
STATUSES = (301, 302, 303, 307, 308)
PUBLIC = ("accept", "accept-encoding", "user-agent", "if-none-match", "if-modified-since")
"""Fields that any host may see."""


def elsewhere(ip: str) -> bool:
    """Allow what a redirect may lead to."""
    return not link_local(ip)


async def fetch_following(client: Client, request: ClientRequest) -> ClientResponse:
    """Fetch a URL, and what it redirects to, all in the time that one request has. For requests without a body."""
    loop, limits = asyncio.get_running_loop(), client.limits
    began = loop.time()
    reply = await client.fetch(request, anywhere)
    for _ in range(MOST):
        if reply.status not in STATUSES:
            return reply
        request = onward(request, reply)
        left = None if limits.total is None else began + limits.total - loop.time()
        reply = await client.fetch(request, elsewhere, replace(limits, total=left))
    if reply.status in STATUSES:
        raise ForbiddenError(request.url, f"redirects more than {MOST} times; name the URL at the end of the chain")
    return reply


def onward(request: ClientRequest, reply: ClientResponse) -> ClientRequest:
    """Return the request that a redirect asks for, or raise if it is one that we do not make."""
    location = reply.field("location")
    if not location:
        raise BrokenError(request.url, f"answered {reply.status} without saying where to go; name another URL")
    try:
        url = request.url.join(_text(location))
    except UsageError as error:
        raise BrokenError(request.url, f"redirects to what cannot be read: {error}") from error
    if url.scheme != request.url.scheme:
        raise ForbiddenError(request.url, f"redirects to another scheme, which is never followed; configure {url}")
    if url.origin == request.url.origin:
        return replace(request, url=replace(url, userinfo=request.url.userinfo))
    return replace(request, url=url, fields=tuple(field for field in request.fields if field[0].lower() in PUBLIC))


def _text(value: str) -> str:
    """Return a field as UTF-8, if that is what its bytes are."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value
