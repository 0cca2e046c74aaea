"""What the operator is told by its environment and its command line, as one frozen record; nothing else reads either.

| record | variables | says |
|---|---|---|
| `SidecarSettings` | `SIDECAR_…` | the agent that is injected, where no FeatureFlagSource says otherwise |
| `InProcessSettings` | `IN_PROCESS_…` | the environment of in-process providers, the same way |
| `FlagdSettings` | `FLAGD_…` | the agent of a `Flagd` object |
| `ProxySettings` | `FLAGD_PROXY_…` | the proxy |
| `PodSettings`, `ValidationSettings` | `POD_…`, `FLAGS_…` | the operator's namespace; whether it checks FeatureFlags |
| `OperatorOptions` | `OPERATOR_…`, and flags, which win | the process, and what all of the above have in common |

Names and defaults are those of open-feature-operator 0.9. Kubernetes sets `FLAGD_PORT=tcp://…` in pods beside a Service
named `flagd`. Such a value is no setting, so it is ignored.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from wigwag.errors import UsageError
from wigwag.golang import duration_text
from wigwag.operator.names import is_label
from wigwag.operator.resources.featureflagsource import PROVIDERS
from wigwag.operator.resources.kubernetes import ResourceRequirements
from wigwag.operator.resources.quantity import quantity
from wigwag.options import collect, duration, natural, option, port_option
from wigwag.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
IMAGE = "wigwag"
"""Our own image, which serves all faces. Manifests of the original name its images by variables."""
_LINK = "tcp://"
_RENAMED = {"FLAGD_PROXY_METRICS_PORT": "FLAGD_PROXY_MANAGEMENT_PORT", "CLUSTER_DOMAIN": "FLAGD_CLUSTER_DOMAIN"}
"""Names that variables once had; the new one wins."""


@dataclass(frozen=True, kw_only=True)
class SidecarSettings:
    """The injected agent."""

    image: str = option(IMAGE, "image of the agent", metavar="IMAGE")
    tag: str = option(__version__, "tag of the image", metavar="TAG")
    management_port: int = port_option(8014, "port for probes and metrics")
    port: int = port_option(8013, "port for evaluation")
    socket_path: str = option("", "serve evaluation on this Unix socket", metavar="PATH")
    evaluator: str = option("json", "evaluator; agents ignore it")
    provider_args: str = option("", "arguments of sync providers, separated by commas", metavar="K=V,…")
    sync_provider: str = option("kubernetes", "provider of sources that name none", choices=PROVIDERS)
    env_var_prefix: str = option("FLAGD", "prefix of variables", metavar="PREFIX")
    log_format: str = option("json", "log format of the agent")
    probes_enabled: bool = option(True, "have the kubelet probe the agent")

    @property
    def reference(self) -> str:
        """The image with its tag, as a container names it."""
        return f"{self.image}:{self.tag}"


@dataclass(frozen=True, kw_only=True)
class InProcessSettings:
    """The environment of in-process providers."""

    port: int = port_option(8015, "port of the flag source")
    socket_path: str = option("", "its Unix socket", metavar="PATH")
    host: str = option("localhost", "its host", metavar="HOST")
    tls: bool = option(False, "use TLS")
    offline_flag_source_path: str = option("", "read flags from this file instead", metavar="PATH")
    selector: str = option("", "which flags to ask for")
    cache: str = option("lru", "cache of resolved values", choices=("lru", "disabled"))
    env_var_prefix: str = option("FLAGD", "prefix of variables", metavar="PREFIX")
    cache_max_size: int = option(1000, "values in the cache", convert=natural)


@dataclass(frozen=True, kw_only=True)
class FlagdSettings:
    """The agent of a `Flagd` object."""

    image: str = option(IMAGE, "image of the agent", metavar="IMAGE")
    tag: str = option(__version__, "tag of the image", metavar="TAG")
    port: int = port_option(8013, "port for evaluation")
    ofrep_port: int = port_option(8016, "port for OFREP")
    sync_port: int = port_option(8015, "port for sync")
    management_port: int = port_option(8014, "port for probes and metrics")
    debug_logging: bool = option(False, "log debug messages")
    cluster_domain: str = option("cluster.local", "domain of the cluster's services", metavar="DOMAIN")


@dataclass(frozen=True, kw_only=True)
class ProxySettings:
    """The proxy."""

    image: str = option(IMAGE, "image of the proxy", metavar="IMAGE")
    tag: str = option(__version__, "tag of the image", metavar="TAG")
    replica_count: int = option(1, "how many of it", convert=natural)
    port: int = port_option(8015, "port for sync")
    management_port: int = port_option(8016, "port for probes and metrics")
    debug_logging: bool = option(False, "log debug messages")


@dataclass(frozen=True, kw_only=True)
class PodSettings:
    """The operator's own pod."""

    namespace: str = option("open-feature-operator-system", "its namespace, where the proxy runs, too", metavar="NAME")


