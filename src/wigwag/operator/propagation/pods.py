"""Pods with an agent: where it can be asked, and which FeatureFlags it was told to use.

An agent counts while its container runs. One that has not started serves nobody, and gets the newest flags when it
does; one that is being deleted is no longer waited for. A container that is restarted is another agent: what the one
before had says nothing about it.

The address is the one in the pod's status, which the kubelet writes. The port is the pod author's choice, so an answer
is trusted with nothing but this agent's own digests, and what it says is never shown.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct, field

from wigwag.operator.injection.sources import GROUP
from wigwag.operator.names import AGENT, ObjectName, parse_name
from wigwag.operator.reconcile.usage import MOST_SHARED, FlagUse, agent_sources, flag_of, pod_uses

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.kube.watch.decode import Key
    from wigwag.operator.injection.sources import AgentSource

PORT = 8014
"""The management port of an agent that was told no other."""
_LARGEST_PORT = 65535


class AgentPod(Struct, frozen=True):
    """A running agent. Equal ones are the same process, as far as anybody can tell."""

    uid: str
    restarts: int
    address: str
    port: int
    flags: tuple[ObjectName | None, ...]
    """The FeatureFlag of each source, in the order of `--sources`; None for one that comes from elsewhere."""


class ConsumingPod(NamedTuple):
    """What counts of a pod: the flags that its agent was told to use, and the agent, while it runs."""

    uses: frozenset[FlagUse]
    agent: AgentPod | None = None


class _AgentContainer(Struct):
    name: str = ""
    args: list[str] | None = None


class _AgentPodMeta(Struct, rename="camel"):
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None


class _AgentPodSpec(Struct, rename="camel"):
    init_containers: list[_AgentContainer] | None = None
    containers: list[_AgentContainer] | None = None


class _ContainerState(Struct):
    running: dict[str, str | None] | None = None


class _ContainerStatus(Struct, rename="camel"):
    name: str = ""
    restart_count: int = 0
    state: _ContainerState = field(default_factory=_ContainerState)


class _AgentPodStatus(Struct, rename="camel"):
    pod_ip: str = field(default="", name="podIP")
    init_container_statuses: list[_ContainerStatus] | None = None
    container_statuses: list[_ContainerStatus] | None = None


class _PodWithAgent(Struct):
    metadata: _AgentPodMeta = field(default_factory=_AgentPodMeta)
    spec: _AgentPodSpec = field(default_factory=_AgentPodSpec)
    status: _AgentPodStatus = field(default_factory=_AgentPodStatus)


_decode = msgspec.json.Decoder(_PodWithAgent).decode


def consuming_pod(raw: bytes) -> ConsumingPod:
    """Decode what counts of a pod."""
    uses = pod_uses(raw)
    return _NOTHING if not uses and b"--sources" not in bytes(raw) else ConsumingPod(uses, running_agent(raw))


_NOTHING = ConsumingPod(frozenset())


def running_agent(raw: bytes) -> AgentPod | None:
    """Decode the agent of a pod; None if there is none that runs, or it uses no FeatureFlag."""
    try:
        pod = _decode(raw)
    except msgspec.ValidationError:
        return None
    about, status = pod.metadata, pod.status
    running = [
        each
        for each in [*(status.init_container_statuses or ()), *(status.container_statuses or ())]
        if each.name == AGENT and each.state.running is not None
    ]
    containers = [
        each for each in [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())] if each.name == AGENT
    ]
    if not running or not containers or not status.pod_ip or about.deletion_timestamp:
        return None
    arguments = containers[0].args or []
    flags = _shared(tuple(_flag(each, about.namespace) for each in agent_sources(arguments)))
    if not any(flags):
        return None
    return AgentPod(about.uid, running[0].restart_count, status.pod_ip, _port(arguments), flags)


@lru_cache(maxsize=MOST_SHARED)
def _shared(flags: tuple[ObjectName | None, ...]) -> tuple[ObjectName | None, ...]:
    """Return the same object for equal values, since the pods of a workload use the same flags."""
    return flags


def _flag(source: AgentSource, namespace: str) -> ObjectName | None:
    """Return the FeatureFlag of a source. A proxy is asked for it by a selector."""
    prefix = f"{GROUP}/"
    if source.selector.startswith(prefix):
        return parse_name(source.selector.removeprefix(prefix), namespace)
    return flag_of(source, namespace)


def _port(arguments: list[str]) -> int:
    try:
        port = int(arguments[arguments.index("--management-port") + 1])
    except (ValueError, IndexError):
        return PORT
    return port if 0 < port <= _LARGEST_PORT else PORT


def used_flags(_: Key, pod: ConsumingPod) -> Iterable[ObjectName]:
    """Return the FeatureFlags that the agent of a pod uses; for an index."""
    return {flag for flag in pod.agent.flags if flag} if pod.agent else ()
