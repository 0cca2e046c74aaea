"""What has changed of the things that the operator knows, and which FeatureFlagSources that concerns.

    pipeline ─▶ Observed ─▶ an informer for each kind ─▶ keys for the queues of controllers

A source concerns itself with more than its own content: the FeatureFlags that it names, ConfigMaps that have the name
of one, and the proxy. Names in a source are read in the namespace of each pod. So a flag concerns the sources with an
entry of its name that are in its namespace, or that workloads there name; and those that say its namespace, too. A
namespace concerns the shared sources that allow namespaces by their labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wigwag.kube.control.informer import Index, Informer, own_key
from wigwag.kube.watch.objects import Objects
from wigwag.operator.controllers.namespaces import Namespaces
from wigwag.operator.names import PROXY
from wigwag.operator.reconcile.proxy import needs_proxy
from wigwag.operator.resources.clusterfeatureflagsource import ClusterFeatureFlagSource

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from wigwag.kube.watch.decode import Key
    from wigwag.operator.injection.known import ProxyState
    from wigwag.operator.observed import Observed
    from wigwag.operator.reconcile.flags import FlagSummary
    from wigwag.operator.resources.featureflagsource import FeatureFlagSource
    from wigwag.operator.resources.inprocessconfiguration import InProcessConfiguration
    from wigwag.operator.resources.kubernetes import ObjectMeta
    from wigwag.operator.settings import OperatorSettings
    from wigwag.pipeline.broadcast import Broadcast

BY_LABEL = "selector"
"""The key of all sources that allow namespaces by their labels."""


class KnownChanges:
    """The known objects, by kind, as informers."""

    def __init__(
        self, known: Broadcast[Observed], settings: OperatorSettings, namespaces: Namespaces | None = None
    ) -> None:
        self._known, self._settings = known, settings
        self.namespaces = namespaces or Namespaces(settings.options)
        self.sources: Informer[FeatureFlagSource] = Informer()
        self.configurations: Informer[InProcessConfiguration] = Informer()
        self.flags: Informer[FlagSummary] = Informer()
        self.config_maps: Informer[ObjectMeta] = Informer()
        self.proxies: Informer[ProxyState] = Informer()
        self.namespace_labels: Informer[Mapping[str, str]] = Informer()
        self._naming: Index[FeatureFlagSource, str] = Index(self.sources, _flag_names)
        self._proxied: Index[FeatureFlagSource, str] = Index(self.sources, self.proxy_key)
        self._selecting: Index[FeatureFlagSource, str] = Index(self.sources, _selecting)

    async def run(self) -> None:
        """Follow what is known, until cancelled."""
        async for observed in self._known:
            self.sources.put(_objects(observed.sources))  # first, since the others are looked up in it
            self.configurations.put(_objects(observed.configurations))
            self.flags.put(_objects(observed.flags))
            self.config_maps.put(_objects(observed.config_maps))
            self.proxies.put(_objects(observed.proxies))
            self.namespace_labels.put(_objects(observed.namespaces))

    def feed_sources(
        self, add: Callable[[Key], object], users: Callable[[Key], Collection[str]] = lambda _: ()
    ) -> None:
        """Have `add` called with the key of each source that a change concerns.

        `users` returns the namespaces of workloads that name a source.
        """

        def naming(key: Key, _: Any) -> Iterable[Key]:
            namespace, name = key
            yield from self._naming[f"{namespace}/{name}"]
            for source in self._naming[name]:
                if source[0] == namespace or namespace in users(source):
                    yield source

        def flags_changed(before: Objects[FlagSummary] | None, after: Objects[FlagSummary]) -> None:
            """Sources refer to flags by name and grant; what a status says of agents, they need not know."""
            for key in after.changed_since(before):
                if _about(before, key) != _about(after, key):
                    for source in naming(key, None):
                        add(source)

        self.sources.feed(add, own_key)
        self.flags.on_change(flags_changed)
        self.config_maps.feed(add, naming)
        self.proxies.feed(add, self._keys_through_proxy)
        self.namespace_labels.feed(add, self.sources_by_label)

    def feed_moved(self, add: Callable[[Key], object], informer: Informer[Any]) -> None:
        """Have `add` called with each key of an informer whose namespace may have moved to or from another operator."""

        def moved(namespace: str) -> None:
            for key in informer.objects or ():
                if key[0] == namespace:
                    add(key)

        self.namespaces.on_change(moved)

    def proxy_key(self, _: Key, source: FeatureFlagSource) -> Iterable[str]:
        """Map a source to the proxy, if it needs it."""
        return (PROXY,) if needs_proxy(source.spec, self._settings) else ()

    def sources_through_proxy(self) -> list[FeatureFlagSource]:
        """Return the sources that need the proxy."""
        return [source for key in self._proxied[PROXY] if (source := self.sources.get(key))]

    def sources_by_label(self, *_: Any) -> Iterable[Key]:
        """Return the shared sources that a change of the labels of a namespace concerns."""
        return self._selecting[BY_LABEL]

    def _keys_through_proxy(self, *_: Any) -> Iterable[Key]:
        return self._proxied[PROXY]


def _about(flags: Objects[FlagSummary] | None, key: Key) -> ObjectMeta | None:
    flag: FlagSummary | None = None if flags is None else flags.get(key)
    return None if flag is None else flag.about


def _selecting(_: Key, source: FeatureFlagSource) -> Iterable[str]:
    return (BY_LABEL,) if isinstance(source, ClusterFeatureFlagSource) and source.selects else ()


def _flag_names(_: Key, source: FeatureFlagSource) -> Iterable[str]:
    """Return the FeatureFlags that a source names, as it does: NAME or NAMESPACE/NAME."""
    return {entry.source for entry in source.spec.sources}


def _objects(known: Any) -> Objects[Any]:
    return known if isinstance(known, Objects) else Objects(known)
