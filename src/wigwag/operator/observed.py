"""What the operator knows of the cluster: the objects that admission asks about, as one immutable record.

Each kind is one watch of the hub, and the pipeline puts the newest of all into one `Observed`. Admission reads that and
sends no request, so it takes microseconds and cannot deadlock with the API server that waits for it. What FeatureFlags
and ConfigMaps hold may be large, so it is not kept: of ConfigMaps only the metadata are watched, and of a FeatureFlag a
digest stays, by which a controller knows whether a ConfigMap has the same flags.

FeatureFlagSources and shared ones of the cluster are one watch here, so that everything else treats them alike: the
namespace of a shared one is empty. An operator of some namespaces watches neither shared sources nor namespaces.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct

from wigwag.kube.kinds import (
    CLUSTER_FEATURE_FLAG_SOURCE,
    CONFIG_MAP,
    DEPLOYMENT,
    FEATURE_FLAG,
    FEATURE_FLAG_SOURCE,
    IN_PROCESS_CONFIGURATION,
    NAMESPACE,
)
from wigwag.kube.watch.listwatch import KindNotServed, WatchForbidden
from wigwag.kube.watch.merged import merge_watches
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.configmaps import holds_flags
from wigwag.operator.injection.proxytrust import AUTHORITY_LABELS
from wigwag.operator.names import FEATURE_FLAG as HELD_FLAG
from wigwag.operator.names import PROXY, ObjectName, parse_name
from wigwag.operator.reconcile.flags import decode_flag
from wigwag.operator.reconcile.proxy import proxy_state
from wigwag.operator.resources.kubernetes import ObjectMeta
from wigwag.operator.resources.unreadable import (
    UnreadableConfiguration,
    UnreadableSource,
    decode_cluster_source,
    decode_configuration,
    decode_source,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from msgspec import Raw

    from wigwag.kube.hub import Hub
    from wigwag.kube.watch.decode import Decode
    from wigwag.kube.watch.reflector import Item
    from wigwag.operator.injection.known import ProxyState
    from wigwag.operator.reconcile.flags import FlagSummary
    from wigwag.operator.resources.featureflagsource import FeatureFlagSource
    from wigwag.operator.resources.inprocessconfiguration import InProcessConfiguration
    from wigwag.operator.resources.remoteflagprovider import RemoteFlagProvider
    from wigwag.operator.settings import OperatorSettings
    from wigwag.pipeline.spec import Unavailable

Objects: TypeAlias = "Mapping[tuple[str, str], Any]"


class _Named(Struct):
    metadata: ObjectMeta


_named = msgspec.json.Decoder(_Named).decode


def metadata(raw: Raw) -> ObjectMeta:
    """Decode the metadata of an object."""
    return _named(raw).metadata


def _labels(raw: Raw) -> Mapping[str, str]:
    return metadata(raw).labels or {}


def _proxy(raw: Raw) -> ProxyState | None:
    return proxy_state(msgspec.json.decode(raw))


SOURCES = KubeWatch(FEATURE_FLAG_SOURCE)
CONFIGURATIONS = KubeWatch(IN_PROCESS_CONFIGURATION)
FLAGS = KubeWatch(FEATURE_FLAG)
CONFIG_MAPS = KubeWatch(CONFIG_MAP, metadata_only=True)
NAMESPACES = KubeWatch(NAMESPACE, metadata_only=True)
_SHARED_SOURCES = KubeWatch(CLUSTER_FEATURE_FLAG_SOURCE)
_DECODERS: dict[KubeWatch, Decode[Any]] = {
    SOURCES: decode_source,
    CONFIGURATIONS: decode_configuration,
    FLAGS: decode_flag,
    CONFIG_MAPS: metadata,
    NAMESPACES: _labels,
}
log = logging.getLogger("wigwag.operator")


def proxy_watch(namespace: str) -> KubeWatch:
    """Return the watch of the proxy's Deployment."""
    return KubeWatch(DEPLOYMENT, namespace, PROXY)


def watches(settings: OperatorSettings) -> tuple[KubeWatch, ...]:
    """Return everything that admission asks about."""
    scoped = settings.options.namespaces
    return (*(each for each in _DECODERS if not (scoped and each == NAMESPACES)), proxy_watch(settings.pod.namespace))


