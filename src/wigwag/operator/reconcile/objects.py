"""Objects that should exist, and what all of one owner have in common: labels, annotations, the owner reference.

The selector of a Deployment cannot be changed later, and `managed-by` tells whose an object is. So these labels win
over those of users.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from wigwag.kube.kinds import Kind
from wigwag.operator.names import MANAGED_BY, OPERATOR, ObjectName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.operator.settings import OperatorOptions

Json: TypeAlias = Any
APP, NAME, VERSION = "app", "app.kubernetes.io/name", "app.kubernetes.io/version"
_TAG = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""What of a tag can be the value of a label; a digest after it cannot."""


class DesiredObject(NamedTuple):
    """An object as it should be."""

    kind: Kind
    body: dict[str, Json]

    @property
    def name(self) -> ObjectName:
        """The object's name."""
        return ObjectName(self.body["metadata"]["namespace"], self.body["metadata"]["name"])


@dataclass(frozen=True)
class ObjectFactory:
    """Makes the objects of one owner."""

    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner: Mapping[str, Json]
    """The owner reference."""

    def make(
        self, kind: Kind, name: str, spec: Mapping[str, Json], annotations: Mapping[str, str] | None = None
    ) -> DesiredObject:
        """Return an object; its own annotations win."""
        metadata: dict[str, Json] = {"name": name, "namespace": self.namespace, "labels": dict(self.labels)}
        if both := {**self.annotations, **(annotations or {})}:
            metadata["annotations"] = both
        metadata["ownerReferences"] = [dict(self.owner)]
        return DesiredObject(kind, {"metadata": metadata, "spec": dict(spec)})


def object_labels(name: str, tag: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of generated objects and their pods.

    >>> object_labels("flagd", "v1@sha256:12", {"team": "a", "app": "other"})["app.kubernetes.io/version"]
    'v1'
    """
    version = _TAG.match(tag.partition("@")[0])
    own = {APP: name, NAME: name, MANAGED_BY: OPERATOR, **({VERSION: version[0]} if version else {})}
    return {**given, **own}


def pull_secrets(options: OperatorOptions) -> dict[str, Json]:
    """Return the member of a pod's spec that names Secrets for pulling images, if there are any."""
    names = [{"name": name} for name in options.image_pull_secrets]
    return {"imagePullSecrets": names} if names else {}


def container_port(name: str, number: int) -> dict[str, Json]:
    """Return a port of a container."""
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def service_port(name: str, number: int, target: int, protocol: str) -> dict[str, Json]:
    """Return a port of a Service. `target` is where the process listens; `protocol` what it speaks there."""
    return {"name": name, "port": number, "targetPort": target, "protocol": "TCP", "appProtocol": protocol}
