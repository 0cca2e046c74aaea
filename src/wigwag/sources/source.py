"""What `--uri` and `--sources` mean: a list of sources, lowest priority first.

A source is its own key in the pipeline. Its name need not be its own: one gRPC server may be asked for two selectors,
and then position keeps the two apart. What is secret about a source is in its settings, and is not shown by them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import fields

from wigwag.errors import UsageError
from wigwag.sources.fields import Element, Fields, OAuthFields, read_elements
from wigwag.sources.kinds import kind_named, kind_of, uri_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wigwag.sources.kind import SourceKind
    from wigwag.sources.uris import UriAddress

DEMO = "demo"
MOST = 64 << 20
INTERVAL = 5.0
_SECRET = ("address", "auth_header", "headers", "oauth")
log = logging.getLogger("wigwag.agent")


class SourceSettings(Struct, frozen=True):
    """How to get at a source. Each kind reads what it has a use for."""

    address: str = ""
    """Where it is, if its name does not say."""
    auth_header: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    interval: float = INTERVAL
    """Seconds from poll to poll."""
    seed: str = ""
    """Says at which moments of the interval."""
    timeout: float = 0.0
    oauth: OAuthFields | None = None
    tls: bool = False
    cert_path: str = ""
    provider_id: str = ""
    selector: str = ""
    incremental: bool = False
    """Whether a document is about the flag sets that it names only."""
    max_message: int = MOST
    most: int = MOST
    """The largest document that is taken, in bytes."""
    root: str = ""
    """The directory that a file must be in; empty: any."""
    on_delete: str = ""
    """What flags become when their object is gone: with `remove` they go, otherwise they stay."""
    token_file: str = ""
    """Holds the bearer token to send; read again for each connection."""

    def __repr__(self) -> str:
        """Show what differs from the default, and of secrets only that they are there."""
        told = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        shown = (f"{name}={'…' if name in _SECRET else repr(value)}" for name, value, usual in told if value != usual)
        return f"Settings({', '.join(shown)})"


class Source(Struct, frozen=True, cache_hash=True):
    """Where flags come from."""

    name: str
    """Its URI, by which `source=` selects it, without secrets."""
    provider: str
    position: int = 0
    """Its priority: a later source wins. Also keeps two sources of the same name apart."""
    settings: SourceSettings = SourceSettings()
    required: bool = True
    """Whether the agent is ready only when this source has answered."""

    @property
    def address(self) -> str:
        """Where it is. May hold secrets: not for people."""
        return self.settings.address or self.name


def parse_sources(
    uris: tuple[str, ...], configured: Any, remark: Callable[[str], object] = log.warning
) -> tuple[Source, ...]:
    """Return all sources; without any, the embedded demo flags. What is odd but no error goes to `remark`."""
    found = [_from_uri(uri) for uri in uris]
    found += [_from_element(each, remark) for each in read_elements(configured, remark)]
    if not found:
        return (Source(DEMO, DEMO),)
    return tuple(Source(at.name, at.provider, n, settings, need) for n, (at, settings, need) in enumerate(found))


def read_source(uri: str, others: Iterable[SourceKind] | None = None) -> Source:
    """Return the source that a URI alone names. With `others`, no plug-in is loaded, and of those only these count."""
    found = uri_kind(uri, others).place(uri)
    return Source(found.name, found.provider, settings=_plain_settings(found))


def _from_uri(uri: str) -> tuple[UriAddress, SourceSettings, bool]:
    try:
        found = uri_kind(uri).place(uri)
    except UsageError as error:
        raise UsageError(f"--uri: {error}") from None
    return found, _plain_settings(found), True


def _plain_settings(found: UriAddress) -> SourceSettings:
    return SourceSettings(
        address=found.address, auth_header=found.auth_header, tls=found.tls, on_delete=_policy(found.on_delete)
    )


def _from_element(element: Element, remark: Callable[[str], object]) -> tuple[UriAddress, SourceSettings, bool]:
    told, member = element.fields, ".provider"
    try:
        kind = kind_named(told.provider)
        member = ".uri"
        found = kind.place(told.uri)
    except UsageError as error:
        raise element.refuse(member, str(error)) from None
    element.check(kind_of(found.provider), found, remark)
    return found, _settings(told, found), not told.optional and told.required is not False


def _settings(told: Fields, found: UriAddress) -> SourceSettings:
    return SourceSettings(
        address=found.address,
        auth_header=told.auth_header or found.auth_header,
        headers=tuple(told.headers.items()),
        interval=float(told.interval) or INTERVAL,
        seed=told.interval_seed,
        timeout=told.timeout,
        oauth=told.oauth,
        tls=told.tls or found.tls,
        cert_path=told.cert_path,
        provider_id=told.provider_id,
        selector=told.selector,
        incremental=told.incremental_updates,
        max_message=told.max_msg_size or MOST,
        most=told.max_bytes or MOST,
        on_delete=_policy(told.on_delete or found.on_delete),
        token_file=told.token_file,
    )


def _policy(said: str) -> str:
    """Leave out what is usual, so that who says it and who does not have the same source."""
    return "" if said == "keep" else said
