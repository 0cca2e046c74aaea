"""An http(s) URL, asked from time to time: its document when that changes.

    ask, with the validators of the last answer ─▶ 304, or the same content ─▶ UNCHANGED
                                                ├─▶ a document               ─▶ Document
                                                └─▶ anything else            ─▶ Unavailable

flagd's `timeoutS` of 0 means no limit. A server that sends a byte now and then would then hold the source for ever, so
0 here means `ResponseLimits`: 10 s to connect, 30 s to the head, 30 s of silence, 120 s in all.
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
from wigwag.sources.remote.oauth import OAuth, Tokens
from wigwag.sources.remote.polling import Answer, PollTiming, format_of_media, poll
from wigwag.sources.remote.schedule import http_date, retry_after
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
    from wigwag.wire.client.client import ClientResponse

LONGEST = 86400.0
"""The longest interval, a day, as in flagd."""
_KEPT = 60.0
_SETTLED = 2.0
_STATUS = {
    401: "check its credentials",
    403: "check its credentials and their rights",
    404: "check the URL",
    407: "check the proxy's credentials",
    429: "ask less often: raise the interval",
}


@dataclass(frozen=True, slots=True, repr=False)
class HttpWatch:
    """The document at a URL. Shown without its secrets: they are in most of its fields."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    """Sent to this host and no other; `Host` sets the host that is asked for."""
    auth_header: str = ""
    """The whole `Authorization`."""
    interval: float = 5.0
    seed: str = ""
    """What the offset of the polls is made of; empty: it is drawn by lot."""
    timeout: float = 0.0
    """Seconds for everything together; 0: see above."""
    oauth: OAuth | None = None
    most: int = 64 << 20
    """The largest document that is read, in bytes."""
    ca_path: str = ""
    """Trust what this signs; empty: what the system trusts."""
    token_file: str = ""
    """Holds the bearer token, instead of `auth_header`; read for each request."""

    def __post_init__(self) -> None:
        authorization = (("Authorization", self.auth_header),) if self.auth_header else ()
        try:
            parse_url(self.url)
            check_fields((*self.headers, *authorization))
        except UsageError as error:
            raise UsageError(f"http source: {error}") from None
        if not 0 < self.interval <= LONGEST:
            raise UsageError(f"{self}: the interval must be more than 0 and at most {LONGEST:.0f} seconds")
        if self.timeout < 0:
            raise UsageError(f"{self}: the timeout must be a number of seconds, or 0")

    def __str__(self) -> str:
        return str(parse_url(self.url))

    def __repr__(self) -> str:
        return f"HttpWatch({self})"


@dataclass(frozen=True, slots=True)
class HttpDeps(PollTiming):
    """Where time, chance, addresses and proxies come from."""

    resolve: Resolve = resolve
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Where HTTP_PROXY, HTTPS_PROXY and NO_PROXY are."""
    limits: ResponseLimits = ResponseLimits()


@dataclass(frozen=True, slots=True)
class Seen:
    """What came last, and by what the server knows it again."""

    document: Document | None = None
    etag: str = ""
    modified: str = ""

    def fields(self) -> Fields:
        """Return the fields that ask for news only."""
        found = (("If-None-Match", self.etag), ("If-Modified-Since", self.modified))
        return tuple((name, value) for name, value in found if value)


class HttpRefusedError(WigwagError):
    """The server answered, but not with a document."""

    def __init__(self, message: str, pause: float | None = None) -> None:
        super().__init__(message)
        self.pause = pause


async def watch_http(
    spec: HttpWatch,
    deps: HttpDeps = HttpDeps(),  # noqa: B008 - a frozen value
) -> AsyncIterator[Answer]:
    """Yield the document when it changes, that it has not, or why that cannot be told at present."""
    asker = HttpPoller(spec, deps)
    try:
        async with closing(poll(asker.ask, spec.interval, spec.seed, deps)) as answers:
            async for answer in answers:
                yield answer
    finally:
        asker.close()


