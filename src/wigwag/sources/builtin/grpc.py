"""gRPC servers with flagd's sync service: `grpc://HOST:PORT`, `grpcs://…`, and the targets that gRPC knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.sources.kind import SourceKind
from wigwag.sources.uris import UriAddress, check_printable, without_scheme

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wigwag.sources.fields import Fields
    from wigwag.sources.kind import Documents, SharedClients, Warn
    from wigwag.sources.remote.grpc import GrpcWatch
    from wigwag.sources.source import Source

_FORM = "grpc://HOST:PORT"
_RESOLVERS = ("envoy", "dns", "uds", "unix", "unix-abstract", "ipv4", "ipv6", "passthrough", "xds")
_SECRET = re.compile(r"(?!(?:unix|unix-abstract|uds):)(?:(?:\w+:/{0,3})?[^/]*@|[^?#]*[?#])")


def grpc_watch(source: Source) -> GrpcWatch:
    """Return what a source of this kind watches."""
    from wigwag.sources.credentials import credentials_of
    from wigwag.sources.remote.grpc import GrpcWatch

    settings = source.settings
    address = f"{'grpcs' if settings.tls else 'grpc'}://{source.address}"
    return GrpcWatch(
        source.address,
        tls=settings.tls,
        cert_path=settings.cert_path,
        provider_id=settings.provider_id,
        selector=settings.selector,
        max_message=settings.max_message,
        headers=settings.headers,
        token_file=settings.token_file,
        credentials=credentials_of(settings.credentials_folder, address),
    )


def _watch(source: Source, _shared: SharedClients) -> Documents:
    from wigwag.sources.remote.grpc import watch_grpc

    return watch_grpc(grpc_watch(source))


def _prepare(source: Source, _warn: Warn, _environment: Mapping[str, str]) -> None:
    from wigwag.sources.remote.grpc import check

    check(grpc_watch(source))


def _parse(uri: str) -> UriAddress:
    check_printable(uri)
    target = without_scheme(uri, ("grpc://", "grpcs://"), _FORM)
    if _SECRET.match(target):
        raise UsageError("has credentials or a query in it, which gRPC does not support; send them in headers")
    return UriAddress(target, "grpc", tls=uri.startswith("grpcs://"))


def _contradictions(fields: Fields, address: UriAddress) -> Iterator[tuple[str, str]]:
    if fields.cert_path and not (fields.tls or address.tls):
        yield "certPath", 'needs TLS; add "tls": true'


GRPC = SourceKind(
    name="grpc",
    schemes=("grpc", "grpcs", *_RESOLVERS),
    forms=(_FORM, "grpcs://…"),
    parse=_parse,
    watch=_watch,
    fields=frozenset({
        "headers", "tls", "certPath", "providerID", "selector", "maxMsgSize", "incrementalUpdates", "tokenFile",
        "credentialsFolder",
    }),
    contradictions=_contradictions,
    prepare=_prepare,
    heartbeat=lambda _: 30.0,
    remote=True,
)  # fmt: skip
