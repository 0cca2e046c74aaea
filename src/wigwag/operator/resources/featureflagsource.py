"""FeatureFlagSource: where an agent takes its flags from, and how it serves them.

A member that an object does not have is empty here (0, "", None), because merging has to tell that from a value. The
defaults in the schema are those of the original; the API server adds them, so objects from it always have them.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from wigwag.operator.resources.kubernetes import (
    EnvVar,
    ObjectMeta,
    ObjectStatus,
    Port,
    PullPolicy,
    ResourceRequirements,
    SecretKey,
)
from wigwag.operator.resources.schema import declared

KUBERNETES, FILE, HTTP, GRPC, FLAGD_PROXY = "kubernetes", "file", "http", "grpc", "flagd-proxy"
BLOBS = ("gcs", "azblob", "s3")
PROVIDERS = (KUBERNETES, FILE, HTTP, GRPC, FLAGD_PROXY, *BLOBS)
"""What `provider` may be; empty stands for the default provider."""
FLAG_PROVIDERS = (KUBERNETES, FILE, FLAGD_PROXY)
"""Those whose sources are FeatureFlags."""
MOST_SOURCES = 1000
"""The API server needs a limit to allow a CEL rule for each of them."""
_KNOWN = declared(
    rules={f"self in ['', {', '.join(map(repr, PROVIDERS))}]": f"unknown provider; use one of {', '.join(PROVIDERS)}"}
)

_ONE_TOKEN = declared(
    rules={
        "!has(self.httpSyncBearerToken) || !has(self.httpSyncBearerTokenSecret)": (
            "httpSyncBearerToken and httpSyncBearerTokenSecret are set; leave one of them out"
        )
    }
)


class SourceEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One source of flags."""

    source: Annotated[str, declared("A FeatureFlag (NAME or NAMESPACE/NAME), or an address: the provider says which.")]
    provider: Annotated[
        str, Meta(max_length=63), _KNOWN, declared("How flags get to the agent; defaultSyncProvider, if it is empty.")
    ] = ""
    http_sync_bearer_token: Annotated[
        str, declared("Shown to the server; everybody who reads the object sees it, so rather use a Secret.")
    ] = ""
    http_sync_bearer_token_secret: Annotated[
        SecretKey | None, declared("Holds the bearer token, so that it appears in no object but the Secret.")
    ] = None
    tls: Annotated[bool, declared("Connect by TLS; of the provider grpc.")] = False
    cert_path: Annotated[str, declared("The CA of the server, as a file in the agent's container.")] = ""
    provider_id: Annotated[str, declared("What the agent calls itself; of the provider grpc.")] = field(
        default="", name="providerID"
    )
    selector: Annotated[str, declared("Which flags to ask the server for; of the provider grpc.")] = ""
    interval: Annotated[int, Meta(ge=0), declared("Seconds between polls.", format="int32")] = 0


class FeatureFlagSourceSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where an agent takes its flags from, and how it serves them."""

    sources: Annotated[
        list[Annotated[SourceEntry, _ONE_TOKEN]],
        Meta(min_length=1, max_length=MOST_SOURCES),
        declared("Later sources win."),
    ]
    management_port: Annotated[Port, declared("Of probes, metrics and the console.", default=8014)] = 0
    port: Annotated[Port, declared("Of evaluation, by gRPC and Connect.", default=8013)] = 0
    ofrep_port: Annotated[Port, declared("Of evaluation, by OFREP.", default=8016)] = 0
    socket_path: Annotated[str, declared("Serve evaluation on this Unix socket, in a volume shared with the pod.")] = ""
    evaluator: Annotated[str, declared("Agents ignore it.", default="json")] = ""
    env_vars: Annotated[list[EnvVar], declared("As in a container; each name gets the prefix.")] = []
    env_var_prefix: Annotated[str, declared("Of the variables of agent and workload.", default="FLAGD")] = ""
    sync_provider_args: Annotated[list[str], declared("Agents ignore them.")] = []
    default_sync_provider: Annotated[
        str, Meta(max_length=63), _KNOWN, declared("The provider of sources that name none.")
    ] = ""
    log_format: Annotated[str, declared("Of the agent: json or console.", default="json")] = ""
    rollout_on_change: Annotated[
        bool | None, declared("Restart the workloads that name this object when it changes.", default=False)
    ] = None
    probes_enabled: Annotated[bool | None, declared("Have the kubelet probe the agent.", default=True)] = None
    debug_logging: Annotated[bool | None, declared("Have the agent log more.", default=False)] = None
    otel_collector_uri: Annotated[str, declared("Where the agent sends traces and metrics: HOST:PORT.")] = ""
    resources: Annotated[ResourceRequirements, declared("Of the agent's container.")] = ResourceRequirements()
    context_values: Annotated[dict[str, str], declared("Added to the context of each evaluation.")] = {}
    header_to_context_mappings: Annotated[
        dict[str, str], declared("Headers of requests whose values are added to the context, under these keys.")
    ] = {}
    cors: Annotated[list[str], declared("Origins whose pages may ask the agent; * for all.")] = []
    image_pull_policy: Annotated[PullPolicy, declared("Of the agent's image; Always, if it is empty.")] = ""
    security_context: Annotated[
        dict[str, Any] | None, declared("Of the agent's container, instead of the one that the operator sets.")
    ] = None


class FeatureFlagSourceStatus(ObjectStatus, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the operator made of a source."""

    sources: Annotated[int, declared("How many sources there are.")] = 0
    workloads: Annotated[int, declared("How many workloads name this object.")] = 0
    remotes: Annotated[
        dict[str, str], declared("The remotes of the FeatureFlags that it names, as hashes: what workloads run with.")
    ] = field(default_factory=dict)


class FeatureFlagSource(Struct, frozen=True, kw_only=True):
    """An object of the kind FeatureFlagSource."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FeatureFlagSourceSpec = FeatureFlagSourceSpec(sources=[])
    status: FeatureFlagSourceStatus = FeatureFlagSourceStatus()
