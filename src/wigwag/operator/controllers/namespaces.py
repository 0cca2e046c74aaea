"""The namespaces of the cluster: their labels and annotations, and which of them are this operator's.

They are watched only if somebody asks: with a revision, with upgrades or with the watchdog. Otherwise the operator
needs no right to read them, and all are its own. An operator of certain namespaces (`--namespaces`) has no such right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.kube.control.informer import Informer
from wigwag.kube.kinds import NAMESPACE
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.observed import metadata
from wigwag.operator.revisions import Ownership

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wigwag.kube.hub import Follow
    from wigwag.operator.resources.kubernetes import ObjectMeta
    from wigwag.operator.settings import OperatorOptions


class Namespaces:
    """The namespaces, as far as they are known. Run it, and wait until it is synced."""

    def __init__(self, options: OperatorOptions) -> None:
        self._ownership = Ownership(options.revision)
        self._informer: Informer[ObjectMeta] = Informer()
        needed = options.revision or options.sidecar_upgrade != "off" or options.watchdog != "off"
        self.is_watched = bool(needed) and not options.namespaces

    async def run(self, watch: Follow) -> None:
        """Watch, until cancelled; if nobody needs to know them, there is nothing to do."""
        if self.is_watched:
            await self._informer.follow(watch(KubeWatch(NAMESPACE, metadata_only=True), metadata))

    async def synced(self) -> None:
        """Wait until they are known."""
        if self.is_watched:
            await self._informer.synced()

    def on_change(self, listen: Callable[[str], object]) -> None:
        """Have a function called with the name of each namespace that has changed."""
        self._informer.feed(listen, lambda key, _: (key[1],))

    def owns(self, namespace: str) -> bool:
        """Tell whether a namespace is this operator's."""
        return self._ownership.of_namespace(self._labels(namespace))

    def owns_pod(self, namespace: str, revision: str) -> bool:
        """Tell whether a pod with this label is this operator's."""
        return self._ownership.of_pod(self._labels(namespace), revision)

    def annotations(self, namespace: str) -> Mapping[str, str]:
        """Return the annotations of a namespace."""
        live = self._informer.get(("", namespace))
        return (live and live.annotations) or {}

    def _labels(self, namespace: str) -> Mapping[str, str]:
        live = self._informer.get(("", namespace))
        return (live and live.labels) or {}
