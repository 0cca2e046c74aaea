"""Objects in blob stores: `gs://…`, `azblob://…` and `s3://BUCKET/OBJECT`, polled. They need the extra `blob`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.sources.kind import SourceKind
from wigwag.sources.uris import split_uri, visible_address
from wigwag.wire.client.shown import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.sources.kind import Documents, SharedClients, Warn
    from wigwag.sources.source import Source
    from wigwag.sources.uris import UriAddress


def _watch(source: Source, _shared: SharedClients) -> Documents:
    from wigwag.sources.credentials import credentials_of
    from wigwag.sources.remote.blob import BlobWatch, watch_blob

    settings = source.settings
    watch = BlobWatch(
        source.address,
        settings.interval,
        settings.seed,
        settings.most,
        settings.cert_path,
        credentials_of(settings.credentials_folder, source.address),
    )
    return watch_blob(watch)


def _prepare(source: Source, warn: Warn, environment: Mapping[str, str]) -> None:
    from wigwag.sources.remote.blob import locate

    if find_spec("obstore") is None:
        raise UsageError("blob stores need an extra; install wigwag[blob]")
    for name, remedy in locate(source.address, environment).unused:
        warn(f"the option {name} has no effect{remedy}")


def _parse(uri: str, name: str, scheme: str, form: str) -> UriAddress:
    parts = split_uri(uri)
    if parts.scheme != scheme or not parts.netloc or not parts.path.strip("/"):
        raise UsageError(f"{shown(uri)!r} does not name an object of a store; write {form}")
    if "@" in parts.netloc:
        raise UsageError(f"has credentials in it; write {form}, and put them into the environment")
    return visible_address(uri, name)


def _store(name: str, scheme: str, bucket: str) -> SourceKind:
    form = f"{scheme}://{bucket}/OBJECT"
    return SourceKind(
        name=name,
        schemes=(scheme,),
        forms=(form,),
        parse=lambda uri: _parse(uri, name, scheme, form),
        watch=_watch,
        fields=frozenset({"interval", "intervalSeed", "certPath", "maxBytes", "credentialsFolder"}),
        prepare=_prepare,
        remote=True,
    )


GCS = _store("gcs", "gs", "BUCKET")
AZBLOB = _store("azblob", "azblob", "CONTAINER")
S3 = _store("s3", "s3", "BUCKET")
