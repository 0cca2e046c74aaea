"""Pods with an agent or a proxy: where it can be asked, and which FeatureFlags an agent was told to use.

An agent counts while its container runs. One that has not started serves nobody, and gets the newest flags when it
does; one that is being deleted is no longer waited for. A container that is restarted is another agent: what the one
before had says nothing about it.

The address is the one in the pod's status, which the kubelet writes. The port is the pod author's choice, so an answer
is trusted with nothing but this agent's own digests, and what it says is never shown.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from wigwag.operator.injection.sources import GROUP
from wigwag.operator.names import AGENT, PROXY, ObjectName, parse_name
from wigwag.operator.reconcile.usage import MOST_SHARED, FlagUse, agent_sources, flag_of, read_pod, uses_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.kube.watch.decode import Key
    from wigwag.operator.injection.sources import AgentSource
    from wigwag.operator.reconcile.usage import RunningPod

AGENT_PORT, PROXY_PORT = 8014, 8016
"""The management ports of those that were told no other."""
_LARGEST_PORT = 65535


class AgentAddress(NamedTuple):
    """The process to ask. Equal ones are the same, as far as anybody can tell."""

    uid: str
    """Of its pod."""
    restarts: int
    address: str
    port: int


class AgentPod(Struct, frozen=True):
    """A running agent."""

    process: AgentAddress
    flags: tuple[ObjectName | None, ...]
    """The FeatureFlag of each source, in the order of `--sources`; None for one that comes from elsewhere."""
    proxied: frozenset[ObjectName] = frozenset()
    """Those of them that come from a proxy."""
    ready: bool = False
    """Whether the kubelet says so; one that has become ready again is worth a question."""


class ProxyPod(Struct, frozen=True):
    """A running proxy."""

    process: AgentAddress
    ready: bool = False


class ConsumingPod(NamedTuple):
    """What counts of a pod: the flags that its agent was told to use, and the agent or the proxy, while it runs."""

    uses: frozenset[FlagUse]
    agent: AgentPod | ProxyPod | None = None


_NOTHING = ConsumingPod(frozenset())


def consuming_pod(raw: bytes) -> ConsumingPod:
    """Decode what counts of a pod."""
    pod = read_pod(raw)
    if pod is None:
        return _NOTHING
    uses, agent = uses_of(pod), running_agent(pod)
    return ConsumingPod(uses, agent) if uses or agent else _NOTHING


def running_agent(pod: RunningPod) -> AgentPod | ProxyPod | None:
    """Return the agent or the proxy of a pod; None if there is none that runs, or an agent uses no FeatureFlag."""
    about, address = pod.metadata, pod.status.pod_ip
    arguments = {each.name: each.args or [] for each in pod.containers() if each.name in (AGENT, PROXY)}
    if not arguments or about.deletion_timestamp or not _is_address(address):
        return None
    for each in pod.container_statuses():
        if each.name in arguments and each.state.running is not None:
            given, usual = arguments[each.name], PROXY_PORT if each.name == PROXY else AGENT_PORT
            process = AgentAddress(about.uid, each.restart_count, address, _port(given, usual))
            if each.name == PROXY:
                return ProxyPod(process, each.ready)
            flags, proxied = _flags(tuple(given), about.namespace)
            return AgentPod(process, flags, proxied, each.ready) if any(flags) else None
    return None


@lru_cache(maxsize=MOST_SHARED)
def _flags(arguments: tuple[str, ...], namespace: str) -> tuple[tuple[ObjectName | None, ...], frozenset[ObjectName]]:
    """Return the flags of an agent, and those of them that are proxied: the same objects for all pods of a workload."""
    sources = agent_sources(list(arguments))
    flags = tuple(_flag(each, namespace) for each in sources)
    return flags, frozenset(flag for flag, each in zip(flags, sources, strict=True) if flag and _proxied(each))


def _is_address(text: str) -> bool:
    """Tell whether it is an address and no name: what is asked is a pod, and nothing that DNS makes of it."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


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
