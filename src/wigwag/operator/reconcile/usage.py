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
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct, field

from wigwag.operator.injection.known import refusal
from wigwag.operator.injection.merge import effective_source
from wigwag.operator.injection.proxytrust import AGENT_DIRECTORY, is_authenticated
from wigwag.operator.injection.sources import GROUP, AgentSource
from wigwag.operator.names import AGENT, ALLOW_KUBERNETES_SYNC, ObjectName, parse_name
from wigwag.operator.reconcile.workloads import DEFAULT_ACCOUNT
from wigwag.operator.resources.featureflagsource import FILE, FLAGD_PROXY, GRPC, KUBERNETES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.reconcile.workloads import Workload
    from wigwag.operator.resources.featureflagsource import FeatureFlagSource
    from wigwag.operator.settings import OperatorSettings

_OVER = ("Succeeded", "Failed")


class FlagUse(NamedTuple):
    """Pods of a service account use a FeatureFlag."""

    account: ObjectName
    provider: str
    """`kubernetes`, `file`, or `flagd-proxy` where the proxy wants a token."""
    flag: ObjectName


class _Container(Struct):
    name: str = ""
    args: list[str] | None = None


class _RunningMeta(Struct):
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _RunningSpec(Struct, rename="camel"):
    service_account_name: str = ""
    init_containers: list[_Container] | None = None
    containers: list[_Container] | None = None


class _Phase(Struct):
    phase: str = ""


class _RunningPod(Struct):
    metadata: _RunningMeta = field(default_factory=_RunningMeta)
    spec: _RunningSpec = field(default_factory=_RunningSpec)
    status: _Phase = field(default_factory=_Phase)


_decode_sources = msgspec.json.Decoder(list[AgentSource]).decode
_decode_pod = msgspec.json.Decoder(_RunningPod).decode
MOST_SHARED = 10_000


@lru_cache(maxsize=MOST_SHARED)
def _shared(uses: frozenset[FlagUse]) -> frozenset[FlagUse]:
    """Return the same object for equal values, since the pods of a workload have equal uses."""
    return uses


def pod_uses(raw: bytes) -> frozenset[FlagUse]:
    """Decode what the agent of a pod was told to use; nothing if the pod has none, or has ended."""
    try:
        pod = _decode_pod(raw)
    except msgspec.ValidationError:
        return frozenset()
    if pod.status.phase in _OVER:
        return frozenset()
    namespace = pod.metadata.namespace
    account = ObjectName(namespace, pod.spec.service_account_name or DEFAULT_ACCOUNT)
    reads_api = (pod.metadata.annotations or {}).get(ALLOW_KUBERNETES_SYNC) == "true"
    uses = (
        use
        for container in [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
        if container.name == AGENT
        for source in _sources(container.args or [])
        if (use := _use(source, account)) and (reads_api or use.provider != KUBERNETES)
    )
    return _shared(frozenset(uses))


def _sources(arguments: list[str]) -> list[AgentSource]:
    try:
        return _decode_sources(arguments[arguments.index("--sources") + 1])
    except (ValueError, IndexError, RecursionError):  # no such argument, or not ours
        return []


def _use(source: AgentSource, account: ObjectName) -> FlagUse | None:
    """Return which FeatureFlag a source of an agent means; None if it means none."""
    if source.provider == KUBERNETES:
        return FlagUse(account, KUBERNETES, parse_name(source.uri, account.namespace))
    if source.provider == GRPC and source.token_file.startswith(f"{AGENT_DIRECTORY}/"):
        return FlagUse(account, FLAGD_PROXY, parse_name(source.selector.removeprefix(f"{GROUP}/"), account.namespace))
    if source.provider == FILE and (flag := _mounted(source)):
        return FlagUse(account, FILE, flag)
    return None


def _mounted(source: AgentSource) -> ObjectName | None:
    """Return the FeatureFlag of a file. No name of an object has an underscore, so the path tells which."""
    directory = source.uri.rpartition("/")[0].rpartition("/")[2]
    flag = ObjectName(*directory.partition("_")[::2])
    return flag if source.uri == f"{flag.directory}/{flag.file}" else None


def workload_uses(workload: Workload, known: KnownObjects, settings: OperatorSettings) -> frozenset[FlagUse]:
    """Return what the agent of a new pod of a workload would be told to use."""
    sources = usable_sources(workload, known, settings)
    spec = effective_source(settings.sidecar, [each.spec for each in sources.values()])
    used = ((entry.provider or spec.default_sync_provider, entry.source) for entry in spec.sources)
    namespace = workload.name.namespace
    return frozenset(
        FlagUse(workload.account, provider, parse_name(name, namespace))
        for provider, name in used
        if provider in (KUBERNETES, FILE) or (provider == FLAGD_PROXY and is_authenticated(settings))
    )


def usable_sources(
    workload: Workload, known: KnownObjects, settings: OperatorSettings
) -> dict[ObjectName, FeatureFlagSource]:
    """Return the FeatureFlagSources that a workload names: those that exist, and that it may use."""
    if workload.mode != "sidecar" or workload.deleting:
        return {}
    policy, namespace = settings.options.cross_namespace, workload.name.namespace
    named = {name: found for name in workload.named if (found := known.feature_flag_source(name))}
    return {
        name: found
        for name, found in named.items()
        if not refusal("FeatureFlagSource", name, found.metadata, namespace, policy)
    }


def permitted(uses: Iterable[FlagUse], known: KnownObjects, settings: OperatorSettings) -> Iterator[FlagUse]:
    """Yield the uses that the policy and the grants of the flags allow."""
    policy = settings.options.cross_namespace
    for use in uses:
        about = known.feature_flag(use.flag)
        if not refusal("FeatureFlag", use.flag, about, use.account.namespace, policy):
            yield use