@dataclass(frozen=True, kw_only=True)
class ValidationSettings:
    """The webhook that checks FeatureFlags."""

    validation_enabled: bool = option(True, "check FeatureFlags when they are written")


def colon_pairs(value: Any) -> dict[str, str]:
    """Read `k:v,k:v`, as the original writes labels and annotations.

    >>> colon_pairs("team:a,app.kubernetes.io/part-of:shop")
    {'team': 'a', 'app.kubernetes.io/part-of': 'shop'}
    """
    if isinstance(value, dict):  # in a config file
        return {str(key): str(text) for key, text in value.items()}
    pairs = {}
    for item in filter(None, map(str.strip, str(value).split(","))):
        key, separator, text = item.partition(":")
        if not separator or not key.strip():
            raise ValueError(f"{item!r} is not of the form key:value")
        pairs[key.strip()] = text.strip()
    return pairs


def quantity_text(value: Any) -> str:
    """Read a quantity, and keep its text."""
    quantity(str(value))
    return str(value)


def at_least_one(value: Any) -> int:
    """Read a number that is not 0."""
    number = natural(value)
    if not number:
        raise ValueError("0 would be never; use at least 1")
    return number


def comma_list(value: Any) -> tuple[str, ...]:
    """Read a list: separated by commas, or a list in a config file."""
    if isinstance(value, list):
        return tuple(map(str, value))
    return tuple(filter(None, map(str.strip, str(value).split(","))))


def amount(value: Any) -> str:
    """Read a number that is not 0, or a percentage, and keep its text.

    >>> amount("5"), amount("10%")
    ('5', '10%')
    """
    text = str(value)
    if at_least_one(text.removesuffix("%")) > _WHOLE and text.endswith("%"):
        raise ValueError(f"{text} is more than all; use at most 100%")
    return text


def watchdog_interval(value: Any) -> str:
    """Read `off`, `once` or a duration, and keep its text.

    >>> watchdog_interval("once"), watchdog_interval("10m")
    ('once', '10m')
    """
    text = str(value)
    if text not in ("off", "once") and duration(text) < _SHORTEST:
        raise ValueError(f"{text} is less than {_SHORTEST:g} seconds; use off, once, or a longer duration")
    return text


def revision_name(value: Any) -> str:
    """Read the name of a revision, which has to be short enough for the names of objects."""
    text = str(value)
    if text and (len(text) > _LONGEST_REVISION or not is_label(text)):
        reason = f"{text!r} is not a name of up to {_LONGEST_REVISION} lower-case letters, digits and dashes"
        raise ValueError(reason)
    return text


_SHORTEST, _LONGEST_REVISION = 1.0, 30
_WHOLE = 100
MOST_NAMESPACES = 50
"""Each namespace has watches of its own, of all kinds."""
_PAUSES = 1.2
"""Pauses between two attempts to renew a Lease that have to fit into its renew deadline, as in client-go."""


