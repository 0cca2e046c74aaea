"""Decides what becomes of a pod. The order of the checks, the codes and the messages are those of the original.

| condition | answer |
|---|---|
| not a pod | 400 |
| no annotation, an update, a mirror pod; an agent in it that reads its annotations | allowed, unchanged |
| no owner; neither annotation that names something; too many names; flags in it that are wrong | 403 |
| an object that is named does not exist in the pod's namespace | 404 |
| a shared source that does not allow the pod's namespace | 403 |
| an object of another namespace without a grant; a ConfigMap of the user's; the proxy is not ready | 403 |
| a FeatureFlag does not exist, an unknown provider, an object that does not fit its schema | 500 |
| all is well | allowed, with a patch |

A refusal is an answer: `failurePolicy` does not apply, and the pod's controller tries again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from wigwag.operator.directset.barepod import check_pod_flags, has_own_agent
from wigwag.operator.directset.remarks import Configured, agent_remarks, config_of, in_process_remarks
from wigwag.operator.injection.agent import AgentParts, agent_container, arguments, native_sidecar, socket_directory
from wigwag.operator.injection.environment import agent_variables, in_process_variables, workload_variables
from wigwag.operator.injection.known import refusal
from wigwag.operator.injection.merge import effective_in_process, effective_source
from wigwag.operator.injection.patch import covers, difference
from wigwag.operator.injection.permission import not_served, source_kind, source_refusal
from wigwag.operator.injection.pod import (
    AdmittedPod,
    with_annotation,
    with_init_container,
    with_label,
    with_mount,
    with_variables,
    with_volumes,
)
from wigwag.operator.injection.podflags import pod_flags, with_flags
from wigwag.operator.injection.proxytrust import AGENT_DIRECTORY, VOLUME, agent_volume
from wigwag.operator.injection.sources import GROUP, SourceResolver, credential_volumes
from wigwag.operator.injection.verdict import BAD_REQUEST, FORBIDDEN, INTERNAL, NOT_FOUND, Allowed, Denied
from wigwag.operator.names import (
    ALLOW_KUBERNETES_SYNC,
    CARRIER,
    FEATURE_FLAG_SOURCE,
    IN_PROCESS_CONFIGURATION,
    INLINE_FLAGS,
    MIRROR,
    REMARKS,
    SOCKET_VOLUME,
    ObjectName,
    config_map_name,
    mode_of,
    parse_names,
    source_names,
    unique_volume_name,
    volume_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.injection.podflags import PodFlags
    from wigwag.operator.injection.sources import Needs
    from wigwag.operator.injection.verdict import Verdict
    from wigwag.operator.resources.featureflagsource import FeatureFlagSource, FeatureFlagSourceSpec
    from wigwag.operator.resources.inprocessconfiguration import InProcessConfiguration
    from wigwag.operator.resources.unreadable import UnreadableObject
    from wigwag.operator.settings import OperatorSettings

Json: TypeAlias = Any
T = TypeVar("T", bound="FeatureFlagSource | InProcessConfiguration")
MOST_NAMES = 50
"""Objects that one pod may name."""


@dataclass(frozen=True, kw_only=True)
class PodRequest:
    """A request to admit a pod."""

    object: Json
    namespace: str
    operation: str = "CREATE"
    now: float = 0.0
    """Unix seconds."""


def admit_pod(request: PodRequest, known: KnownObjects, settings: OperatorSettings) -> Verdict:
    """Decide about a pod."""
    try:
        pod = msgspec.convert(request.object, AdmittedPod)
    except msgspec.ValidationError as error:
        return Denied(BAD_REQUEST, f"the object is not a Pod: {error}")
    annotations = pod.metadata.annotations or {}
    mode = mode_of(annotations)
    if mode == "disabled":
        return Allowed("OpenFeature is disabled")
    if request.operation != "CREATE" or MIRROR in annotations:
        return Allowed("only new pods are changed, and not those that mirror static ones")
    if not pod.metadata.owner_references and not settings.options.allow_orphan_pods:
        return Denied(FORBIDDEN, "static or orphaned pods cannot be mutated")
    if has_own_agent(annotations, pod.spec):
        return Allowed("the pod has an agent that reads its annotations")
    injection = _Injection(request, pod, request.namespace or pod.metadata.namespace, known, settings)
    if mode == "sidecar":
        return injection.sidecar(source_names(annotations, injection.namespace))
    if mode == "in-process":
        return injection.in_process(annotations[IN_PROCESS_CONFIGURATION])
    needed = f"{FEATURE_FLAG_SOURCE} or {IN_PROCESS_CONFIGURATION}"
    return Denied(FORBIDDEN, f"OpenFeature is enabled, but the pod has neither of the annotations {needed}; add one")


@dataclass(frozen=True)
class _Injection:
    """Injection into one pod."""

    request: PodRequest
    pod: AdmittedPod
    namespace: str
    known: KnownObjects = field(repr=False)
    settings: OperatorSettings

    def sidecar(self, names: Sequence[ObjectName]) -> Verdict:
        """Add the agent, and tell the pod's containers where it is."""
        known = self.known

        def refuses(name: ObjectName, source: FeatureFlagSource | None) -> Denied | None:
            return source_refusal(name, source, self.namespace, known, self.settings)

        get, unreadable = known.feature_flag_source, known.unreadable_source
        objects = self._named("FeatureFlagSource", names, get, unreadable, refuses)
        if isinstance(objects, Denied):
            return objects
        flags = pod_flags(self._annotations, self.namespace, self.pod.metadata.name)
        carried = self._carried(flags)
        if isinstance(carried, Denied):
            return carried
        spec = with_flags(
            effective_source(self.settings.sidecar, [each.spec for each in objects]), flags, self.namespace
        )
        resolver = SourceResolver(
            namespace=self.namespace,
            known=self.known,
            settings=self.settings,
            now=self.request.now,
            awaited=flags.awaited,
        )
        needs = resolver.resolve(spec)
        if isinstance(needs, Denied):
            return needs
        pod = self._with_agent(spec, needs)
        if flags.names or REMARKS in self._annotations:
            about = Configured(self.namespace, names, flags, spec)
            config = config_of(arguments(spec, [each.source for each in needs]))
            pod = with_annotation(pod, REMARKS, agent_remarks(about, config))
        return self._allowed(pod, (*carried.warnings, *self._warnings(spec, needs)))

    @property
    def _annotations(self) -> dict[str, str]:
        return self.pod.metadata.annotations or {}

    def _carried(self, flags: PodFlags) -> Verdict:
        """Decide about the flags that annotations name, or hold."""
        if flags.problem:
            return Denied(FORBIDDEN, flags.problem)
        if INLINE_FLAGS not in self._annotations:
            return Allowed()
        return check_pod_flags(self.pod, self.namespace, self.known, self.settings)

    def in_process(self, names: str) -> Verdict:
        """Tell the pod's containers where their flags are."""
        kind, policy = "InProcessConfiguration", self.settings.options.cross_namespace

        def refuses(name: ObjectName, live: InProcessConfiguration | None) -> Denied | None:
            about = None if live is None else live.metadata
            return not_served(kind, name, self.settings) or refusal(kind, name, about, self.namespace, policy)

        get, unreadable = self.known.in_process_configuration, self.known.unreadable_configuration
        objects = self._named(kind, parse_names(names, self.namespace), get, unreadable, refuses)
        if isinstance(objects, Denied):
            return objects
        spec = effective_in_process(self.settings.in_process, [each.spec for each in objects])
        pod = with_variables(self.request.object, in_process_variables(spec))
        if REMARKS in self._annotations:
            pod = with_annotation(pod, REMARKS, in_process_remarks(self.namespace, parse_names(names, self.namespace)))
        return self._allowed(pod, ())

    def _named(
        self,
        kind: str,
        names: Sequence[ObjectName],
        get: Callable[[ObjectName], T | None],
        unreadable: Callable[[ObjectName], UnreadableObject | None],
        refuses: Callable[[ObjectName, T | None], Denied | None],
    ) -> list[T] | Denied:
        """Return the objects that the annotations name, in their order."""
        if len(names) > MOST_NAMES:
            return Denied(FORBIDDEN, f"the pod names {len(names)} {kind}s; name at most {MOST_NAMES}")
        objects = []
        for name in names:
            live, shown = get(name), kind if name.namespace else source_kind(name).kind
            if refused := refuses(name, live):
                return refused
            if other := unreadable(name):
                return Denied(INTERNAL, f"{shown} {name} does not fit its schema: {other.problem}; correct it")
            if live is None:
                reason = f'{shown.lower()}s.{GROUP} "{name.name}" not found'
                where = f" in namespace {name.namespace}" if name.namespace else ""
                return Denied(NOT_FOUND, f"{reason}{where}; the pod waits for it: create it, or correct the annotation")
            objects.append(live)
        return objects

    def _with_agent(self, spec: FeatureFlagSourceSpec, needs: Sequence[Needs]) -> Json:
        flags = list(dict.fromkeys(each.mount for each in needs if each.mount))
        volumes = {flag.directory: self._volume(flag) for flag in flags} | credential_volumes(needs)
        if any(each.proxy_access for each in needs):
            unique = unique_volume_name(ObjectName(self.namespace, VOLUME))
            volumes[AGENT_DIRECTORY] = self._named_volume(VOLUME, unique, agent_volume(self.settings))
        parts = AgentParts(
            image=self.settings.sidecar.reference,
            sources=[each.source for each in needs],
            resources=self.settings.options.sidecar_resources,
            mounts={directory: volume["name"] for directory, volume in volumes.items()},
            secrets=[each.variable for each in needs if each.variable],
        )
        pod = with_volumes(self.request.object, volumes.values())
        pod = with_init_container(pod, native_sidecar(agent_container(spec, parts)))
        share = self.settings.options.share_credentials
        pod = with_variables(pod, workload_variables(agent_variables(spec), share_credentials=share))
        if directory := socket_directory(spec):
            pod = with_volumes(pod, [{"name": SOCKET_VOLUME, "emptyDir": {}}])
            pod = with_mount(pod, directory, SOCKET_VOLUME)
        if INLINE_FLAGS in self._annotations:
            pod = with_label(pod, CARRIER, "true")
        reads_api = any(each.reads_api for each in needs)
        return with_annotation(pod, ALLOW_KUBERNETES_SYNC, "true") if reads_api else pod

    def _volume(self, flag: ObjectName) -> dict[str, Json]:
        """Return the volume with the flags of a `file` source, under a name that no other volume of the pod has."""
        content = {"configMap": {"name": config_map_name(flag, self.namespace)}}
        return self._named_volume(volume_name(flag, self.namespace), unique_volume_name(flag), content)

    def _named_volume(self, name: str, unique: str, content: dict[str, Json]) -> dict[str, Json]:
        present = next((each for each in self.pod.spec.volumes or [] if each.get("name") == name), None)
        if present is not None and not covers(present, content):
            name = unique
        return {"name": name, **content}

    def _warnings(self, spec: FeatureFlagSourceSpec, needs: Sequence[Needs]) -> tuple[str, ...]:
        warnings = [each.warning for each in needs if each.warning]
        if spec.sync_provider_args:
            warnings.append("syncProviderArgs are ignored: agents have no such option")
        if spec.socket_path and not socket_directory(spec):
            warnings.append(f"socketPath {spec.socket_path} is not shared; write an absolute path below a directory")
        if self.pod.spec.automount_service_account_token is False and any(each.reads_api for each in needs):
            warnings.append("automountServiceAccountToken is off, so the agent cannot read FeatureFlags; turn it on")
        if self.pod.spec.host_network:
            ports = f"{spec.management_port} and {spec.port}"
            warnings.append(
                f"the pod uses the host's network, so the agent's ports {ports} have to be free on its node"
            )
        return tuple(warnings)

    def _allowed(self, pod: Json, warnings: tuple[str, ...]) -> Allowed:
        return Allowed(patch=tuple(difference(self.request.object, pod)), warnings=warnings)
