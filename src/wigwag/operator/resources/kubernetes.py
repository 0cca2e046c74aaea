"""What custom resources take over from Kubernetes' own objects: metadata, variables, resources, conditions.

Members that only Kubernetes reads (`valueFrom`, `affinity`) are plain JSON here: they are handed on as they are.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct, field

from wigwag.operator.resources.schema import declared

Json: TypeAlias = Any
Quantity: TypeAlias = Annotated[
    int | str,
    declared(
        pattern=r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    ),
]
PullPolicy: TypeAlias = Annotated[str, Meta(pattern="^(|Always|IfNotPresent|Never)$")]
Port: TypeAlias = Annotated[int, declared(format="int32")]


class ObjectMeta(Struct, frozen=True, kw_only=True, rename="camel"):
    """The metadata of an object, as far as it counts here."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    """Set while somebody's finalizer keeps an object that was deleted; nothing is made for it any more."""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class EnvVar(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A variable of a container's environment."""

    name: str
    value: str = ""
    value_from: dict[str, Any] | None = None


class ResourceRequirements(Struct, frozen=True, omit_defaults=True):
    """What a container asks for, and what it may use at most."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: list[dict[str, Any]] = []


class SecretKey(Struct, frozen=True):
    """A key of a Secret in the namespace of the pod."""

    name: str
    key: str


class Condition(Struct, frozen=True, kw_only=True, rename="camel"):
    """One aspect of the state of an object."""

    type: Annotated[str, Meta(max_length=316)]
    status: Annotated[str, Meta(pattern="^(True|False|Unknown)$")]
    reason: Annotated[str, Meta(max_length=1024)]
    message: Annotated[str, Meta(max_length=32768)] = ""
    last_transition_time: Annotated[str, declared(format="date-time")]
    observed_generation: Annotated[int, declared(format="int64")] = 0


Conditions: TypeAlias = Annotated[
    list[Condition], declared(**{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]})
]


class ObjectStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the operator says about an object."""

    observed_generation: Annotated[int, declared(format="int64")] = 0
    conditions: Conditions = field(default_factory=list)
    digest: Annotated[str, declared("A hash of what is in force; equal content has the same.")] = ""
