"""What can be watched: frozen records, each of which is its own key. Equal records are one watch.

How long a snapshot waits for a watch is not part of it: that is in `pipeline.spec.Wanted`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from wigwag.errors import UsageError
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.endpoints import EndpointsWatch

if TYPE_CHECKING:
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
        if not self.kind or not self.kind.isprintable() or "/" in self.kind or " " in self.kind:
            raise UsageError(
                f"{self.kind!r} is not a kind; write it as for `kubectl get`: service, ingresses.v1.networking.k8s.io"
            )

    def __str__(self) -> str:
        """The id that watt gave to a watch."""
        parts = (self.kind, self.namespace, self.fields, self.labels)
        return "kubernetes " + "|".join(part or "*" for part in parts)


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

    access: ConsulAccess
    key: str

    def __str__(self) -> str:
        return f"consul-kv {self.access.address}|{self.access.datacenter or '*'}|{self.key}"


@dataclass(frozen=True, slots=True)
class DirectorySpec:
    """The files of a directory; of a mounted ConfigMap, those of one generation."""

    path: str

    def __str__(self) -> str:
        return f"directory {self.path}"


@dataclass(frozen=True, slots=True)
class DocumentSpec:
    """The document at a URI, of any kind of source: built in or plugged in."""

    source: Source

    def __str__(self) -> str:
        return f"uri {self.source.name}"


Spec: TypeAlias = KubernetesSpec | ConsulSpec | KeysSpec | DirectorySpec | DocumentSpec
