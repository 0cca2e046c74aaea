"""The registry of source kinds, and what is done with a source of any kind: parse, prepare, watch.

    --uri, --sources ─▶ parse_sources ─▶ Source ─▶ prepare ─▶ documents

The records in `builtin` are light. Their clients are imported when the first source of a kind is watched: an agent on a
file loads no HTTP client, no gRPC and no blob store. `prepare` finds what a source needs and does not have before
anything is served. Entry points are looked up only for a name that is not built in, so no plug-in can replace a
built-in kind, and a process without plug-ins does not search for them.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wigwag.errors import UsageError
from wigwag.sources import fields, plugins
from wigwag.sources.builtin.blob import AZBLOB, GCS, S3
from wigwag.sources.builtin.consul import CONSUL
from wigwag.sources.builtin.demo import DEMO
from wigwag.sources.builtin.file import FILE
from wigwag.sources.builtin.grpc import GRPC
from wigwag.sources.builtin.http import HTTP
from wigwag.sources.builtin.kubernetes import CONFIGMAP, KUBERNETES, KUBERNETES_SELF
from wigwag.sources.kind import SharedClients
from wigwag.sources.source import INTERVAL, MOST, Source, SourceSettings
from wigwag.wire.client.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wigwag.kube.hub import Hub
    from wigwag.sources.disk.notify import Notifier
    from wigwag.sources.kind import Documents, SourceKind, Warn
    from wigwag.sources.uris import UriAddress

BUILT_IN: tuple[SourceKind, ...] = (
    FILE,
    HTTP,
    GRPC,
    CONSUL,
    GCS,
    AZBLOB,
    S3,
    KUBERNETES,
    CONFIGMAP,
    KUBERNETES_SELF,
    DEMO,
)
"""Every kind that comes with wigwag; messages list them in this order."""
REMOTE = tuple(kind for kind in BUILT_IN if kind.remote)
"""The kinds whose flags come from another machine."""
_BY_NAME = {name: kind for kind in BUILT_IN for name in kind.names}
_BY_SCHEME = {scheme: kind for kind in BUILT_IN for scheme in kind.schemes}
_TAKEN = frozenset({*_BY_NAME, *_BY_SCHEME})
_EVERYWHERE = {"uri", "provider", "required", "optional"}
log = logging.getLogger("wigwag.agent")


def kind_of(provider: str) -> SourceKind:
    """Return the kind of a source by the provider it was given."""
    return _BY_NAME.get(provider) or plugins.load(provider, _TAKEN)


def kind_named(provider: str) -> SourceKind:
    """Return the kind that `provider` in `--sources` names."""
    kind = _BY_NAME.get(provider)
    if kind is None and plugins.is_installed(provider):
        return plugins.load(provider, _TAKEN)
    if kind is None or kind.internal:
        known = [name for each in BUILT_IN if not each.internal for name in each.names]
        raise UsageError(f"unknown provider {provider!r}; known are {', '.join((*known, *plugins.installed()))}")
    return kind


def kind_of_uri(uri: str, others: Iterable[SourceKind] | None = None) -> SourceKind | None:
    """Return the kind of source that a URI names by its scheme or prefix; None if there is no such kind.

    With `others`, only these plug-ins are considered, and none is loaded.

    >>> [kind and kind.name for kind in map(kind_of_uri, ("unix:/run/flags.sock", "s3://bucket/a.json", "a.json"))]
    ['grpc', 's3', None]
    """
    scheme, colon, _ = uri.partition(":")
    kind = next((each for each in BUILT_IN if each.prefix and uri.startswith(each.prefix)), None)
    if kind is None and colon:
        kind = _BY_SCHEME.get(scheme)
        if kind is None and others is not None:
            return next((each for each in others if scheme in each.schemes), None)
        if kind is None and scheme not in _TAKEN and plugins.is_installed(scheme):
            other = plugins.load(scheme, _TAKEN)
            return other if scheme in other.schemes else None
    return kind


def parse_sources(uris: tuple[str, ...], configured: Any, warn: Warn = log.warning) -> tuple[Source, ...]:
    """Return the sources of `--uri` and `--sources`, lowest priority first; without any, the embedded demo flags."""
    sources = [_from_uri(uri) for uri in uris]
    sources += [_from_element(each, warn) for each in fields.read_elements(configured, warn)]
    if not sources:
        return (Source(DEMO.name, DEMO.name),)
    return tuple(replace(source, position=position) for position, source in enumerate(sources))


def read_source(uri: str, others: Iterable[SourceKind] | None = None) -> Source:
    """Return the source that a URI alone names; `UsageError` says how to write one. `others` as in `kind_of_uri`."""
    kind = kind_of_uri(uri, others)
    if kind is None:
        *forms, last = (form for each in BUILT_IN for form in each.forms)
        raise UsageError(f"cannot tell what {shown(uri)!r} is; write {', '.join(forms)} or {last}")
    return _source(kind.address_of(uri))


def _from_uri(uri: str) -> Source:
    try:
        return read_source(uri)
    except UsageError as error:
        raise UsageError(f"--uri: {error}") from None


def _from_element(element: fields.Element, warn: Warn) -> Source:
    given, member = element.fields, ".provider"
    try:
        kind = kind_named(given.provider)
        member = ".uri"
        address = kind.address_of(given.uri)
    except UsageError as error:
        raise element.error(member, str(error)) from None
    kind = kind_of(address.provider)
    for name, reason in (*kind.contradictions(given, address), *fields.contradictions(given)):
        raise element.error(f".{name}", reason)
    for name in given.given():
        if name not in kind.fields | _EVERYWHERE:
            warn(f"--sources: {element.where}.{name} has no effect on a source of the kind {kind.name}")
    if given.oauth and given.auth_header:
        warn(f"--sources: {element.where}.authHeader has no effect: oauth brings its own")
    return _source(address, given)


def _source(address: UriAddress, given: fields.Fields = fields.Fields()) -> Source:  # noqa: B008 - frozen
    on_delete = given.on_delete or address.on_delete
    settings = SourceSettings(
        address=address.address,
        auth_header=given.auth_header or address.auth_header,
        headers=tuple(given.headers.items()),
        interval=float(given.interval) or INTERVAL,
        seed=given.interval_seed,
        timeout=given.timeout,
        oauth=given.oauth,
        tls=given.tls or address.tls,
        cert_path=given.cert_path,
        provider_id=given.provider_id,
        selector=given.selector,
        incremental=given.incremental_updates,
        max_message=given.max_msg_size or MOST,
        most=given.max_bytes or MOST,
        on_delete="" if on_delete == "keep" else on_delete,  # the default, so that both ways to say it are equal
        token_file=given.token_file,
        credentials_folder=given.credentials_folder,
    )
    required = not given.optional and given.required is not False
    return Source(address.name, address.provider, settings=settings, required=required)


def prepare(sources: Iterable[Source], warn: Warn, environment: Mapping[str, str] = os.environ) -> None:
    """Raise `UsageError` for a source that can never work in this environment; warn of settings without effect."""
    for source in sources:
        prefix = f"source {source.name}: "
        try:
            kind_of(source.provider).prepare(source, lambda text, prefix=prefix: warn(prefix + text), environment)  # type: ignore[misc]
        except UsageError as error:
            raise UsageError(f"{prefix}{error}") from None


def documents(source: Source, hub: Hub | None = None, notifier: Notifier | None = None) -> Documents:
    """Yield the documents of a source. Kubernetes sources share the watches of a hub, files those of a notifier."""
    return kind_of(source.provider).watch(source, SharedClients(hub, notifier))


def heartbeat(source: Source) -> float:
    """Return the longest time in seconds between two items of a source that works."""
    return kind_of(source.provider).heartbeat(source)
