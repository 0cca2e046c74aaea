"""Keys of Consul: `consul://HOST:PORT/KEY`, or `consuls://…` for TLS."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.sources.kind import SourceKind
from wigwag.sources.uris import split_uri, visible_address, without_user
from wigwag.wire.client.shown import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.sources.consul.keys import ConsulWatch
    from wigwag.sources.kind import Documents, SharedClients, Warn
    from wigwag.sources.source import Source
    from wigwag.sources.uris import UriAddress

_SCHEMES = ("consul", "consuls")
_FORM = "consul://HOST:PORT/KEY"


def _consul_watch(source: Source, environment: Mapping[str, str], *, connect: bool = False) -> ConsulWatch:
    """Return what a source of this kind watches. To `connect`, its credentials have to be there."""
    from wigwag.sources.consul.access import locate
    from wigwag.sources.consul.keys import ConsulWatch
    from wigwag.sources.credentials import credentials_of

    settings = source.settings
    folder = credentials_of(settings.credentials_folder, source.address)
    files = folder.trust(settings.cert_path) if folder and connect else None
    address = locate(
        source.address,
        environment,
        tls=settings.tls,
        auth_header=settings.auth_header,
        ca_path=files.authority if files else settings.cert_path,
        cert_path=files.certificate if files else "",
        key_path=files.key if files else "",
        credentials=folder,
    )
    return ConsulWatch(address.access, address.name, settings.most)


def _watch(source: Source, _shared: SharedClients) -> Documents:
    from wigwag.sources.consul.keys import watch_consul

    return watch_consul(_consul_watch(source, os.environ, connect=True))


def _prepare(source: Source, warn: Warn, environment: Mapping[str, str]) -> None:
    from wigwag.sources.consul.access import unused

    for reason in unused(_consul_watch(source, environment).access, environment):
        warn(reason)


def _parse(uri: str) -> UriAddress:
    """Read the URI of a key; `consul.access` reads its options."""
    parts = split_uri(uri)
    if parts.scheme not in _SCHEMES or not parts.path.strip("/"):
        raise UsageError(f"{shown(uri)!r} names no key of Consul; write {_FORM}, or KEY/ for all keys below it")
    bare, header = without_user(uri, parts)
    return visible_address(bare, "consul", header)


CONSUL = SourceKind(
    name="consul",
    schemes=_SCHEMES,
    forms=(_FORM,),
    parse=_parse,
    watch=_watch,
    fields=frozenset({"authHeader", "tls", "certPath", "maxBytes", "credentialsFolder"}),
    prepare=_prepare,
    heartbeat=lambda source: _consul_watch(source, os.environ).access.heartbeat,
    remote=True,
)
