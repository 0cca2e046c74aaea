"""The Deployment and the Service of a `Flagd`.

Where the process listens is said once, in `ListenPorts`: the arguments, the container's ports, the probes and the
Service's target ports all follow. The hard case is a FeatureFlagSource with ports of its own. The original shows them
in the container's environment, while the ports of container and Service are the operator's; its tests compare both.
Arguments win over the environment, so the process is told the operator's ports by arguments, and can be reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from wigwag.operator.injection.agent import AgentParts, agent_container
from wigwag.operator.injection.merge import effective_source
from wigwag.operator.injection.proxytrust import AGENT_DIRECTORY, VOLUME, agent_volume
from wigwag.operator.injection.sources import credential_volumes
from wigwag.operator.names import ALLOW_KUBERNETES_SYNC, config_map_name, volume_name
from wigwag.operator.reconcile.objects import APP, container_port, pull_secrets, service_port
from wigwag.operator.resources.kubernetes import ResourceRequirements
from wigwag.operator.resources.quantity import canonical_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wigwag.operator.injection.sources import Needs
    from wigwag.operator.resources.featureflagsource import FeatureFlagSourceSpec
    from wigwag.operator.resources.flagd import Flagd, FlagdSpec
    from wigwag.operator.settings import FlagdSettings, OperatorSettings

Json: TypeAlias = Any
TOOLS = ("kubectl.kubernetes.io/", "argocd.argoproj.io/", "helm.sh/", "meta.helm.sh/", "kustomize.toolkit.fluxcd.io/")
"""Whose annotations say that they manage the object: a Service with a copy would be pruned by them."""


class ListenPorts(NamedTuple):
    """The ports that an agent listens on."""

    management: int
    flagd: int
    ofrep: int
    sync: int


def listen_ports(spec: FeatureFlagSourceSpec, settings: FlagdSettings) -> ListenPorts:
    """Return where the agent listens: on the operator's ports; OFREP on that of the source, as in the original."""
    ofrep = spec.ofrep_port or settings.ofrep_port
    return ListenPorts(settings.management_port, settings.port, ofrep, settings.sync_port)


def standalone_source(
    flagd: FlagdSpec, sources: Sequence[FeatureFlagSourceSpec], settings: OperatorSettings
) -> FeatureFlagSourceSpec:
    """Return what the operator's defaults, the sources and the `Flagd` say together.

    Variables keep their order, which only a merge of several sources reverses. There is no Unix socket: nobody could
    reach it, and the agent would not listen on its port.
    """
    merged = effective_source(settings.sidecar, sources)
    return replace(
        merged,
        env_vars=sources[0].env_vars if len(sources) == 1 else merged.env_vars,
        socket_path="",
        debug_logging=merged.debug_logging or settings.flagd.debug_logging,
        image_pull_policy=flagd.image_pull_policy or merged.image_pull_policy,
        security_context=merged.security_context if flagd.security_context is None else flagd.security_context,
        resources=ResourceRequirements(
            flagd.resources.requests or merged.resources.requests, flagd.resources.limits or merged.resources.limits
        ),
    )


def deployment_spec(
    flagd: Flagd,
    source: FeatureFlagSourceSpec,
    needs: Sequence[Needs],
    labels: Mapping[str, str],
    settings: OperatorSettings,
) -> dict[str, Json]:
    """Return the spec of the Deployment; `source` is from `standalone_source`."""
    namespace = flagd.metadata.namespace
    flags = list(dict.fromkeys(each.mount for each in needs if each.mount))
    volumes: dict[str, dict[str, Json]] = {
        flag.directory: {"name": volume_name(flag, namespace), "configMap": {"name": config_map_name(flag, namespace)}}
        for flag in flags
    } | credential_volumes(needs)
    if any(each.proxy_access for each in needs):
        volumes[AGENT_DIRECTORY] = {"name": VOLUME, **agent_volume(settings)}
    parts = AgentParts(
        image=f"{settings.flagd.image}:{settings.flagd.tag}",
        sources=[each.source for each in needs],
        resources=settings.options.sidecar_resources,
        mounts={directory: volume["name"] for directory, volume in volumes.items()},
        secrets=[each.variable for each in needs if each.variable],
    )
    pod = {
        "containers": [_container(source, parts, listen_ports(source, settings.flagd))],
        "enableServiceLinks": False,  # a Service named `flagd` would set FLAGD_PORT
        **pull_secrets(settings.options),
        **({"volumes": list(volumes.values())} if volumes else {}),
        **_scheduling(flagd.spec),
    }
    annotations = workload_annotations(flagd.spec, needs, settings)
    metadata = {"labels": dict(labels), **({"annotations": annotations} if annotations else {})}
    selector = {"matchLabels": {APP: flagd.metadata.name}}
    return {"replicas": flagd.spec.replicas, "selector": selector, "template": {"metadata": metadata, "spec": pod}}


def workload_annotations(flagd: FlagdSpec, needs: Sequence[Needs], settings: OperatorSettings) -> dict[str, str]:
    """Return the annotations of the Deployment and of its pods."""
    reads_api = {ALLOW_KUBERNETES_SYNC: "true"} if any(each.reads_api for each in needs) else {}
    return {**settings.options.annotations, **flagd.annotations, **reads_api}


def _container(source: FeatureFlagSourceSpec, parts: AgentParts, ports: ListenPorts) -> dict[str, Json]:
    listening = replace(source, management_port=ports.management, port=ports.flagd, ofrep_port=ports.ofrep)
    container = agent_container(listening, parts)
    return {
        **container,
        "args": [*container["args"], "--sync-port", str(ports.sync)],
        "ports": [container_port(*each) for each in ports._asdict().items()],
        "env": agent_container(source, parts)["env"],
        "resources": {block: _canonical(amounts) for block, amounts in container["resources"].items()},
    }


def _canonical(amounts: Mapping[str, str | int]) -> dict[str, str]:
    return {name: canonical_quantity(amount) for name, amount in amounts.items()}


def _scheduling(flagd: FlagdSpec) -> dict[str, Json]:
    """Return the members of the pod's spec that are handed on as they are; empty ones are left out.

    The service account is always there: the server keeps a copy of its name, and restores it if it is left out.
    """
    members = {
        "serviceAccountName": flagd.service_account_name or "default",
        "nodeSelector": flagd.node_selector,
        "affinity": flagd.affinity,
        "tolerations": flagd.tolerations,
        "topologySpreadConstraints": flagd.topology_spread_constraints,
        "priorityClassName": flagd.priority_class_name,
        "securityContext": flagd.pod_security_context,
    }
    return {name: value for name, value in members.items() if value}


def service_spec(flagd: Flagd, ports: ListenPorts, settings: FlagdSettings) -> dict[str, Json]:
    """Return the spec of the Service. Its ports are the operator's; they lead to where the process listens."""
    return {
        "type": flagd.spec.service_type,
        "selector": {APP: flagd.metadata.name},
        "ports": [
            service_port("flagd", settings.port, ports.flagd, "grpc"),
            service_port("ofrep", settings.ofrep_port, ports.ofrep, "http"),
            service_port("sync", settings.sync_port, ports.sync, "grpc"),
            service_port("metrics", settings.management_port, ports.management, "http"),
        ],
    }


def service_annotations(flagd: Flagd) -> dict[str, str]:
    """Return the annotations that the Service takes over from the object."""
    given = flagd.metadata.annotations or {}
    return {name: value for name, value in given.items() if not name.startswith(TOOLS)}
