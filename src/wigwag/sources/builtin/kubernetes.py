"""Objects of a Kubernetes API server: `core.openfeature.dev/NAMESPACE/NAME` and `configmap/NAMESPACE/NAME`.

In `--sources`, FeatureFlags are named as in flagd, without the prefix; ConfigMaps keep it, so that names stay distinct.
A third kind, `core.openfeature.dev/` without a name, is watched by the agent itself: it knows its own pod.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.sources.kind import SourceKind
from wigwag.sources.kubernetes.names import CONFIG, FLAGS, SELF
from wigwag.sources.uris import UriAddress, check_printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.sources.kind import Documents, SharedClients, Warn
    from wigwag.sources.kubernetes.objects import ObjectsWatch
    from wigwag.sources.source import Source

_POLICIES = ("keep", "remove")


def _objects_watch(source: Source) -> ObjectsWatch:
    from wigwag.sources.kubernetes.address import read_address
    from wigwag.sources.kubernetes.objects import ObjectsWatch

    settings = source.settings
    return ObjectsWatch(read_address(source.name, source.provider), settings.on_delete == "remove", settings.most)


def _watch(source: Source, shared: SharedClients) -> Documents:
    from wigwag.kube.hub import alone
    from wigwag.sources.kubernetes.objects import watch_objects

    return watch_objects(_objects_watch(source), alone if shared.hub is None else shared.hub.watch)


def _watch_own_pod(_source: Source, _shared: SharedClients) -> Documents:
    raise UsageError("only the agent of a pod can read the annotations of that pod; name the FeatureFlag")


def _prepare(source: Source, warn: Warn, environment: Mapping[str, str]) -> None:
    _objects_watch(source)
    _prepare_cluster(source, warn, environment)


def _prepare_cluster(_source: Source, _warn: Warn, environment: Mapping[str, str]) -> None:
    from wigwag.kube.config.cluster import find_cluster

    find_cluster(environment)


def _parse_flags(uri: str) -> UriAddress:
    name, policy = _name_and_policy(uri, FLAGS)
    return UriAddress(name, "kubernetes", on_delete=policy) if name else UriAddress(FLAGS, SELF, on_delete=policy)


def _parse_config(uri: str) -> UriAddress:
    name, policy = _name_and_policy(uri, CONFIG)
    return UriAddress(CONFIG + name, "configmap", on_delete=policy)


def _name_and_policy(uri: str, prefix: str) -> tuple[str, str]:
    """Take `onDelete` out of the query; `kubernetes.address` reads the rest."""
    check_printable(uri)
    path, _, query = uri.removeprefix(prefix).partition("?")
    options = [each.partition("=") for each in query.split("&") if each]
    policies = [value for name, _, value in options if name == "onDelete"]
    for policy in policies:
        if policy not in _POLICIES:
            raise UsageError(f"onDelete is {' or '.join(_POLICIES)}, not {policy[:40]!r}")
    rest = "&".join("".join(each) for each in options if each[0] != "onDelete")
    return f"{path}?{rest}" if rest else path, "".join(policies[-1:])


KUBERNETES = SourceKind(
    name="kubernetes",
    prefix=FLAGS,
    forms=(f"{FLAGS}NAMESPACE/NAME",),
    parse=_parse_flags,
    watch=_watch,
    fields=frozenset({"onDelete", "maxBytes"}),
    prepare=_prepare,
    heartbeat=lambda _: 75.0,
)
CONFIGMAP = replace(
    KUBERNETES, name="configmap", prefix=CONFIG, forms=(f"{CONFIG}NAMESPACE/NAME",), parse=_parse_config
)
KUBERNETES_SELF = SourceKind(
    name=SELF,
    watch=_watch_own_pod,
    fields=KUBERNETES.fields,
    prepare=_prepare_cluster,
    heartbeat=KUBERNETES.heartbeat,
    internal=True,
)