@dataclass(frozen=True, kw_only=True)
class OperatorOptions:
    """The options of the operator's command line."""

    webhook_bind_address: str = option(":9443", "address of the webhooks", metavar="ADDRESS", group="serving")
    webhook_secret: str = option(
        "webhook-server-cert", "Secret of the webhooks' certificate; the operator makes and renews it", metavar="NAME"
    )
    metrics_bind_address: str = option(":8080", "address of the metrics; 0 for none", metavar="ADDRESS")
    health_probe_bind_address: str = option(":8081", "address of the probes; 0 for none", metavar="ADDRESS")
    metrics_secure: bool = option(True, "serve metrics with TLS, if --metrics-cert-path names a certificate")
    enable_http2: bool = option(False, "serve HTTP/2 on all ports, not only HTTP/1.1")
    webhook_cert_path: str = option(
        "",
        "directory of the webhooks' certificate; by default /tmp/k8s-webhook-server/serving-certs, if it holds one "
        "that the operator did not make, and otherwise the Secret of --webhook-secret",
        metavar="DIR",
    )
    webhook_cert_name: str = option("tls.crt", "file of the certificate", metavar="FILE")
    webhook_cert_key: str = option("tls.key", "file of its key", metavar="FILE")
    metrics_cert_path: str = option("", "directory of the metrics' certificate", metavar="DIR")
    metrics_cert_name: str = option("tls.crt", "file of the certificate", metavar="FILE")
    metrics_cert_key: str = option("tls.key", "file of its key", metavar="FILE")
    leader_elect: bool = option(False, "let one of several replicas run the controllers", group="process")
    leader_elect_lease_duration: float = option(
        15.0,
        "how long the other replicas wait for a leader that does not renew its Lease; whole seconds",
        metavar="DURATION",
        convert=duration,
    )
    leader_elect_renew_deadline: float = option(
        10.0, "how long a leader goes on without renewing its Lease", metavar="DURATION", convert=duration
    )
    leader_elect_retry_period: float = option(
        2.0, "the pause between two attempts to get or renew the Lease", metavar="DURATION", convert=duration
    )
    verbose: bool = option(True, "log at debug level")
    log_format: str = option("console", "the format of log lines", choices=("console", "json"))
    config: str = option("", "a config file (YAML, JSON or TOML) with these names as keys", metavar="FILE")
    sidecar_cpu_limit: str = option(
        "0.5", "CPU limit of agents", group="injected agents", metavar="QUANTITY", convert=quantity_text
    )
    sidecar_ram_limit: str = option("64M", "memory limit of agents", metavar="QUANTITY", convert=quantity_text)
    sidecar_cpu_request: str = option("0.2", "CPU request of agents", metavar="QUANTITY", convert=quantity_text)
    sidecar_ram_request: str = option("32M", "memory request of agents", metavar="QUANTITY", convert=quantity_text)
    image_pull_secrets: tuple[str, ...] = option((), "Secrets for pulling images", metavar="NAMES", convert=comma_list)
    labels: dict[str, str] = option({}, "labels of generated objects", metavar="K:V,…", convert=colon_pairs)
    annotations: dict[str, str] = option({}, "annotations of generated objects", metavar="K:V,…", convert=colon_pairs)
    cross_namespace: str = option(
        "grant",
        "pods and objects of other namespaces: by a grant of the object, always, or never",
        choices=("grant", "allow", "deny"),
        group="policy",
    )
    cluster_role_binding: bool = option(
        False, "let agents read all FeatureFlags by one ClusterRoleBinding, as flagd's own image needs, not by Roles"
    )
    proxy_auth: str = option(
        "none",
        "whom the proxy serves: everybody, without TLS (`none`), or by TLS agents that show the token of their service "
        "account (`kubernetes`)",
        choices=("none", "kubernetes"),
    )
    private_webhooks: bool = option(
        False,
        "serve the webhooks at paths that only the API server learns, so that pods cannot call them; "
        "the operator writes the paths into the webhook configurations",
    )
    rollout_rate: int = option(
        100,
        "workloads that are rolled in a second when a source with rolloutOnChange or the agents' image changes",
        metavar="N",
        convert=at_least_one,
    )
    namespaces: tuple[str, ...] = option(
        (),
        f"serve only these namespaces, at most {MOST_NAMESPACES}, by Roles and without any ClusterRole; by default all",
        metavar="NAMES",
        convert=comma_list,
    )
    exclude_namespaces: tuple[str, ...] = option(
        (), "leave these namespaces to other operators", metavar="NAMES", convert=comma_list
    )
    webhook_ca: str = option(
        "auto",
        "who puts the CA of the webhooks into their configurations: the operator (patch), or you (manual); auto is "
        "patch, and with --namespaces manual",
        choices=("auto", "patch", "manual"),
    )
    allow_orphan_pods: bool = option(False, "inject agents into pods without an owner")
    share_credentials: bool = option(False, "copy credentials of agents into the workloads' containers, too")
    sidecar_upgrade: str = option(
        "off",
        "agents whose image is not the operator's: left as they are, upgraded in their pods, or by workload restarts",
        choices=("off", "in-place", "restart"),
        group="upgrades",
    )
    sidecar_upgrade_budget: str = option(
        "10%",
        "pods (in-place) or workloads (restart) that are upgraded at once: a number, or a share of all",
        metavar="N|N%",
        convert=amount,
    )
    sidecar_upgrade_timeout: float = option(
        300.0,
        "how long an upgraded agent may take to be ready; then upgrades pause until it is, or the image changes",
        metavar="DURATION",
        convert=duration,
    )
    watchdog: str = option(
        "off",
        "pods that ask for an agent and have none: left alone, or evicted once, or looked for in this interval",
        metavar="off|once|INTERVAL",
        convert=watchdog_interval,
    )
    watchdog_rate: int = option(
        10, "pods that the watchdog evicts in a minute, at most", metavar="N", convert=at_least_one
    )
    revision: str = option(
        "",
        "this operator's name, where several share a cluster: it is for namespaces with the label "
        "openfeature.dev/revision of this value; `default` is for those without the label, too",
        metavar="NAME",
        convert=revision_name,
    )

    def __post_init__(self) -> None:
        """Check what the API server would refuse in every pod, and what would be two leaders or none."""
        self._check_election()
        self._check_namespaces()
        for name in ("cpu", "ram"):
            request, limit = getattr(self, f"sidecar_{name}_request"), getattr(self, f"sidecar_{name}_limit")
            if quantity(request) > quantity(limit):
                reason = f"{request} is more than --sidecar-{name}-limit {limit}; the API server refuses such pods"
                raise UsageError(f"--sidecar-{name}-request: {reason}; lower it")

    def _check_namespaces(self) -> None:
        for name, given in (("namespaces", self.namespaces), ("exclude-namespaces", self.exclude_namespaces)):
            if wrong := [each for each in given if not is_label(each)]:
                raise UsageError(f"--{name}: {wrong[0]!r} is not the name of a namespace; correct it")
            if len(given) > MOST_NAMESPACES:
                reason = f"{len(given)} namespaces are more than {MOST_NAMESPACES}, which is too many watches"
                raise UsageError(f"--{name}: {reason}; serve all namespaces instead")
        if self.namespaces and self.exclude_namespaces:
            raise UsageError("--namespaces and --exclude-namespaces are both set; leave one of them out")
        if self.namespaces and self.cluster_role_binding:
            reason = "writes a ClusterRoleBinding, which --namespaces goes without"
            raise UsageError(f"--cluster-role-binding: it {reason}; leave one of them out")
        if self.namespaces and self.proxy_auth != "none":
            reason = "the proxy asks for TokenReviews, which --namespaces goes without the right to"
            raise UsageError(f"--proxy-auth: {reason}; leave one of them out")
        if self.private_webhooks and not self.patches_webhooks:
            raise UsageError(
                "--private-webhooks: the operator has to write the webhook configurations; see --webhook-ca"
            )
        if self.namespaces and self.revision:
            reason = "revisions are labels of namespaces, which --namespaces goes without the right to read"
            raise UsageError(f"--revision: {reason}; leave one of them out")

    def serves(self, namespace: str) -> bool:
        """Tell whether a namespace is one of this operator's."""
        return namespace in self.namespaces if self.namespaces else namespace not in self.exclude_namespaces

    @property
    def patches_webhooks(self) -> bool:
        """Whether the operator itself puts its CA into the webhook configurations."""
        return self.webhook_ca == "patch" or (self.webhook_ca == "auto" and not self.namespaces)

    def _check_election(self) -> None:
        wait, deadline = self.leader_elect_lease_duration, self.leader_elect_renew_deadline
        retry = self.leader_elect_retry_period
        if not wait.is_integer():
            reason = f"{duration_text(wait)} is no whole number of seconds, which a Lease needs"
            raise UsageError(f"--leader-elect-lease-duration: {reason}; use {math.ceil(wait)}s")
        if deadline >= wait:
            reason = f"{duration_text(deadline)} is not less than --leader-elect-lease-duration {duration_text(wait)}"
            raise UsageError(f"--leader-elect-renew-deadline: {reason}, so two replicas could lead; lower it")
        if not 0 < retry * _PAUSES < deadline:
            highest = f"--leader-elect-renew-deadline {duration_text(deadline)} / {_PAUSES:g}"
            reason = f"{duration_text(retry)} is not between 0 and {highest}, so the Lease could not be renewed in time"
            raise UsageError(f"--leader-elect-retry-period: {reason}; change one of them")

    @property
    def sidecar_resources(self) -> ResourceRequirements:
        """What an injected agent asks for, and what it may use."""
        return ResourceRequirements(
            {"cpu": self.sidecar_cpu_request, "memory": self.sidecar_ram_request},
            {"cpu": self.sidecar_cpu_limit, "memory": self.sidecar_ram_limit},
        )


