"""A ConfigMap of the API server as a place that flags are read from.

It means what a mounted volume of it means. Keys are files, `binaryData` is taken as it is, and one that begins with a
dot is hidden. When the object is deleted, what it held stays and that is a problem, because a kubelet leaves the volume
as it is; but if it is `optional`, a kubelet empties the volume, and so its keys are gone here, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wigwag.dflag.updating.places import Names, check_documents
from wigwag.kube.kinds import CONFIG_MAP, check_name
from wigwag.kube.watch.spec import KubeWatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wigwag.dflag.updating.contents import Contents
    from wigwag.dflag.updating.policy import Policy
    from wigwag.pipeline.spec import Unavailable, Unchanged


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap that flags are read from, as the API server has it.

    >>> ConfigMap("shop", "flags", flag_namespace="db.").names.flag("size")
    'db.size'
    >>> print(ConfigMap("shop", "flags").watched().rule())
    {apiGroups: [""], resources: [configmaps], resourceNames: [flags], verbs: [get, list, watch]}
    """

    namespace: str
    """The namespace that it is in."""
    name: str
    prefix: str = ""
    """Only keys that begin so are read; the flag's name is what follows."""
    flag_namespace: str = ""
    """What is put before a key to make the name of a flag."""
    optional: bool = False
    """Whether there need not be such an object: then none is as good as one without keys. A program then also starts
    with its defaults while the API server does not answer, and goes on asking."""
    documents: tuple[str, ...] = ()
    """The keys that hold many flags each, by name or pattern; see `Directory.documents`."""
    most: int = 16 << 20
    """The largest size of all keys together, in bytes. An API server takes 1 MiB."""
    kubeconfig: str = ""
    """The file that tells how to ask the API server; empty: KUBECONFIG, the pod that this is, or ~/.kube/config."""
    context: str = ""
    """The context in it; empty: the current one."""
    position: int = 0
    """Where it stands among several; the updater numbers them."""

    def __post_init__(self) -> None:
        check_name(self.namespace)
        check_name(self.name)
        check_documents(self.documents)

    @property
    def title(self) -> str:
        """The text that names it."""
        return f"configmap/{self.namespace}/{self.name}"

    @property
    def names(self) -> Names:
        """How its keys name flags."""
        return Names(self.prefix, self.flag_namespace)

    @property
    def required(self) -> bool:
        """Whether the API server must have answered at the start; otherwise it is asked again in the background."""
        return not self.optional

    def watched(self) -> KubeWatch:
        """Return what is watched: the one object, so that a Role with its name is enough."""
        return KubeWatch(CONFIG_MAP, self.namespace, self.name)

    def numbered(self, position: int) -> ConfigMap:
        """Return the same at a position."""
        return replace(self, position=position)

    def read(self) -> Contents | Unavailable | None:
        """Return what it holds; the caller waits for the API server."""
        from wigwag.dflag.cluster.outside import outside

        return outside(self.look)

    async def look(self) -> Contents | Unavailable | None:
        """Return what it holds, or why that cannot be known; None if the server has not told, and need not have."""
        from wigwag.dflag.cluster.watch import look

        return await look(self)

    def watch(self, policy: Policy) -> AsyncIterator[Contents | Unavailable | Unchanged]:
        """Yield what it holds whenever that changes; nothing of the policy is about that."""
        from wigwag.dflag.cluster.watch import watch

        return watch(self)

    def unchanging(self) -> list[str]:
        """Return nothing: whatever the API server has can change."""
        return []

    def __str__(self) -> str:
        return self.title
