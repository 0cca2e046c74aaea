"""Pods with an agent, and pods that should have one: what is kept of a pod, so that plans are made from records.

    pod ─▶ asks for a sidecar, and has not ended ─┬─ has a container `flagd`  ─▶ SidecarPod
                                                  └─ has none                 ─▶ MissedPod

An upgrade in place is recorded in the pod itself: one patch changes the image and writes the annotation
`openfeature.dev/agent-upgrade`, which says what ran before. So another leader knows what was begun, and when it is
over: when *another container* than that one is ready. The name of the image in the status would not do, since container
runtimes rewrite it; nor the time when the container started, which is by another clock.

The workload of a pod is its controller; that of a ReplicaSet's pods is the Deployment whose name is the ReplicaSet's
without the label `pod-template-hash`, so nobody has to read ReplicaSets. Pods of Jobs are left out: they end by
themselves, and the next one gets the new agent.
"""

from __future__ import annotations

from datetime import datetime
from sys import intern
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct, field

from wigwag.operator.names import AGENT, AGENT_UPGRADE, MIRROR, REVISION, SIDECAR_UPGRADE, ObjectName, mode_of

if TYPE_CHECKING:
    from collections.abc import Mapping

OFF = "off"
HASH = "pod-template-hash"
_OVER = ("Succeeded", "Failed")
_NEVER = datetime.fromtimestamp(0).astimezone()


class WorkloadName(NamedTuple):
    """What creates a pod again: its controller, or nobody.

    >>> str(WorkloadName("Deployment", ObjectName("shop", "web")))
    'Deployment shop/web'
    """

    kind: str
    """Empty: the pod has no controller, and the name is its own."""
    name: ObjectName

    def __str__(self) -> str:
        return f"{self.kind or 'Pod'} {self.name}"


class AgentUpgrade(Struct, frozen=True):
    """The annotation of a pod whose agent was upgraded in place."""

    image: str = ""
    """The new one."""
    container: str = ""
    """The container that ran before; empty: none did."""
    at: float = 0.0
    """Unix seconds, by the operator's clock."""
    ready: bool = True
    """Whether the agent was ready before: only then is it the upgrade's fault if it is not afterwards."""


class SidecarPod(NamedTuple):
    """A pod with an agent."""

    name: ObjectName
    uid: str
    workload: WorkloadName
    image: str
    path: str
    """Where the agent's container is in the pod, as a JSON pointer."""
    container: str
    """The container that runs the agent; empty: none does."""
    agent_ready: bool
    trouble: str
    """Why the agent's container waits, in one word; empty: it does not."""
    ready: bool
    """Whether the pod is."""
    created: float
    upgrade: AgentUpgrade | None = None
    opted_out: bool = False
    revision: str = ""
    """The label of the pod."""

    @property
    def is_settled(self) -> bool:
        """Whether its agent was not upgraded in place, or is ready since."""
        return self.upgrade is None or (self.agent_ready and self.container != self.upgrade.container)


class MissedPod(NamedTuple):
    """A pod that asks for an agent, and was created without one."""

    name: ObjectName
    uid: str
    workload: WorkloadName
    created: float
    revision: str = ""


ObservedPod: TypeAlias = SidecarPod | MissedPod | tuple[()]
OTHER: tuple[()] = ()
"""A pod that does not count here. It is not None: to a watch, that is a pod that cannot be read and stays as it was."""


class _Owner(Struct):
    kind: str = ""
    name: str = ""
    controller: bool = False


