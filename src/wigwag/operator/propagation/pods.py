"""Pods with an agent or a proxy: where it can be asked, and which FeatureFlags an agent was told to use.

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
from wigwag.operator.names import AGENT, PROXY, ObjectName, parse_name
from wigwag.operator.reconcile.usage import MOST_SHARED, FlagUse, agent_sources, flag_of, pod_uses

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.kube.watch.decode import Key
    from wigwag.operator.injection.sources import AgentSource

AGENT_PORT, PROXY_PORT = 8014, 8016
"""The management ports of those that were told no other."""
_LARGEST_PORT = 65535


class AgentPod(Struct, frozen=True):
    """A running agent. Equal ones are the same process, as far as anybody can tell."""

    uid: str
    restarts: int
    address: str
    port: int
    flags: tuple[ObjectName | None, ...]
    """The FeatureFlag of each source, in the order of `--sources`; None for one that comes from elsewhere."""
    proxied: frozenset[ObjectName] = frozenset()
    """Those of them that come from a proxy."""


class ProxyPod(Struct, frozen=True):
    """A running proxy."""

    uid: str
    restarts: int
    address: str
    port: int


class ConsumingPod(NamedTuple):
    """What counts of a pod: the flags that its agent was told to use, and the agent or the proxy, while it runs."""

    uses: frozenset[FlagUse]
    agent: AgentPod | ProxyPod | None = None


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
    uses, text = pod_uses(raw), bytes(raw)
    counts = uses or b"--sources" in text or _PROXY_CONTAINER in text
    return ConsumingPod(uses, running_agent(raw)) if counts else _NOTHING


_NOTHING, _PROXY_CONTAINER = ConsumingPod(frozenset()), f'"{PROXY}"'.encode()


def running_agent(raw: bytes) -> AgentPod | ProxyPod | None:
    """Decode the agent or the proxy of a pod; None if there is none that runs, or an agent uses no FeatureFlag."""
    try:
        pod = _decode(raw)
    except msgspec.ValidationError:
        return None
    about, spec, status = pod.metadata, pod.spec, pod.status
    if not status.pod_ip or about.deletion_timestamp:
        return None
    containers = {each.name: each for each in [*(spec.init_containers or ()), *(spec.containers or ())]}
    for each in [*(status.init_container_statuses or ()), *(status.container_statuses or ())]:
        if each.name in (AGENT, PROXY) and each.name in containers and each.state.running is not None:
            place, arguments = (about.uid, each.restart_count, status.pod_ip), containers[each.name].args or []
            if each.name == PROXY:
                return ProxyPod(*place, _port(arguments, PROXY_PORT))
            sources = agent_sources(arguments)
            flags = _shared(tuple(_flag(source, about.namespace) for source in sources))
            proxied = frozenset(flag for flag, source in zip(flags, sources, strict=True) if flag and _proxied(source))
            return AgentPod(*place, _port(arguments, AGENT_PORT), flags, proxied) if any(flags) else None
    return None


@lru_cache(maxsize=MOST_SHARED)
def _shared(flags: tuple[ObjectName | None, ...]) -> tuple[ObjectName | None, ...]:
    """Return the same object for equal values, since the pods of a workload use the same flags."""
    return flags


_SELECTOR = f"{GROUP}/"


def target_flag(selector: str, namespace: str = "") -> ObjectName:
    """Return the FeatureFlag that a proxy is asked for by a selector."""
    return parse_name(selector.removeprefix(_SELECTOR), namespace)


def _proxied(source: AgentSource) -> bool:
    return source.selector.startswith(_SELECTOR)


def _flag(source: AgentSource, namespace: str) -> ObjectName | None:
    return target_flag(source.selector, namespace) if _proxied(source) else flag_of(source, namespace)


def _port(arguments: list[str], usual: int) -> int:
    try:
        port = int(arguments[arguments.index("--management-port") + 1])
    except (ValueError, IndexError):
        return usual
    return port if 0 < port <= _LARGEST_PORT else usual


def used_flags(_: Key, pod: ConsumingPod) -> Iterable[ObjectName]:
    """Return the FeatureFlags that the agent of a pod uses; for an index."""
    return {flag for flag in pod.agent.flags if flag} if isinstance(pod.agent, AgentPod) else ()
