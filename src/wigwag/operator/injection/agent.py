"""The agent's container, for the upstream flagd image and ours alike.

`--sync-provider-args` is not passed on: neither flagd since 0.15 nor wigwag has that option, so the container would
exit. With a startup probe, the workload's containers start when flags are loaded (decision 9); with a Unix socket, the
directory of the socket is a volume that they share.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from wigwag.operator.injection.environment import agent_variables
from wigwag.operator.names import AGENT, SOCKET_VOLUME
from wigwag.operator.resources.kubernetes import EnvVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wigwag.operator.injection.sources import AgentSource
    from wigwag.operator.resources.featureflagsource import FeatureFlagSourceSpec
    from wigwag.operator.resources.kubernetes import ResourceRequirements

Json: TypeAlias = Any
USER = 65532
"""The user of both images."""
SECURITY_CONTEXT: Json = {
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "runAsUser": USER,
    "runAsGroup": USER,
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "seccompProfile": {"type": "RuntimeDefault"},
}
STARTUP_SECONDS = 300
"""How long an agent may take to load its flags before the kubelet restarts it."""
_SOCKET_MODE = EnvVar("FLAGD_SOCKET_MODE", "0666")
"""Containers of a pod run as different users, and nobody else gets at the volume. flagd ignores the variable."""


@dataclass(frozen=True, kw_only=True)
class AgentParts:
    """What an agent's container is made of, beside its spec."""

    image: str
    sources: Sequence[AgentSource]
    resources: ResourceRequirements
    mounts: Mapping[str, str]
    """Directory to the volume that is mounted there."""
    secrets: Sequence[EnvVar] = ()
    """Further variables, of the agent only."""


def agent_container(spec: FeatureFlagSourceSpec, parts: AgentParts) -> dict[str, Json]:
    """Return the container; for a `Flagd` object as it is, in a pod as a native sidecar."""
    socket = [_SOCKET_MODE] if spec.socket_path else []
    container = {
        "name": AGENT,
        "image": parts.image,
        "args": arguments(spec, parts.sources),
        "imagePullPolicy": spec.image_pull_policy or "Always",
        "ports": [_port("management", spec.management_port), _port("flagd", spec.port)],
        "env": msgspec.to_builtins([*agent_variables(spec), *parts.secrets, *socket]),
        "resources": _resources(spec.resources, parts.resources),
        "securityContext": SECURITY_CONTEXT if spec.security_context is None else spec.security_context,
        **_probes(spec),
    }
    mounts = [{"name": volume, "mountPath": directory} for directory, volume in parts.mounts.items()]
    if directory := socket_directory(spec):
        mounts.append({"name": SOCKET_VOLUME, "mountPath": directory})
    return {**container, "volumeMounts": mounts} if mounts else container


def native_sidecar(container: Mapping[str, Json]) -> dict[str, Json]:
    """Return a container as an init container that the kubelet keeps running."""
    return {**container, "restartPolicy": "Always"}


def arguments(spec: FeatureFlagSourceSpec, sources: Sequence[AgentSource]) -> list[str]:
    """Return the command line, in the order of the original."""
    given = ["start", "--management-port", str(spec.management_port), "--port", str(spec.port)]
    if sources:
        given += ["--sources", msgspec.json.encode(sources).decode()]
    if spec.debug_logging:
        given.append("--debug")
    if spec.otel_collector_uri:
        given += ["--metrics-exporter", "otel", "--otel-collector-uri", spec.otel_collector_uri]
    for key, value in sorted(spec.context_values.items()):
        given += ["--context-value", f"{key}={value}"]
    for header, key in sorted(spec.header_to_context_mappings.items()):
        given += ["--context-from-header", f"{header}={key}"]
    for origin in spec.cors:
        given += ["--cors-origin", origin]
    if spec.ofrep_port:
        given += ["--ofrep-port", str(spec.ofrep_port)]
    if spec.socket_path:
        given += ["--socket-path", spec.socket_path]
    return given


def socket_directory(spec: FeatureFlagSourceSpec) -> str:
    """Return the directory of the Unix socket, which is to be shared; empty if there is none that can be."""
    directory = posixpath.dirname(posixpath.normpath(spec.socket_path))
    return directory if directory.startswith("/") and directory.strip("/") else ""


def _port(name: str, number: int) -> dict[str, Json]:
    return {"name": name, "containerPort": number}


def _resources(given: ResourceRequirements, default: ResourceRequirements) -> dict[str, Json]:
    """Return requests and limits; each block of the spec replaces the whole block."""
    return {"requests": given.requests or default.requests, "limits": given.limits or default.limits}


def _probes(spec: FeatureFlagSourceSpec) -> dict[str, Json]:
    if not spec.probes_enabled:
        return {}
    live, ready = ({"httpGet": {"path": path, "port": spec.management_port}} for path in ("/healthz", "/readyz"))
    return {
        "livenessProbe": {**live, "initialDelaySeconds": 5},
        "readinessProbe": {**ready, "initialDelaySeconds": 5},
        "startupProbe": {**ready, "periodSeconds": 1, "failureThreshold": STARTUP_SECONDS},
    }