class _PodMetadata(Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime = _NEVER
    deletion_timestamp: str | None = None
    owner_references: list[_Owner] | None = None


class _AgentContainer(Struct):
    name: str = ""
    image: str = ""


class _PodContent(Struct, rename="camel"):
    containers: list[_AgentContainer] = []
    init_containers: list[_AgentContainer] | None = None
    restart_policy: str = "Always"


class _Waiting(Struct):
    reason: str = ""


class _SidecarState(Struct):
    waiting: _Waiting | None = None


class _SidecarStatus(Struct, rename="camel"):
    name: str = ""
    ready: bool = False
    container_id: str = field(default="", name="containerID")
    state: _SidecarState = field(default_factory=_SidecarState)


class _PodCondition(Struct):
    type: str = ""
    status: str = ""


class _PodStatus(Struct, rename="camel"):
    phase: str = ""
    conditions: list[_PodCondition] | None = None
    container_statuses: list[_SidecarStatus] | None = None
    init_container_statuses: list[_SidecarStatus] | None = None


class _PodObject(Struct):
    metadata: _PodMetadata = field(default_factory=_PodMetadata)
    spec: _PodContent = field(default_factory=_PodContent)
    status: _PodStatus = field(default_factory=_PodStatus)


_decode = msgspec.json.Decoder(_PodObject).decode
_decode_upgrade = msgspec.json.Decoder(AgentUpgrade).decode


def read_pod(raw: bytes) -> ObservedPod:
    """Decode what counts of a pod; `OTHER` if it wants no agent, is going, has ended or will end."""
    try:
        pod = _decode(raw)
    except msgspec.ValidationError:
        return OTHER
    about, annotations = pod.metadata, pod.metadata.annotations or {}
    if mode_of(annotations) != "sidecar" or MIRROR in annotations or about.deletion_timestamp is not None:
        return OTHER
    if pod.status.phase in _OVER or pod.spec.restart_policy != "Always":
        return OTHER
    name, created = ObjectName(about.namespace, about.name), about.creation_timestamp.timestamp()
    workload, revision = _workload(about), (about.labels or {}).get(REVISION, "")
    for member, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for at, each in enumerate(containers or ()):
            if each.name == AGENT:
                status, image = _agent_status(pod.status), intern(each.image)
                return SidecarPod(
                    name=name,
                    uid=about.uid,
                    workload=workload,
                    image=image,
                    path=intern(f"/spec/{member}/{at}"),
                    container=status.container_id,
                    agent_ready=status.ready,
                    trouble=status.state.waiting.reason if status.state.waiting else "",
                    ready=_is_ready(pod.status),
                    created=created,
                    upgrade=_upgrade(annotations),
                    opted_out=is_opted_out(annotations),
                    revision=revision,
                )
    return MissedPod(name, about.uid, workload, created, revision)


def is_opted_out(annotations: Mapping[str, str]) -> bool:
    """Tell whether a pod or a namespace wants its agents to stay as they are."""
    return annotations.get(SIDECAR_UPGRADE) == OFF


def read_agent_image(raw: bytes) -> str:
    """Decode nothing but the image of a pod's agent; empty if it has none. It takes no memory for each pod."""
    pod = read_pod(raw)
    return pod.image if isinstance(pod, SidecarPod) else ""


def _workload(about: _PodMetadata) -> WorkloadName:
    for owner in about.owner_references or ():
        if owner.controller:
            suffix = f"-{(about.labels or {}).get(HASH, '')}"
            if owner.kind == "ReplicaSet" and len(suffix) > 1 and owner.name.endswith(suffix):
                return WorkloadName("Deployment", ObjectName(about.namespace, owner.name.removesuffix(suffix)))
            return WorkloadName(intern(owner.kind), ObjectName(about.namespace, owner.name))
    return WorkloadName("", ObjectName(about.namespace, about.name))


def _agent_status(status: _PodStatus) -> _SidecarStatus:
    statuses = [*(status.init_container_statuses or ()), *(status.container_statuses or ())]
    return next((each for each in statuses if each.name == AGENT), _SidecarStatus())


def _is_ready(status: _PodStatus) -> bool:
    return any((each.type, each.status) == ("Ready", "True") for each in status.conditions or ())


def _upgrade(annotations: Mapping[str, str]) -> AgentUpgrade | None:
    try:
        return _decode_upgrade(annotations[AGENT_UPGRADE])
    except (KeyError, msgspec.DecodeError):  # there is none, or somebody else has written it
        return None
