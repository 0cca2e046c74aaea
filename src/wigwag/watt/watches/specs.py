"""What can be watched: frozen records, each of which is its own key. Equal records are one watch.

How long a snapshot waits for a watch is not part of it: that is in `pipeline.spec.Wanted`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from wigwag.errors import UsageError
from wigwag.kube.named import NamedWatch
from wigwag.sources.consul.endpoints import EndpointsWatch

if TYPE_CHECKING:
    from wigwag.sources.consul.keys import ConsulWatch
    from wigwag.sources.source import Source


@dataclass(frozen=True, slots=True)
class KubernetesSpec:
    """Objects of a kind, which has any name that `kubectl get` accepts.

    >>> print(KubernetesSpec("service"), KubernetesSpec("cm", "shop", labels="app=web"))
    kubernetes service|*|*|* kubernetes cm|shop|*|app=web
    """

    kind: str
    namespace: str = ""
    """Empty: all."""
    fields: str = ""
    labels: str = ""
    metadata_only: bool = False
    """Whether the server leaves out everything but the metadata."""
    ignore: tuple[str, ...] = ()
    """Fields to leave out, such as `status`: a change of them is no change."""

    def __post_init__(self) -> None:
        _ = self.watch  # which checks it
        if bad := [path for path in self.ignore if not all(path.split("."))]:
            raise UsageError(f"{bad[0]!r} is not a field to ignore; write it as status, or metadata.labels")

    @property
    def watch(self) -> NamedWatch:
        """The objects, as the API server is asked for them."""
        return NamedWatch(
            self.kind, self.namespace, labels=self.labels, fields=self.fields, metadata_only=self.metadata_only
        )

    def __str__(self) -> str:
        """The id that watt gave to a watch, and what else tells it apart."""
        parts = [part or "*" for part in (self.kind, self.namespace, self.fields, self.labels)]
        further = ["metadata"] * self.metadata_only + [f"ignore={','.join(self.ignore)}"] * bool(self.ignore)
        return "kubernetes " + "|".join([*parts, *further])


@dataclass(frozen=True, slots=True)
class ConsulSpec:
    """The endpoints of a service in Consul."""

    watch: EndpointsWatch
    id: str = field(default="", compare=False)
    """Whatever the hook gave; it is repeated in the snapshot."""

    def __str__(self) -> str:
        """The id that watt gave to a watch, and what else tells it apart."""
        watch, access = self.watch, self.watch.access
        further = {"ns": access.namespace, "partition": access.partition, "tag": watch.tag, "filter": watch.filter}
        parts = [f"{name}={text}" for name, text in further.items() if text] + ["all"] * (not watch.passing)
        return "|".join([f"consul {access.address}", access.datacenter or "*", watch.service, *parts])


@dataclass(frozen=True, slots=True)
class KeysSpec:
    """Keys of Consul's KV store: one, or with a slash at the end all below it."""

    watch: ConsulWatch

    @property
    def store(self) -> str:
        """Which KV store: the agent, the datacenter, and what else tells stores apart."""
        access = self.watch.access
        further = {"ns": access.namespace, "partition": access.partition}
        parts = [f"{name}={text}" for name, text in further.items() if text]
        return "|".join([access.address, access.datacenter or "*", *parts])

    def __str__(self) -> str:
        return f"consul-kv {self.store}|{self.watch.key}"


@dataclass(frozen=True, slots=True)
class DirectorySpec:
    """The files of a directory; of a mounted ConfigMap, those of one generation."""

    path: str

    def __post_init__(self) -> None:
        if not self.path or "\0" in self.path:
            raise UsageError(f"{self.path!r} is not the path of a directory")

    def __str__(self) -> str:
        return f"directory {self.path}"


@dataclass(frozen=True, slots=True)
class DocumentSpec:
    """The document at a URI, of any kind of source: built in or plugged in."""

    source: Source

    def __str__(self) -> str:
        return f"uri {self.source.name}"


Spec: TypeAlias = KubernetesSpec | ConsulSpec | KeysSpec | DirectorySpec | DocumentSpec
