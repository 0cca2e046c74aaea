"""An HTTP URL, polled: its document when that changes.

    GET with the validators of the last response ─▶ 304, or the same content ─▶ UNCHANGED
                                                 ├─▶ a document               ─▶ Document
                                                 └─▶ anything else            ─▶ Unavailable

In flagd, a `timeoutS` of 0 means no timeout. A server that sends a byte now and then could then block the source for
ever, so 0 here means `ResponseLimits`: 10 s to connect, 30 s to the head, 30 s of silence, 120 s in all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from wigwag.errors import UsageError, WigwagError
from wigwag.flags.document import format_of as format_of_name
from wigwag.pipeline.spec import UNCHANGED, Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.sources.document import Document
from wigwag.sources.remote.oauth import Tokens
from wigwag.sources.remote.polling import PollResult, PollTiming, format_of_media, http_date, poll, retry_after
from wigwag.sources.secret import read_authorization
from wigwag.version import __version__
from wigwag.wire.client.addresses import Resolve, resolve
from wigwag.wire.client.client import Client
from wigwag.wire.client.proxies import Proxies
from wigwag.wire.client.redirects import fetch_following
from wigwag.wire.client.tls import Trust
from wigwag.wire.client.url import Url, parse_url
from wigwag.wire.h1.client import ClientRequest, Fields, ResponseLimits, check_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from wigwag.flags.document import Format
    from wigwag.sources.credentials import CredentialsFolder
    from wigwag.sources.fields import OAuthFields
    from wigwag.wire.client.client import ClientResponse

_KEPT = 60.0
_SETTLED = 2.0
_STATUS = {
    401: "check its credentials",
    403: "check its credentials and their rights",
    404: "check the URL",
    407: "check the proxy's credentials",
    429: "poll less often: raise the interval",
}


@dataclass(frozen=True, slots=True, repr=False)
class HttpWatch:
    """The document at a URL. `repr` shows the URL without secrets; most other fields are secret."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    """Sent to this host only; `Host` replaces the host of the URL."""
    auth_header: str = ""
    """The whole `Authorization` header."""
    interval: float = 5.0
    seed: str = ""
    """Decides the offset of the polls; empty: random."""
    timeout: float = 0.0
    """Seconds for the whole request; 0: see above."""
    oauth: OAuthFields | None = None
    most: int = 64 << 20
    """The largest document that is read, in bytes."""
    ca_path: str = ""
    """The CA bundle; empty: that of the system."""
    token_file: str = ""
    """Holds the bearer token, instead of `auth_header`; read for each request."""
    credentials: CredentialsFolder | None = None
    """Holds the header and the files for TLS, instead of all of these; read for each request."""

    def __post_init__(self) -> None:
        authorization = (("Authorization", self.auth_header),) if self.auth_header else ()
        try:
            parse_url(self.url)
            parse_url(self.oauth.token_url if self.oauth else self.url)
            check_fields((*self.headers, *authorization))
        except UsageError as error:
            raise UsageError(f"http source: {error}") from None

    @property
    def trust(self) -> Trust:
        """The files for TLS that there are now."""
        return self.credentials.trust(self.ca_path) if self.credentials else Trust(self.ca_path)

    def __str__(self) -> str:
        return str(parse_url(self.url))

    def __repr__(self) -> str:
        return f"HttpWatch({self})"


@dataclass(frozen=True, slots=True)
class HttpDeps(PollTiming):
    """What tests replace: clocks, random numbers, name resolution, the environment and limits."""

    resolve: Resolve = resolve
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Holds HTTP_PROXY, HTTPS_PROXY and NO_PROXY."""
    limits: ResponseLimits = ResponseLimits()


@dataclass(frozen=True, slots=True)
class LastResponse:
    """The last document and its validators."""

    document: Document | None = None
    etag: str = ""
    modified: str = ""

    def fields(self) -> Fields:
        """Return the headers of a conditional request."""
        validators = (("If-None-Match", self.etag), ("If-Modified-Since", self.modified))
        return tuple((name, value) for name, value in validators if value)


class HttpRefusedError(WigwagError):
    """The server answered without a document."""

    def __init__(self, message: str, pause: float | None = None) -> None:
        super().__init__(message)
        self.pause = pause


async def watch_http(
    spec: HttpWatch,
    deps: HttpDeps = HttpDeps(),  # noqa: B008 - a frozen value
) -> AsyncIterator[PollResult]:
    """Yield the document when it changes, `UNCHANGED` when it has not, or `Unavailable`."""
    poller = HttpPoller(spec, deps)
    try:
        async with closing(poll(poller.fetch, spec.interval, spec.seed, deps)) as results:
            async for result in results:
                yield result
    finally:
        poller.close()