def watch(hub: Hub, settings: OperatorSettings, spec: KubeWatch) -> AsyncIterator[Item[Any]]:
    """Watch objects, decoded as admission needs them."""
    items = hub.watch(spec, _DECODERS.get(spec, _proxy))
    if spec == NAMESPACES:
        return merge_watches({str(spec): items}, _is_excused, _note)
    if spec != SOURCES or settings.options.namespaces:
        return items
    name, of_cluster = str(_SHARED_SOURCES), hub.watch(_SHARED_SOURCES, decode_cluster_source)
    return merge_watches({str(spec): items, name: merge_watches({name: of_cluster}, _is_excused, _note)})


def _is_excused(trouble: Unavailable) -> bool:
    """Tell whether an older installation is the reason: it has no shared sources, nor the rights for them."""
    return isinstance(trouble, KindNotServed | WatchForbidden)


def _note(part: str, trouble: Unavailable | None) -> None:
    if trouble is None:
        log.debug("watch %s: live", part)
    else:
        level = logging.WARNING if isinstance(trouble, WatchForbidden) else logging.INFO
        log.log(level, "watch %s: %s; until then no ClusterFeatureFlagSource can be used", part, trouble.reason)


@dataclass(frozen=True, slots=True)
class Observed:
    """The objects of the cluster at one moment; answers what injection asks (`injection.known.KnownObjects`)."""

    sources: Objects = field(default_factory=dict)
    configurations: Objects = field(default_factory=dict)
    flags: Objects = field(default_factory=dict)
    config_maps: Objects = field(default_factory=dict)
    proxies: Objects = field(default_factory=dict)
    namespaces: Objects = field(default_factory=dict)
    """The labels of namespaces."""

    def feature_flag_source(self, name: ObjectName) -> FeatureFlagSource | None:
        """Return a FeatureFlagSource; None if there is none that can be read."""
        source: FeatureFlagSource | None = self.sources.get(name)
        return None if isinstance(source, UnreadableSource) else source

    def in_process_configuration(self, name: ObjectName) -> InProcessConfiguration | None:
        """Return an InProcessConfiguration; None if there is none that can be read."""
        configuration: InProcessConfiguration | None = self.configurations.get(name)
        return None if isinstance(configuration, UnreadableConfiguration) else configuration

    def unreadable_source(self, name: ObjectName) -> UnreadableSource | None:
        """Return a FeatureFlagSource that cannot be read."""
        source = self.sources.get(name)
        return source if isinstance(source, UnreadableSource) else None

    def unreadable_configuration(self, name: ObjectName) -> UnreadableConfiguration | None:
        """Return an InProcessConfiguration that cannot be read."""
        configuration = self.configurations.get(name)
        return configuration if isinstance(configuration, UnreadableConfiguration) else None

    def feature_flag(self, name: ObjectName) -> ObjectMeta | None:
        """Return the metadata of a FeatureFlag."""
        summary: FlagSummary | None = self.flags.get(name)
        return None if summary is None else summary.about

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None if they are not known."""
        labels: Mapping[str, str] | None = self.namespaces.get(("", name))
        return labels

    def remote_provider(self, name: ObjectName) -> RemoteFlagProvider | None:
        """Return the remote of a FeatureFlag; None if it has none that can be used."""
        summary: FlagSummary | None = self.flags.get(name)
        return None if summary is None else summary.remote

    def is_foreign_config_map(self, name: ObjectName) -> bool:
        """Tell whether there is a ConfigMap of this name that holds no flags."""
        about: ObjectMeta | None = self.config_maps.get(name)
        if about is None:
            return False
        held = (about.annotations or {}).get(HELD_FLAG, "")
        return not held or not holds_flags(about, parse_name(held, about.namespace))

    def is_foreign_authority(self, name: ObjectName) -> bool:
        """Tell whether there is a ConfigMap of this name that is not the operator's with the CAs of the proxy."""
        about: ObjectMeta | None = self.config_maps.get(name)
        return about is not None and not AUTHORITY_LABELS.items() <= (about.labels or {}).items()

    def proxy(self) -> ProxyState | None:
        """Return the state of the proxy; None if it is not deployed."""
        return next(iter(self.proxies.values()), None)


def assemble(values: Mapping[KubeWatch, Objects]) -> Observed:
    """Put what was watched into one record. What has not answered is empty."""
    proxies = next((each for spec, each in values.items() if spec not in _DECODERS), {})
    sources, configurations, flags, config_maps, namespaces = (values.get(spec, {}) for spec in _DECODERS)
    return Observed(sources, configurations, flags, config_maps, proxies, namespaces)
