"""Flagd: an agent that serves many workloads, as a Deployment with a Service and, if wanted, routes to it.

Beyond the original: where its pods are scheduled, their labels and annotations, image pull policy, resources and
security contexts, and GRPCRoutes beside HTTPRoutes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from wigwag.operator.resources.kubernetes import ObjectMeta, ObjectStatus, Port, PullPolicy, ResourceRequirements
from wigwag.operator.resources.schema import declared

_A_SOURCE = declared(
    rules={
        "has(self.featureFlagSource) || has(self.clusterFeatureFlagSource)": (
            "it names no source; set featureFlagSource, clusterFeatureFlagSource, or both"
        )
    }
)


class IngressTLS(Struct, frozen=True, rename="camel"):
    """The certificate of some hosts."""

    hosts: list[str] = []
    secret_name: str = ""


class IngressSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """An Ingress to the agent; empty paths are those of the services."""

    enabled: Annotated[bool, declared(default=False)] = False
    hosts: Annotated[list[str], declared('"" is a rule for every host.')]
    annotations: dict[str, str] = {}
    tls: list[IngressTLS] = []
    ingress_class_name: str | None = None
    path_type: str = ""
    flagd_path: str = ""
    ofrep_path: str = ""
    sync_path: str = ""


class ParentReference(Struct, frozen=True, kw_only=True, rename="camel"):
    """The Gateway that a route belongs to."""

    group: Annotated[str, declared(default="gateway.networking.k8s.io")] = "gateway.networking.k8s.io"
    kind: Annotated[str, declared(default="Gateway")] = "Gateway"
    namespace: str | None = None
    name: str
    section_name: str | None = None
    port: Port | None = None


class GrpcRoutes(Struct, frozen=True, kw_only=True):
    """A GRPCRoute for evaluation and sync."""

    enabled: Annotated[bool, declared(default=False)] = False
    hosts: Annotated[list[str], declared("Those of the HTTPRoute, if there are none.")] = []


class GatewayRoutes(Struct, frozen=True, kw_only=True, rename="camel"):
    """Routes of the Gateway API to the agent."""

    enabled: Annotated[bool, declared(default=False)] = False
    parent_refs: list[ParentReference]
    hosts: list[str] = []
    annotations: dict[str, str] = {}
    grpc: GrpcRoutes | None = None


class FlagdSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent that serves many workloads."""

    feature_flag_source: Annotated[str, declared("A FeatureFlagSource of the same namespace.")] = ""
    cluster_feature_flag_source: Annotated[
        str, declared("A ClusterFeatureFlagSource; the FeatureFlagSource wins where both say something.")
    ] = ""
    replicas: Annotated[int, Meta(ge=0), declared("How many pods.", default=1, format="int32")] = 1
    service_type: Annotated[
        Literal["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"],
        declared("Of the Service.", default="ClusterIP"),
    ] = "ClusterIP"
    service_account_name: Annotated[str, declared("Of the pods.")] = ""
    ingress: IngressSpec | None = None
    gateway_api_routes: GatewayRoutes | None = None
    labels: Annotated[dict[str, str], declared("Of the Deployment and its pods.")] = {}
    annotations: Annotated[dict[str, str], declared("Of the Deployment and its pods.")] = {}
    node_selector: Annotated[dict[str, str], declared("As in a pod.")] = {}
    affinity: Annotated[dict[str, Any] | None, declared("As in a pod.")] = None
    tolerations: Annotated[list[dict[str, Any]], declared("As in a pod.")] = []
    topology_spread_constraints: Annotated[list[dict[str, Any]], declared("As in a pod.")] = []
    priority_class_name: Annotated[str, declared("As in a pod.")] = ""
    image_pull_policy: Annotated[PullPolicy, declared("Of the agent's image; that of the source, if it is empty.")] = ""
    resources: ResourceRequirements = ResourceRequirements()
    security_context: Annotated[dict[str, Any] | None, declared("Of the agent's container.")] = None
    pod_security_context: Annotated[dict[str, Any] | None, declared("Of the pods.")] = None


class FlagdStatus(ObjectStatus, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How the agent is doing."""

    replicas: int = 0
    ready_replicas: int = 0


class Flagd(Struct, frozen=True, kw_only=True):
    """An object of the kind Flagd."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[FlagdSpec, _A_SOURCE]
    status: FlagdStatus = FlagdStatus()
