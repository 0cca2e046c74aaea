"""HTTP URLs: `http://…` and `https://…`, polled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.sources.kind import SourceKind
from wigwag.sources.uris import split_uri, visible_address, without_user
from wigwag.wire.client.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.sources.fields import Fields
    from wigwag.sources.kind import Documents, SharedClients
    from wigwag.sources.remote.http import HttpWatch
    from wigwag.sources.source import Source
    from wigwag.sources.uris import UriAddress


def http_watch(source: Source) -> HttpWatch:
    """Return what a source of this kind watches; `UsageError` if it never could."""
    from wigwag.sources.credentials import credentials_of
    from wigwag.sources.remote.http import HttpWatch

    settings = source.settings
    return HttpWatch(
        source.address,
        headers=settings.headers,
        auth_header=settings.auth_header,
        interval=settings.interval,
        seed=settings.seed,
        timeout=settings.timeout,
        oauth=settings.oauth,
        most=settings.most,
        ca_path=settings.cert_path,
        token_file=settings.token_file,
        credentials=credentials_of(settings.credentials_folder, source.address),
    )


def _watch(source: Source, _shared: SharedClients) -> Documents:
    from wigwag.sources.remote.http import watch_http

    return watch_http(http_watch(source))


def _parse(uri: str) -> UriAddress:
    """Parse a URL; credentials in it are sent as a browser would send them."""
    parts = split_uri(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{shown(uri)!r} is not an HTTP URL; write https://HOST/PATH")
    bare, header = without_user(uri, parts)
    return visible_address(bare, "http", header)


def _contradictions(fields: Fields, address: UriAddress) -> Iterator[tuple[str, str]]:
    if fields.cert_path and not (address.address or address.name).startswith("https:"):
        yield "certPath", "needs TLS; write https:// in uri"


HTTP = SourceKind(
    name="http",
    schemes=("http", "https"),
    forms=("https://…",),
    parse=_parse,
    watch=_watch,
    fields=frozenset({
        "interval", "intervalSeed", "certPath", "maxBytes", "authHeader", "headers", "timeoutS", "oauth", "tokenFile",
        "credentialsFolder",
    }),
    contradictions=_contradictions,
    prepare=lambda source, _warn, _environment: http_watch(source),
    remote=True,
)  # fmt: skip