PREFIXES: Mapping[type, str] = {
    PodSettings: "POD_",
    ValidationSettings: "FLAGS_",
    SidecarSettings: "SIDECAR_",
    InProcessSettings: "IN_PROCESS_",
    FlagdSettings: "FLAGD_",
    ProxySettings: "FLAGD_PROXY_",
}
"""How the variables of each record begin."""


@dataclass(frozen=True, kw_only=True)
class OperatorSettings:
    """All settings of the operator."""

    options: OperatorOptions = field(default_factory=OperatorOptions)
    pod: PodSettings = field(default_factory=PodSettings)
    flags: ValidationSettings = field(default_factory=ValidationSettings)
    sidecar: SidecarSettings = field(default_factory=SidecarSettings)
    in_process: InProcessSettings = field(default_factory=InProcessSettings)
    flagd: FlagdSettings = field(default_factory=FlagdSettings)
    proxy: ProxySettings = field(default_factory=ProxySettings)


def read_settings(environment: Mapping[str, str], options: OperatorOptions | None = None) -> OperatorSettings:
    """Return the settings; `UsageError` names the variable that is wrong.

    >>> settings = read_settings({"SIDECAR_PORT": "9000", "FLAGD_PROXY_METRICS_PORT": "9016", "FLAGD_PORT": "tcp://x"})
    >>> settings.sidecar.port, settings.proxy.management_port, settings.flagd.port
    (9000, 9016, 8013)
    """
    given = {name: value for name, value in environment.items() if not value.startswith(_LINK)}
    given = {new: given[old] for old, new in _RENAMED.items() if old in given} | given
    return OperatorSettings(
        options=options or OperatorOptions(),
        pod=_read(PodSettings, given),
        flags=_read(ValidationSettings, given),
        sidecar=_read(SidecarSettings, given),
        in_process=_read(InProcessSettings, given),
        flagd=_read(FlagdSettings, given),
        proxy=_read(ProxySettings, given),
    )


def _read(record: type[T], given: Mapping[str, str]) -> T:
    return collect(record, argparse.Namespace(), given, PREFIXES[record])