class HttpPoller:
    """Asks one URL, and remembers what came last."""

    def __init__(self, spec: HttpWatch, deps: HttpDeps) -> None:
        self._url, self._spec, self._wall = parse_url(spec.url), spec, deps.wall
        self._seen = Seen()
        self._client = Client(
            trust=Trust(spec.ca_path),
            proxies=Proxies.of(deps.environment),
            limits=bounds(spec, deps.limits),
            keep=spec.interval <= _KEPT,
            resolve=deps.resolve,
        )
        self._tokens = Tokens(spec.oauth, self._client, deps.clock.now) if spec.oauth else None

    async def ask(self) -> tuple[Answer, float | None]:
        """Ask once; with trouble, tell for how long the server asks to be left alone."""
        try:
            return self._judge(await self._reply()), None
        except HttpRefusedError as error:
            return Unavailable.of(error), error.pause
        except WigwagError as error:
            return Unavailable.of(error), None

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _judge(self, reply: ClientResponse) -> Document | Unchanged:
        """Tell whether an answer is news."""
        before = self._seen.document
        if reply.status == 304 and self._seen.fields():  # without validators, it would say nothing about ours
            return UNCHANGED
        if not 200 <= reply.status < 300 or reply.status in (204, 205, 206):
            raise refusal(reply, self._wall())
        document = Document(reply.body, format_of(reply.field("content-type"), self._url))
        self._seen = Seen(document, reply.field("etag"), modified(reply, self._wall()))
        return UNCHANGED if document == before else document

    async def _reply(self) -> ClientResponse:
        """Ask, and if the token is refused, once more with a new one."""
        tokens = self._tokens
        if self._spec.token_file:
            return await self._fetch_with_file(self._spec.token_file)
        if tokens is None:
            return await self._fetch(self._spec.auth_header)
        reply = await self._fetch(await tokens.header())
        if reply.status == 401:
            tokens.refused()
            reply = await self._fetch(await tokens.header())
        return reply

    async def _fetch_with_file(self, path: str) -> ClientResponse:
        """Ask with the token in a file; if it is refused and has been replaced meanwhile, ask once more."""
        header = read_authorization(path)
        reply = await self._fetch(header)
        if reply.status == 401 and (newer := read_authorization(path)) != header:
            reply = await self._fetch(newer)
        return reply

    async def _fetch(self, authorization: str) -> ClientResponse:
        return await fetch_following(
            self._client, ClientRequest(self._url, fields=headers(self._spec.headers, authorization, self._seen))
        )


def headers(own: Fields, authorization: str, seen: Seen) -> Fields:
    """Return the fields of a request. The configured ones go before ours, the authorisation before all.

    >>> headers((("accept", "text/plain"),), "", Seen(etag='"1"'))[0]
    ('accept', 'text/plain')
    """
    ours = (
        ("Accept", "application/json, application/yaml"),
        ("Accept-Encoding", "gzip"),
        ("User-Agent", f"wigwag/{__version__}"),
        *seen.fields(),
    )
    first = (("Authorization", authorization),) if authorization else ()
    taken = {name.lower() for name, _ in first}
    kept = tuple(pair for pair in own if pair[0].lower() not in taken)
    taken |= {name.lower() for name, _ in kept}
    return (*first, *kept, *(pair for pair in ours if pair[0].lower() not in taken))


def bounds(spec: HttpWatch, limits: ResponseLimits) -> ResponseLimits:
    """Return the limits of a request; the configured time is one for everything together, redirects included."""
    limits, seconds = replace(limits, body_bytes=spec.most), spec.timeout
    if not seconds:
        return limits
    return replace(limits, connect=min(limits.connect, seconds), head=seconds, idle=seconds, total=seconds)


def format_of(content_type: str, url: Url) -> Format | None:
    """Tell the format by the media type, otherwise by the URL's extension; None: look at the text.

    >>> url = parse_url("https://flags.example/flags.yml?v=1")
    >>> format_of("application/vnd.flags+json; charset=utf-8", url), format_of("text/plain", url)
    ('json', 'yaml')
    """
    return format_of_media(content_type) or format_of_name(url.path)


def modified(reply: ClientResponse, wall: float) -> str:
    """Return when a document was modified, if that can tell it from the next one.

    The dates of HTTP have whole seconds. A document that was younger than that when it was sent may be changed once
    more within its second, and would be taken for unchanged ever after.
    """
    value = reply.field("last-modified")
    changed, sent = http_date(value), http_date(reply.field("date"))
    if changed is None:
        return ""
    return value if (wall if sent is None else sent) - changed >= _SETTLED else ""


def refusal(reply: ClientResponse, wall: float) -> HttpRefusedError:
    """Put a status that brings no document into words."""
    status = reply.status
    remedy = _STATUS.get(status, "look at the server" if status >= 500 else "see what is served there")
    said = f"{reply.url}: the server answered {status} where a document is expected; {remedy}"
    return HttpRefusedError(said, retry_after(reply.field("retry-after"), wall))
