"""The kinds of sources: the list of those built in, how one is found, and what is done with a source of any kind.

Records of kinds are light; what they need is imported when the first source of them is watched: an agent on a file
loads no HTTP client, no gRPC and no store of blobs. What a kind needs and does not have is found before anything is
served. Entry points of other packages are looked at only for a name that is not built in, so nothing replaces a
built-in kind, and nobody pays for plug-ins who has none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.sources import plugins
from wigwag.sources.builtin.blob import AZBLOB, GCS, S3
from wigwag.sources.builtin.consul import CONSUL
from wigwag.sources.builtin.demo import DEMO
from wigwag.sources.builtin.file import FILE
from wigwag.sources.builtin.grpc import GRPC
from wigwag.sources.builtin.http import HTTP
from wigwag.sources.builtin.kubernetes import CONFIGMAP, KUBERNETES, KUBERNETES_SELF
from wigwag.sources.kind import SharedClients
from wigwag.wire.client.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from wigwag.kube.hub import Hub
    from wigwag.sources.disk.notify import Notifier
    from wigwag.sources.kind import Documents, SourceKind
    from wigwag.sources.source import Source

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
_BY_NAME = {name: kind for kind in BUILT_IN for name in kind.names}
_BY_SCHEME = {scheme: kind for kind in BUILT_IN for scheme in kind.schemes}
_TAKEN = frozenset({*_BY_NAME, *_BY_SCHEME})


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
    """Return the kind of source that a URI names by its beginning; None, if it names none.

    With `others`, of the plug-ins only these are considered, and none is loaded.

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


def uri_kind(uri: str, others: Iterable[SourceKind] | None = None) -> SourceKind:
    """Return the kind of source that a URI names; `UsageError` says how to write one. See `kind_of_uri`."""
    kind = kind_of_uri(uri, others)
    if kind is None:
        *forms, last = (form for each in BUILT_IN for form in each.forms)
        raise UsageError(f"cannot tell what {shown(uri)!r} is; write {', '.join(forms)} or {last}")
    return kind


def prepare(
    sources: Iterable[Source], remark: Callable[[str], object], environment: Mapping[str, str] = os.environ
) -> None:
    """Refuse sources that can never answer in this installation and environment; tell what will have no effect."""
    for source in sources:
        prefix = f"source {source.name}: "
        try:
            kind_of(source.provider).prepare(source, lambda text, prefix=prefix: remark(prefix + text), environment)  # type: ignore[misc]
        except UsageError as error:
            raise UsageError(f"{prefix}{error}") from None


def documents(source: Source, hub: Hub | None = None, notifier: Notifier | None = None) -> Documents:
    """Yield the documents of a source.

    With a hub, sources in Kubernetes share what they ask its API server with; with a notifier, files share inotify.
    """
    return kind_of(source.provider).watch(source, SharedClients(hub, notifier))


def heartbeat(source: Source) -> float:
    """Return how many seconds may pass until a source that is well says that its flags still hold."""
    return kind_of(source.provider).heartbeat(source)
