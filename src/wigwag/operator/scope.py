"""Which namespaces an operator serves: all, all but some, or only certain ones.

| options | how objects are watched | rights |
|---|---|---|
| none | a watch of each kind, in all namespaces | a ClusterRole |
| `--exclude-namespaces` | the same, with a field selector that leaves the namespaces out | a ClusterRole |
| `--namespaces` | a watch of each kind in each namespace, merged into one | a Role in each namespace |

It is where a watch is opened that namespaces count, so controllers, informers and the hub know nothing of it.

The hard case is a right that is missing in one of the namespaces, or a namespace that does not exist yet, which looks
the same. The others go on without it. What the namespace has is then unknown, which is not "nothing": whoever removes
what nobody needs, or says that no workload is behind, asks `unreadable` first.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from wigwag.kube.hub import open_watch_promptly
from wigwag.kube.kinds import DEPLOYMENT, SERVICE
from wigwag.kube.watch.listwatch import WatchForbidden
from wigwag.kube.watch.merged import merge_watches
from wigwag.operator.settings import OperatorSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from wigwag.kube.client import Kube
    from wigwag.kube.watch.decode import Decode
    from wigwag.kube.watch.reflector import Item
    from wigwag.kube.watch.spec import KubeWatch
    from wigwag.pipeline.spec import Unavailable

T = TypeVar("T")
WATCHES_PER_NAMESPACE = 20
"""Connections that one more namespace costs: one for each kind."""
_OF_PROXY = (DEPLOYMENT, SERVICE)
"""Kinds that are watched in the operator's own namespace, too."""
log = logging.getLogger("wigwag.operator")


class NamespaceScope:
    """The namespaces of one operator, and which of them cannot be read."""

    def __init__(
        self,
        settings: OperatorSettings = OperatorSettings(),  # noqa: B008 - a frozen value
        open_watch: Callable[[Kube, KubeWatch, Decode[Any]], AsyncIterator[Item[Any]]] = open_watch_promptly,
    ) -> None:
        """`open_watch` opens a watch in one namespace, or in all."""
        options = settings.options
        self._served, self._excluded, self._own = options.namespaces, options.exclude_namespaces, settings.pod
        self._open_watch = open_watch
        self._forbidden: dict[tuple[KubeWatch, str], str] = {}
        """Why some objects of some namespaces cannot be read; logged once."""

    @property
    def unreadable(self) -> frozenset[str]:
        """The namespaces in which the right to read something is missing."""
        return frozenset(namespace for _, namespace in self._forbidden)

    def open(self, kube: Kube, spec: KubeWatch, decode: Decode[T]) -> AsyncIterator[Item[T]]:
        """Open a watch; of a kind in all namespaces, in those that are served."""
        if spec.namespace or not spec.kind.namespaced:
            return self._open_watch(kube, spec, decode)
        if not self._served:
            return self._open_watch(kube, replace(spec, fields=self._fields(spec)), decode)
        own = (self._own.namespace,) if spec.kind in _OF_PROXY else ()
        parts = {
            namespace: self._open_watch(kube, replace(spec, namespace=namespace), decode)
            for namespace in dict.fromkeys((*self._served, *own))
        }
        return merge_watches(parts, _is_forbidden, partial(self._note, spec))

    def _fields(self, spec: KubeWatch) -> str:
        excluded = (f"metadata.namespace!={namespace}" for namespace in self._excluded)
        return ",".join(filter(None, (spec.fields, *excluded)))

    def _note(self, spec: KubeWatch, namespace: str, trouble: Unavailable | None) -> None:
        """Log which right is missing in which namespace, once, and when it is there."""
        key = spec, namespace
        if trouble is None:
            if self._forbidden.pop(key, None):
                log.info("namespace %s: %s can be read", namespace, spec.kind)
        else:
            is_said = trouble.reason in self._forbidden.values()  # by another watch of the same kind
            self._forbidden[key] = trouble.reason
            if not is_said:
                text = "namespace %s goes without the operator, at least in part, unless it does not exist yet: %s"
                log.warning(text, namespace, trouble.reason)


def _is_forbidden(trouble: Unavailable) -> bool:
    return isinstance(trouble, WatchForbidden)
