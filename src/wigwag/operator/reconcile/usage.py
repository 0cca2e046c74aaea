"""Which FeatureFlags the agents of pods use, and how: by the API server, or from a ConfigMap.

A right or a ConfigMap has to be there before an agent starts, and to stay while an agent runs that uses it. So there
are two answers, and both count:

| asked | answers | which matters when |
|---|---|---|
| a workload | its sources, as they are now | its next pod is not there yet |
| a pod | the `--sources` of its agent | its source was changed or deleted since |

The hard case is a pod that somebody writes by hand, with sources that the webhook would not have given it. In its own
namespace that gives it nothing new, since who writes pods there can use all accounts and ConfigMaps. For flags of other
namespaces grants are checked again, so a grant that is withdrawn ends the use, too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct, field

from wigwag.operator.injection.known import refusal
from wigwag.operator.injection.merge import effective_source
from wigwag.operator.injection.permission import may_use, not_served
from wigwag.operator.injection.podflags import named_flags, with_flags
from wigwag.operator.injection.proxytrust import AGENT_DIRECTORY
from wigwag.operator.injection.sources import GROUP, AgentSource
from wigwag.operator.names import AGENT, ALLOW_KUBERNETES_SYNC, ObjectName, parse_name
from wigwag.operator.reconcile.workloads import DEFAULT_ACCOUNT
from wigwag.operator.resources.featureflagsource import FILE, FLAGD_PROXY, GRPC, KUBERNETES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.reconcile.workloads import Workload
    from wigwag.operator.resources.featureflagsource import FeatureFlagSource, FeatureFlagSourceSpec
    from wigwag.operator.settings import OperatorSettings

_OVER = ("Succeeded", "Failed")


class FlagUse(NamedTuple):
    """Pods of a service account use a FeatureFlag."""

    account: ObjectName
    provider: str
    """`kubernetes`, `file` or `flagd-proxy`."""
    flag: ObjectName


class _Container(Struct):
    name: str = ""
    args: list[str] | None = None


class _RunningMeta(Struct, rename="camel"):
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _RunningSpec(Struct, rename="camel"):
    service_account_name: str = ""
    init_containers: list[_Container] | None = None
    containers: list[_Container] | None = None


class _ContainerState(Struct):
    running: dict[str, Any] | None = None


class _ContainerStatus(Struct, rename="camel"):
    name: str = ""
    restart_count: int = 0
    ready: bool = False
    state: _ContainerState = field(default_factory=_ContainerState)


class _RunningStatus(Struct, rename="camel"):
    phase: str = ""
    pod_ip: str = field(default="", name="podIP")
    init_container_statuses: list[_ContainerStatus] | None = None
    container_statuses: list[_ContainerStatus] | None = None


class RunningPod(Struct):
    """A pod, as far as its agent is concerned."""

    metadata: _RunningMeta = field(default_factory=_RunningMeta)
    spec: _RunningSpec = field(default_factory=_RunningSpec)
    status: _RunningStatus = field(default_factory=_RunningStatus)

    def containers(self) -> Iterator[_Container]:
        """Yield all containers."""
        yield from self.spec.init_containers or ()
        yield from self.spec.containers or ()

    def container_statuses(self) -> Iterator[_ContainerStatus]:
        """Yield what the kubelet says about them."""
        yield from self.status.init_container_statuses or ()
        yield from self.status.container_statuses or ()


_decode_sources = msgspec.json.Decoder(list[AgentSource]).decode
_decode_pod = msgspec.json.Decoder(RunningPod).decode
MOST_SHARED = 10_000


@lru_cache(maxsize=MOST_SHARED)
def _shared(uses: frozenset[FlagUse]) -> frozenset[FlagUse]:
    """Return the same object for equal values, since the pods of a workload have equal uses."""
    return uses


def pod_uses(raw: bytes) -> frozenset[FlagUse]:
    """Decode what the agent of a pod was told to use; nothing if the pod has none, or has ended."""
    pod = read_pod(raw)
    return frozenset() if pod is None else uses_of(pod)


def read_pod(raw: bytes) -> RunningPod | None:
    """Decode a pod; None if it cannot be read, or has ended."""
    try:
        pod = _decode_pod(raw)
    except msgspec.ValidationError:
        return None
    return None if pod.status.phase in _OVER else pod


def uses_of(pod: RunningPod) -> frozenset[FlagUse]:
    """Return what the agent of a pod was told to use."""
    namespace = pod.metadata.namespace
    account = ObjectName(namespace, pod.spec.service_account_name or DEFAULT_ACCOUNT)
    reads_api = (pod.metadata.annotations or {}).get(ALLOW_KUBERNETES_SYNC) == "true"
    uses = (
        use
        for container in pod.containers()
        if container.name == AGENT
        for source in agent_sources(container.args or [])
        if (use := _use(source, account)) and (reads_api or use.provider != KUBERNETES)
    )
    return _shared(frozenset(uses))


def agent_sources(arguments: list[str]) -> list[AgentSource]:
    """Read the `--sources` of an agent."""
    try:
        return _decode_sources(arguments[arguments.index("--sources") + 1])
    except (ValueError, IndexError, RecursionError):  # no such argument, or not ours
        return []


def _use(source: AgentSource, account: ObjectName) -> FlagUse | None:
    """Return which FeatureFlag a source of an agent means, and how it gets it; None if it means none."""
    if source.provider == GRPC and source.token_file.startswith(f"{AGENT_DIRECTORY}/"):
        return FlagUse(account, FLAGD_PROXY, parse_name(source.selector.removeprefix(f"{GROUP}/"), account.namespace))
    flag = flag_of(source, account.namespace)
    return None if flag is None else FlagUse(account, source.provider, flag)


def flag_of(source: AgentSource, namespace: str) -> ObjectName | None:
    """Return the FeatureFlag of a source that does not come by the proxy."""
    if source.provider == KUBERNETES:
        return parse_name(source.uri, namespace)
    return _mounted(source) if source.provider == FILE else None


def _mounted(source: AgentSource) -> ObjectName | None:
    """Return the FeatureFlag of a file. No name of an object has an underscore, so the path tells which."""
    directory = source.uri.rpartition("/")[0].rpartition("/")[2]
    flag = ObjectName(*directory.partition("_")[::2])
    return flag if source.uri == f"{flag.directory}/{flag.file}" else None


def workload_uses(workload: Workload, known: KnownObjects, settings: OperatorSettings) -> frozenset[FlagUse]:
    """Return what the agent of a new pod of a workload would be told to use."""
    spec = agent_spec(workload, usable_sources(workload, known, settings), settings)
    return frozenset(
        FlagUse(workload.account, provider, name) for provider, name in named_flags(spec, workload.name.namespace)
    )


def agent_spec(
    workload: Workload, sources: Mapping[ObjectName, FeatureFlagSource], settings: OperatorSettings
) -> FeatureFlagSourceSpec:
    """Return the configuration of the agents in new pods of a workload, which may use these sources."""
    spec = effective_source(settings.sidecar, [each.spec for each in sources.values()])
    return spec if workload.deleting else with_flags(spec, workload.flags, workload.name.namespace)


def usable_sources(
    workload: Workload, known: KnownObjects, settings: OperatorSettings
) -> dict[ObjectName, FeatureFlagSource]:
    """Return the sources that a workload names: those that exist, and that it may use."""
    if workload.mode != "sidecar" or workload.deleting:
        return {}
    named = {name: found for name in workload.named if (found := known.feature_flag_source(name))}
    namespace = workload.name.namespace
    return {name: found for name, found in named.items() if may_use(name, found, namespace, known, settings)}


def permitted(uses: Iterable[FlagUse], known: KnownObjects, settings: OperatorSettings) -> Iterator[FlagUse]:
    """Yield the uses that the policy and the grants of the flags allow."""
    policy = settings.options.cross_namespace
    for use in uses:
        about, unserved = known.feature_flag(use.flag), not_served("FeatureFlag", use.flag, settings)
        if not (unserved or refusal("FeatureFlag", use.flag, about, use.account.namespace, policy)):
            yield use
