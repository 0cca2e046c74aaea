"""The proxy, when a FeatureFlagSource needs it: Deployment, Service and PodDisruptionBudget.

The operator's Deployment owns them, so that they go with it. They stay when no source needs them any more, because
agents may still be connected.

The image decides the arguments (decision 90): one with `flagd-proxy` in the last part of its name is that of the
original, or a mirror of it, and takes `start …`. Any other is ours, which serves all faces, and takes `proxy start …`.
The port is always passed on; the original does not, so that its proxy cannot be reached on another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from wigwag.kube.control.apply import owner_reference
from wigwag.kube.kinds import DEPLOYMENT, POD_DISRUPTION_BUDGET, SERVICE
from wigwag.operator.injection.agent import SECURITY_CONTEXT
from wigwag.operator.injection.known import ProxyState
from wigwag.operator.injection.proxytrust import PROXY_DIRECTORY, VOLUME, is_authenticated, proxy_options, proxy_volume
from wigwag.operator.names import (
    MANAGED_BY,
    OPERATOR,
    OPERATOR_DEPLOYMENT,
    PROXY,
    PROXY_ACCOUNT,
    PROXY_BUDGET,
    PROXY_SERVICE,
)
from wigwag.operator.reconcile.objects import (
    APP,
    NAME,
    ObjectFactory,
    container_port,
    object_labels,
    pull_secrets,
    service_port,
)
from wigwag.operator.reconcile.status import LiveDeployment
from wigwag.operator.resources.featureflagsource import FLAGD_PROXY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wigwag.operator.reconcile.objects import DesiredObject
    from wigwag.operator.resources.featureflagsource import FeatureFlagSourceSpec
    from wigwag.operator.resources.kubernetes import ObjectMeta
    from wigwag.operator.settings import OperatorSettings, ProxySettings

Json: TypeAlias = Any
_SELECTOR = {NAME: PROXY, MANAGED_BY: OPERATOR}


class ProxyPlan(NamedTuple):
    """What should exist of the proxy."""

    apply: tuple[DesiredObject, ...] = ()
    problem: str = ""
    """Why it cannot be deployed, for the sources that need it."""


def plan_proxy(
    specs: Iterable[FeatureFlagSourceSpec],
    operator: ObjectMeta | None,
    settings: OperatorSettings,
    *,
    used: bool = False,
) -> ProxyPlan:
    """Return what should exist for these sources; `operator` is the operator's Deployment.

    `used` tells that there are workloads which need the proxy, whatever the sources say.
    """
    if not used and not any(needs_proxy(spec, settings) for spec in specs):
        return ProxyPlan()
    if operator is None:
        place = f"Deployment {settings.pod.namespace}/{OPERATOR_DEPLOYMENT}"
        problem = f"flagd-proxy is not deployed, because {place}, which has to own it, does not exist"
        return ProxyPlan(problem=f"{problem}; create it, or set POD_NAMESPACE to its namespace")
    return ProxyPlan(_objects(operator, settings))


def needs_proxy(spec: FeatureFlagSourceSpec, settings: OperatorSettings) -> bool:
    """Tell whether a source needs the proxy.

    A default provider counts although all sources have one: a pod may name another FeatureFlagSource, whose have none.
    """
    if spec.default_sync_provider == FLAGD_PROXY:
        return True
    default = spec.default_sync_provider or settings.sidecar.sync_provider
    return any((entry.provider or default) == FLAGD_PROXY for entry in spec.sources)


def proxy_state(deployment: Json | None) -> ProxyState | None:
    """Return how the proxy is doing, for those who wait for it: one ready replica will do."""
    if deployment is None:
        return None
    live = LiveDeployment.read(deployment)
    created = live.metadata.creation_timestamp
    return ProxyState(live.status.ready_replicas, created.timestamp() if created else 0.0)


def proxy_arguments(settings: ProxySettings) -> list[str]:
    """Return the arguments of the container.

    >>> from wigwag.operator.settings import ProxySettings
    >>> proxy_arguments(ProxySettings(image="registry.test/mirror/flagd-proxy"))[:2]
    ['start', '--management-port']
    """
    is_original = PROXY in settings.image.rpartition("/")[2]
    ports = ["--management-port", str(settings.management_port), "--port", str(settings.port)]
    return [*([] if is_original else ["proxy"]), "start", *ports, *(["--debug"] if settings.debug_logging else [])]


def _objects(operator: ObjectMeta, settings: OperatorSettings) -> tuple[DesiredObject, ...]:
    proxy, options = settings.proxy, settings.options
    labels = object_labels(PROXY, proxy.tag, options.labels)
    owner = owner_reference(DEPLOYMENT, {"metadata": {"name": operator.name, "uid": operator.uid}})
    factory = ObjectFactory(settings.pod.namespace, labels, options.annotations, owner)
    service = {"selector": _SELECTOR, "ports": [service_port(PROXY, proxy.port, proxy.port, "grpc")]}
    least = proxy.replica_count // 2 if proxy.replica_count > 1 else 0
    budget = {"minAvailable": least, "selector": {"matchLabels": _SELECTOR}}
    return (
        factory.make(DEPLOYMENT, PROXY, _deployment(labels, settings)),
        factory.make(SERVICE, PROXY_SERVICE, service),
        factory.make(POD_DISRUPTION_BUDGET, PROXY_BUDGET, budget),
    )


def _deployment(labels: Mapping[str, str], settings: OperatorSettings) -> dict[str, Json]:
    options, selector = settings.options, {"matchLabels": {APP: PROXY}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    pod = {
        "serviceAccountName": PROXY_ACCOUNT,
        "containers": [_container(settings)],
        "enableServiceLinks": False,  # a Service named `flagd-proxy` would set FLAGD_PROXY_PORT
        "topologySpreadConstraints": [spread],
        **pull_secrets(options),
        **({"volumes": [proxy_volume()]} if is_authenticated(settings) else {}),
    }
    metadata = {"labels": dict(labels), **({"annotations": options.annotations} if options.annotations else {})}
    return {
        "replicas": settings.proxy.replica_count,
        "selector": selector,
        "template": {"metadata": metadata, "spec": pod},
    }


def _container(settings: OperatorSettings) -> dict[str, Json]:
    proxy, is_private = settings.proxy, is_authenticated(settings)
    live, ready = ({"httpGet": {"path": path, "port": proxy.management_port}} for path in ("/healthz", "/readyz"))
    return {
        "name": PROXY,
        "image": f"{proxy.image}:{proxy.tag}",
        "args": [*proxy_arguments(proxy), *(proxy_options(settings) if is_private else [])],
        "ports": [container_port("port", proxy.port), container_port("management-port", proxy.management_port)],
        "livenessProbe": live,
        "readinessProbe": ready,
        "securityContext": SECURITY_CONTEXT,
        **({"volumeMounts": [{"name": VOLUME, "mountPath": PROXY_DIRECTORY}]} if is_private else {}),
    }
