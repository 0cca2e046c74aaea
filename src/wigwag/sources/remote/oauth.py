"""OAuth tokens of a source: the client-credentials grant, with the parameters in the body.

A token is kept until shortly before it expires, or until the source refuses it. Client id and secret may be files of a
mounted Secret; these are read again after `reload_delay`, and a change invalidates the token. Of what an authorisation
server sends, only the standard error codes are quoted in an error: the rest may repeat the secret.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from wigwag.errors import UsageError
from wigwag.sources.secret import read_secret
from wigwag.wire.client.errors import BrokenError, FetchError
from wigwag.wire.client.url import parse_url
from wigwag.wire.h1.client import ClientRequest, check_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.sources.fields import OAuthFields
    from wigwag.wire.client.client import Client, ClientResponse

EARLY = 10.0
"""A token is renewed this many seconds before it expires."""
RELOAD_DELAY = 60.0
"""The default seconds after which the files are read again."""
_FILES = "the folder of oauth needs the files client-id and client-secret"
_LARGEST_TOKEN = 64 << 10
_CODES = (
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
)


class Grant(Struct, frozen=True):
    """The response of an authorisation server."""

    access_token: str = ""
    token_type: str = "Bearer"  # noqa: S105 - the name of a scheme
    expires_in: float | str | None = None
    error: str = ""


class Tokens:
    """The token of one source."""

    def __init__(self, oauth: OAuthFields, client: Client, now: Callable[[], float]) -> None:
        self._oauth, self._client, self._now = oauth, client, now
        self._url = parse_url(oauth.token_url)
        self._credentials: tuple[str, str] = (oauth.client_id, oauth.client_secret)
        self._read_at: float | None = None
        self._header, self._until = "", -math.inf

    async def header(self) -> str:
        """Return the `Authorization` header with a token that is still valid."""
        self._reload()
        if not self._header or self._now() >= self._until:
            await self._renew()
        return self._header

    def refused(self) -> None:
        """Note that the source refused the token."""
        self._header = ""

    def _reload(self) -> None:
        oauth, now = self._oauth, self._now()
        if not oauth.folder or (
            self._read_at is not None and now < self._read_at + (oauth.reload_delay or RELOAD_DELAY)
        ):
            return
        client_id, secret = (read_secret(f"{oauth.folder}/{name}", _FILES) for name in ("client-id", "client-secret"))
        if (client_id, secret) != self._credentials:
            self._header = ""
        self._credentials, self._read_at = (client_id, secret), now

    async def _renew(self) -> None:
        """Request a token. Redirects are not followed: the secret is in the body."""
        client_id, secret = self._credentials
        parameters = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}
        fields = (("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json"))
        sent = self._now()
        response = await self._client.fetch(ClientRequest(self._url, "POST", fields, urlencode(parameters).encode()))
        grant = self._granted(response)
        self._header = authorization(grant, str(self._url))
        self._until = sent + lifetime(grant)

    def _granted(self, response: ClientResponse) -> Grant:
        try:
            grant = msgspec.json.decode(response.body, type=Grant)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            grant = Grant()
        if response.status == 200 and grant.access_token:
            return grant
        code = f" ({grant.error})" if grant.error in _CODES else ""
        answer = f"answered {response.status}{code}" if response.status != 200 else "answered without a token"
        raise FetchError(self._url, f"no token: the server {answer}; check clientID, clientSecret and tokenUrl")


def authorization(grant: Grant, url: str) -> str:
    """Return the header for a token.

    >>> authorization(Grant("abc", "bearer"), "https://login.example/token")
    'Bearer abc'
    """
    scheme = "Bearer" if grant.token_type.lower() == "bearer" else grant.token_type
    header = f"{scheme} {grant.access_token}"
    try:
        check_fields((("Authorization", header),))
    except UsageError:
        raise BrokenError(url, "the token cannot be sent in a header; look at the authorisation server") from None
    if len(header) > _LARGEST_TOKEN:
        raise BrokenError(url, f"the token is larger than {_LARGEST_TOKEN} bytes; look at the authorisation server")
    return header


def lifetime(grant: Grant) -> float:
    """Return the lifetime of a token in seconds. One without an expiry is used until it is refused.

    >>> lifetime(Grant("abc", expires_in=3600)), lifetime(Grant("abc", expires_in="8")), lifetime(Grant("abc"))
    (3590.0, 4.0, inf)
    """
    try:
        seconds = float(grant.expires_in or math.inf)
    except ValueError:
        seconds = math.inf
    return max(seconds - EARLY, seconds / 2)
