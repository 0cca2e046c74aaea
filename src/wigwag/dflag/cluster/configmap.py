"""A ConfigMap of the API server as a place to read flags from.

It means what a mounted volume of it means. Keys are files, `binaryData` is taken as bytes, and a key that begins with a
dot is hidden. When the object is deleted, its values stay and that is a problem, because a kubelet leaves the volume as
it is. If it is `optional`, a kubelet empties the volume, so its keys are gone here, too.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from wigwag.dflag.updating.contents import MOST_KEYS
from wigwag.dflag.updating.places import Names, check_documents
from wigwag.errors import WigwagError
from wigwag.kube.kinds import CONFIG_MAP, check_name
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.spec import Unavailable, Unchanged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from wigwag.dflag.cluster.watch import Decoded
    from wigwag.dflag.updating.contents import Contents
    from wigwag.dflag.updating.policy import Policy
    from wigwag.kube.watch.decode import Key

log = logging.getLogger("wigwag.dflag")


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap of the API server, as a place to read flags from.

    >>> ConfigMap("shop", "flags", flag_namespace="db.").names.flag("size")
    'db.size'
    >>> print(ConfigMap("shop", "flags").watched().rule())
    {apiGroups: [""], resources: [configmaps], resourceNames: [flags], verbs: [get, list, watch]}
    """

    namespace: str
    """The namespace that it is in."""
    name: str
    prefix: str = ""
    """Only keys with this prefix are read; the name of the flag is the rest."""
    flag_namespace: str = ""
    """Put before a key to make the name of a flag."""
    optional: bool = False
    """Whether the object may be missing: that is the same as one without keys. The program then also starts, with its
    defaults, while the API server does not answer; the watch goes on trying."""
    documents: tuple[str, ...] = ()
    """The keys that contain many flags each, by name or pattern; see `Directory.documents`."""
    most: int = 16 << 20
    """The largest size of all keys together, in bytes. An API server takes 1 MiB."""
    kubeconfig: str = ""
    """The kubeconfig file; empty: KUBECONFIG, the service account of the pod, or ~/.kube/config."""
    context: str = ""
    """The context in it; empty: the current one."""
    position: int = 0
    """Its position among several places, set by the updater; the last wins."""

    def __post_init__(self) -> None:
        check_name(self.namespace)
        check_name(self.name)
        check_documents(self.documents)

    @property
    def title(self) -> str:
        """`configmap/NAMESPACE/NAME`."""
        return f"configmap/{self.namespace}/{self.name}"

    @property
    def names(self) -> Names:
        """How its keys name flags."""
        return Names(self.prefix, self.flag_namespace)

    def watched(self) -> KubeWatch:
        """Return what is watched: the one object, so that a Role with its name is enough."""
        return KubeWatch(CONFIG_MAP, self.namespace, self.name)

    def numbered(self, position: int) -> ConfigMap:
        """Return a copy with this position."""
        return replace(self, position=position)

    def read(self) -> Contents | Unavailable | None:
        """Return its contents; the caller waits for the API server."""
        from wigwag.dflag.cluster.watch import outside

        return outside(self.look)

    async def look(self) -> Contents | Unavailable | None:
        """Return its contents, or why there are none; None if it is optional and the server does not answer."""
        from wigwag.dflag.cluster.watch import connect, look

        try:
            kube = connect(self.kubeconfig, self.context)
        except WigwagError as error:
            return Unavailable(str(error))
        item = await look(kube, self.watched())
        if isinstance(item, Unavailable) and self.optional:
            log.warning("%s: %s; it is optional: flags keep their defaults until it can be read", self, item.reason)
            return None
        contents = ConfigMapReader(self)(item)
        return None if isinstance(contents, Unchanged) else contents

    def watch(self, policy: Policy) -> AsyncIterator[Contents | Unavailable | Unchanged]:
        """Yield its contents whenever they change; the policy does not matter here."""
        from wigwag.dflag.cluster.watch import connect, watch

        return watch(self.watched(), ConfigMapReader(self), partial(connect, self.kubeconfig, self.context))

    def unchanging(self) -> list[str]:
        """Return nothing: every key can change."""
        return []

    def __str__(self) -> str:
        return self.title


class ConfigMapReader:
    """Decides what each item of a watch means; remembers whether the object ever existed."""

    def __init__(self, place: ConfigMap) -> None:
        self._place, self._seen = place, False
        self._fault: Unavailable | None = None

    def __call__(self, item: Mapping[Key, Decoded] | Unavailable | Unchanged) -> Contents | Unavailable | Unchanged:
        """Return what an item means. While the object is missing, `Unchanged` means that it is still missing."""
        if isinstance(item, Unavailable):
            return item
        if isinstance(item, Unchanged):
            return self._fault or item
        contents = self._contents(item)
        self._fault = contents if isinstance(contents, Unavailable) else None
        return contents

    def _contents(self, objects: Mapping[Key, Decoded]) -> Contents | Unavailable:
        place = self._place
        decoded = objects.get((place.namespace, place.name))
        if decoded is None:
            return {} if place.optional else self._missing()
        self._seen = True
        if isinstance(decoded, Unavailable):
            return Unavailable(f"it cannot be read, and what it held stays: {decoded.reason}")
        visible = {key: content for key, content in decoded.items() if not key.startswith(".")}
        if sum(map(len, visible.values())) > place.most or len(visible) > MOST_KEYS:
            return Unavailable(f"{place} is larger than the limit of {place.most} bytes or {MOST_KEYS} keys")
        return visible

    def _missing(self) -> Unavailable:
        what = f"ConfigMap {self._place.name} in the namespace {self._place.namespace}"
        if self._seen:
            return Unavailable(f"there is no {what} any more; what it held stays until it is back")
        return Unavailable(f"there is no {what}; create it, check the name, or call it optional")
