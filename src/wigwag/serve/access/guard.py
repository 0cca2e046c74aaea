"""One port, one token: every request must have it. Without a token, what browsers send for other sites is refused.

    request ─ open path? ─ token configured? ─▶ right token? ─▶ handler
                                 └─ no ─▶ own host name, own origin? ─▶ handler

A foreign page cannot send a token that it does not know, so a token alone suffices. Without one, a browser on this
machine could read what is served to this machine, by DNS rebinding; so a request from this machine must name it by an
address, as localhost, or by an allowed name (see `wigwag.origin`). Probes are open to everybody.

The hard case is a token file that cannot be read: nobody is let in, and the answer says so (503, not 401).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import TYPE_CHECKING

from wigwag.errors import WigwagError
from wigwag.loglimit import LogLimiter
from wigwag.origin import bearer_token, host_name, is_own_name, is_same_origin
from wigwag.serve.access.tokens import digest
from wigwag.wire.http import Reply
from wigwag.wire.peer import UNIX, host_of, is_loopback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from wigwag.wire.http import Handler, Headers, Request, Response

    Tokens = Callable[[], Collection[bytes]]
    """Returns the SHA-256 digests of the tokens that hold now. Raises `OSError` or `WigwagError` if it cannot."""

PROBES = frozenset({b"/healthz", b"/readyz"})
_TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"),)
_CHALLENGE: Headers = ((b"www-authenticate", b"Bearer"),)
log = logging.getLogger("wigwag.serve")


class TokenGuard:
    """Lets requests through to a handler, or refuses them."""

    def __init__(
        self, tokens: Tokens | None = None, hosts: Collection[str] = (), open_paths: Collection[bytes] = PROBES
    ) -> None:
        """`hosts` are names of this port, besides addresses and localhost; `*` allows any."""
        self._tokens, self._hosts, self._open = tokens, hosts, open_paths
        self._limited = LogLimiter(log)

    def handler(self, handler: Handler) -> Handler:
        """Return the handler with this guard before it."""

        def handle(request: Request) -> Response | Awaitable[Response]:
            return self._refusal(request) or handler(request)

        return handle

    def _refusal(self, request: Request) -> Reply | None:
        if request.path in self._open:
            return None
        return self._without_token(request) if self._tokens is not None else self._foreign(request)

    def _without_token(self, request: Request) -> Reply | None:
        assert self._tokens is not None
        token = bearer_token(request.header(b"authorization"))
        if token is None:
            return _refused(401, "send a token: Authorization: Bearer TOKEN", _CHALLENGE)
        try:
            accepted = self._tokens()
        except (OSError, WigwagError) as error:
            now = asyncio.get_running_loop().time()
            self._limited.log(logging.WARNING, now, "no token is accepted: the tokens cannot be read: %s", error)
            return _refused(503, "the tokens cannot be read; see the log")
        given = digest(token)
        known = sum([hmac.compare_digest(given, each) for each in accepted])  # all are compared
        return None if known else _refused(401, "the token is wrong", _CHALLENGE)

    def _foreign(self, request: Request) -> Reply | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(request.headers)}
        name = host_name(headers.get("host", ""))
        local = is_loopback(host_of(request.peer.address) if request.peer else UNIX)
        if local and (name is None or not is_own_name(name, self._hosts)):
            return _refused(421, "name this machine by an address or as localhost, or allow the host name")
        if not is_same_origin(headers):
            return _refused(403, "a page of another site sends this request")
        return None


def _refused(status: int, text: str, headers: Headers = ()) -> Reply:
    return Reply(status, (*_TEXT, *headers), f"{text}\n".encode())