class HttpPoller:
    """Fetches one URL, and remembers the last response."""

    def __init__(self, spec: HttpWatch, deps: HttpDeps) -> None:
        self._url, self._spec, self._deps, self._wall = parse_url(spec.url), spec, deps, deps.wall
        self._last, self._trust = LastResponse(), spec.trust
        self._client = self._connect()
        self._tokens = Tokens(spec.oauth, self._client, deps.clock.now) if spec.oauth else None

    async def fetch(self) -> tuple[PollResult, float | None]:
        """Fetch once; return the result and the server's Retry-After."""
        try:
            return self._read(await self._respond()), None
        except HttpRefusedError as error:
            return Unavailable.of(error), error.pause
        except WigwagError as error:
            return Unavailable.of(error), None

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _connect(self) -> Client:
        return Client(
            trust=self._trust,
            proxies=Proxies.of(self._deps.environment),
            limits=bounds(self._spec, self._deps.limits),
            keep=self._spec.interval <= _KEPT,
            resolve=self._deps.resolve,
        )

    def _read(self, response: ClientResponse) -> Document | Unchanged:
        """Return the document of a response, or that it is unchanged."""
        before = self._last.document
        if response.status == 304 and self._last.fields():  # without validators, it says nothing about our document
            return UNCHANGED
        if not 200 <= response.status < 300 or response.status in (204, 205, 206):
            raise refusal(response, self._wall())
        document = Document(response.body, format_of(response.field("content-type"), self._url))
        self._last = LastResponse(document, response.field("etag"), modified(response, self._wall()))
        return UNCHANGED if document == before else document

    async def _respond(self) -> ClientResponse:
        """Fetch; if the token is refused and there is a new one, fetch once more."""
        authorization = await self._authorization()
        response = await self._fetch(authorization)
        if response.status != 401:
            return response
        if self._tokens is not None:
            self._tokens.refused()
        renewed = await self._authorization()
        return response if renewed == authorization else await self._fetch(renewed)

    async def _authorization(self) -> str:
        if self._tokens is not None:
            return await self._tokens.header()
        if self._spec.credentials is not None:
            return self._spec.credentials.authorization()
        return read_authorization(self._spec.token_file) if self._spec.token_file else self._spec.auth_header

    async def _fetch(self, authorization: str) -> ClientResponse:
        if self._spec.trust != self._trust:  # files for TLS were added to the credentials, or removed
            self._client.close()
            self._trust = self._spec.trust
            self._client = self._connect()
        return await fetch_following(
            self._client, ClientRequest(self._url, fields=headers(self._spec.headers, authorization, self._last))
        )


def headers(own: Fields, authorization: str, last: LastResponse) -> Fields:
    """Return the headers of a request. Configured ones take precedence over ours, `authorization` over all.

    >>> headers((("accept", "text/plain"),), "", LastResponse(etag='"1"'))[0]
    ('accept', 'text/plain')
    """
    ours = (
        ("Accept", "application/json, application/yaml"),
        ("Accept-Encoding", "gzip"),
        ("User-Agent", f"wigwag/{__version__}"),
        *last.fields(),
    )
    first = (("Authorization", authorization),) if authorization else ()
    taken = {name.lower() for name, _ in first}
    kept = tuple(pair for pair in own if pair[0].lower() not in taken)
    taken |= {name.lower() for name, _ in kept}
    return (*first, *kept, *(pair for pair in ours if pair[0].lower() not in taken))


def bounds(spec: HttpWatch, limits: ResponseLimits) -> ResponseLimits:
    """Return the limits of a request; the configured timeout is for all of it, redirects included."""
    limits, seconds = replace(limits, body_bytes=spec.most), spec.timeout
    if not seconds:
        return limits
    return replace(limits, connect=min(limits.connect, seconds), head=seconds, idle=seconds, total=seconds)


def format_of(content_type: str, url: Url) -> Format | None:
    """Return the format by the media type, or by the URL's extension; None: detect it from the text.

    >>> url = parse_url("https://flags.example/flags.yml?v=1")
    >>> format_of("application/vnd.flags+json; charset=utf-8", url), format_of("text/plain", url)
    ('json', 'yaml')
    """
    return format_of_media(content_type) or format_of_name(url.path)


def modified(response: ClientResponse, wall: float) -> str:
    """Return the Last-Modified of a document, if it is safe as a validator.

    HTTP dates have whole seconds. A document that was younger than that when it was sent may change once more within
    its second, and would count as unchanged ever after.
    """
    value = response.field("last-modified")
    changed, sent = http_date(value), http_date(response.field("date"))
    if changed is None:
        return ""
    return value if (wall if sent is None else sent) - changed >= _SETTLED else ""


def refusal(response: ClientResponse, wall: float) -> HttpRefusedError:
    """Return the error for a status without a document."""
    status = response.status
    remedy = _STATUS.get(status, "look at the server" if status >= 500 else "check what is served there")
    text = f"{response.url}: the server answered {status} where a document is expected; {remedy}"
    return HttpRefusedError(text, retry_after(response.field("retry-after"), wall))
