"""What migrating one object comes to: the new objects, and remarks about what could not be carried over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

Json: TypeAlias = Any
Severity: TypeAlias = Literal["error", "warning", "info"]
GROUP = "core.openfeature.dev"
VERSION = f"{GROUP}/v1beta1"
LEFT = "the object is left as it is"
_OF_THE_SERVER = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_FINALIZERS = "featureflagconfiguration.core.openfeature.dev/"
"""The original's controller of old kinds put it on objects; nobody would remove it from a new one."""


class Remark(NamedTuple):
    """Something to know about a migrated object: what was lost, and what to do."""

    severity: Severity
    """`error`: the object was not migrated. `warning`: something of it is lost. `info`: something is elsewhere now."""
    path: str
    """A JSON path in the old object."""
    message: str


@dataclass(frozen=True)
class Migrated:
    """One object, migrated."""

    objects: tuple[Json, ...] | None = None
    """What to write instead; None if the object stays as it is."""
    remarks: tuple[Remark, ...] = ()


def members(value: Json) -> dict[str, Json]:
    """Return a map; an empty one instead of anything else, which no old object had there."""
    return value if isinstance(value, dict) else {}


def unmigrated(path: str, message: str) -> Migrated:
    """Return that an object cannot be migrated."""
    return Migrated(remarks=(Remark("error", path, f"{message}; {LEFT}"),))


def new_object(old: Json, kind: str, spec: Json) -> Json:
    """Return an object of a new kind, with the metadata of an old one as far as they are the user's."""
    given = members(old.get("metadata"))
    metadata = {name: value for name, value in given.items() if name not in _OF_THE_SERVER}
    metadata |= {
        "annotations": {
            name: each for name, each in members(given.get("annotations")).items() if name != _LAST_APPLIED
        },
        "finalizers": [name for name in given.get("finalizers") or () if not str(name).startswith(_FINALIZERS)],
    }
    metadata = {name: value for name, value in metadata.items() if value}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}
