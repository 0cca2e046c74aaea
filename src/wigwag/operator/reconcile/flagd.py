"""A `Flagd` to what should exist for it: Deployment, Service, and what leads to them from outside; and its status.

| condition | false |
|---|---|
| `Accepted` | `Invalid`: no objects can be made of it. True with the reason `Warnings`: some of it has no effect |
| `Resolved` | `SourceNotFound`, `SourceUnusable`: the FeatureFlagSource, or what it refers to |
| `Programmed` | `Refused`: an object is not ours. `Progressing`, `Failing`: pods. `Unresolved`: no Deployment yet |

While one of the first two is false, nothing is applied: what exists stays as it is, and agents keep serving. What is
disabled is removed even then. Agents that read from the proxy wait until it is ready, as pods do.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from wigwag.kube.control.apply import owner_reference
from wigwag.kube.kinds import DEPLOYMENT, FLAGD, GRPC_ROUTE, HTTP_ROUTE, INGRESS, SERVICE, Kind
from wigwag.operator.injection.permission import source_kind, source_refusal
from wigwag.operator.injection.sources import GROUP, SourceResolver
from wigwag.operator.injection.verdict import Denied
from wigwag.operator.names import ObjectName, is_label
from wigwag.operator.reconcile.objects import ObjectFactory, object_labels
from wigwag.operator.reconcile.routes import Backend, grpc_route_spec, http_route_spec, ingress_spec, shares_hosts
from wigwag.operator.reconcile.status import (
    ACCEPTED,
    PROGRAMMED,
    PROGRESSING,
    RESOLVED,
    UNRESOLVED,
    WARNINGS,
    ConditionState,
    LiveDeployment,
    conditions,
)
from wigwag.operator.reconcile.workload import (
    deployment_spec,
    listen_ports,
    service_annotations,
    service_spec,
    standalone_source,
    workload_annotations,
)
from wigwag.operator.resources.flagd import FlagdStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.injection.sources import Needs
    from wigwag.operator.reconcile.objects import DesiredObject
    from wigwag.operator.resources.featureflagsource import FeatureFlagSource, FeatureFlagSourceSpec
    from wigwag.operator.resources.flagd import Flagd, FlagdSpec
    from wigwag.operator.settings import FlagdSettings, OperatorSettings

Json: TypeAlias = Any
_VALID = ConditionState("True", "Valid")
_UNKNOWN = ConditionState("Unknown", "Invalid", "the object is not accepted")


@dataclass(frozen=True, kw_only=True)
class FlagdPlan:
    """What should exist for a `Flagd`, and what is to be said about it."""

    accepted: ConditionState = _VALID
    resolved: ConditionState = _UNKNOWN
    apply: tuple[DesiredObject, ...] = ()
    remove: tuple[Kind, ...] = ()
    """Kinds of which it should have no object; one of its name is removed, if it is ours."""
    needs: tuple[Needs, ...] = ()
    """What its pods need: mounted ConfigMaps, and FeatureFlags to read."""

    @property
    def digest(self) -> str:
        """A hash of the objects; empty if there are none."""
        content = [(each.kind.kind, each.body) for each in self.apply]
        return sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:16] if content else ""


def flagd_sources(flagd: Flagd) -> list[ObjectName]:
    """Return the sources that a `Flagd` names, in the order of the merge: a shared one first, so that its own wins."""
    spec, namespace = flagd.spec, flagd.metadata.namespace
    named = (("", spec.cluster_feature_flag_source), (namespace, spec.feature_flag_source))
    return [ObjectName(*name) for name in named if name[1]]


def plan_flagd(flagd: Flagd, known: KnownObjects, settings: OperatorSettings, now: float = 0.0) -> FlagdPlan:
    """Return what should exist for a `Flagd`."""
    remove, namespace = _disabled(flagd.spec), flagd.metadata.namespace
    named = {name: known.feature_flag_source(name) for name in flagd_sources(flagd)}
    specs = [each.spec for each in named.values() if each is not None]
    spec = standalone_source(flagd.spec, specs, settings) if specs else None
    if problem := _problem(flagd, spec, settings.flagd):
        return FlagdPlan(accepted=ConditionState("False", "Invalid", problem), remove=remove)
    for name, source in named.items():
        if state := _unresolved(name, source, namespace, known, settings):
            return FlagdPlan(resolved=state, remove=remove)
    assert spec is not None, "it names a source, and all that it names are there"
    image = settings.flagd.image
    needs = SourceResolver(namespace=namespace, known=known, settings=settings, now=now, image=image).resolve(spec)
    shown = " and ".join(f"{source_kind(name).kind} {name}" for name in named)
    if isinstance(needs, Denied):
        message = f"{shown}: {needs.message}; what exists stays as it is"
        return FlagdPlan(resolved=ConditionState("False", "SourceUnusable", message), remove=remove)
    warnings = _warnings(flagd.spec, specs, needs)
    return FlagdPlan(
        accepted=ConditionState("True", WARNINGS, "; ".join(warnings)) if warnings else _VALID,
        resolved=ConditionState("True", "Resolved", f"{len(needs)} sources of {shown}"),
        apply=_objects(flagd, spec, needs, settings),
        remove=remove,
        needs=tuple(needs),
    )


def _unresolved(
    name: ObjectName, source: FeatureFlagSource | None, namespace: str, known: KnownObjects, settings: OperatorSettings
) -> ConditionState | None:
    """Return why a source cannot be used; None if it can."""
    kind, stays = source_kind(name).kind, "what exists stays as it is"
    if unreadable := known.unreadable_source(name):
        message = f"{kind} {name} does not fit its schema: {unreadable.problem}; {stays}"
        return ConditionState("False", "SourceUnusable", message)
    if refused := source_refusal(name, source, namespace, known, settings):
        return ConditionState("False", "SourceUnusable", f"{refused.message}; {stays}")
    if source is None:
        where = f" in namespace {name.namespace}" if name.namespace else ""
        message = f'{kind.lower()}s.{GROUP} "{name.name}" not found{where}'
        return ConditionState("False", "SourceNotFound", f"{message}; {stays}: create the source")
    return None


def flagd_status(
    flagd: Flagd, plan: FlagdPlan, deployment: Json | None, refusals: Sequence[str], now: float
) -> FlagdStatus:
    """Return the status. `deployment` is the live object, `refusals` why objects were not applied."""
    live = None if deployment is None else LiveDeployment.read(deployment)
    if refusals:
        programmed = ConditionState("False", "Refused", "; ".join(refusals))
    elif live is None:
        programmed = ConditionState("False", PROGRESSING if plan.apply else UNRESOLVED, "there is no Deployment")
    else:
        programmed = live.rollout(flagd.spec.replicas)
    states = {ACCEPTED: plan.accepted, RESOLVED: plan.resolved, PROGRAMMED: programmed}
    return FlagdStatus(
        observed_generation=flagd.metadata.generation,
        conditions=conditions(flagd.status.conditions, states, flagd.metadata.generation, now),
        digest=plan.digest or flagd.status.digest,
        replicas=live.status.replicas if live else 0,
        ready_replicas=live.status.ready_replicas if live else 0,
    )


def _disabled(spec: FlagdSpec) -> tuple[Kind, ...]:
    routes = spec.gateway_api_routes
    enabled = {
        INGRESS: spec.ingress is not None and spec.ingress.enabled,
        HTTP_ROUTE: routes is not None and routes.enabled,
        GRPC_ROUTE: routes is not None and routes.enabled and routes.grpc is not None and routes.grpc.enabled,
    }
    return tuple(kind for kind, is_enabled in enabled.items() if not is_enabled)


def _problem(flagd: Flagd, source: FeatureFlagSourceSpec | None, settings: FlagdSettings) -> str:
    """Return why no working objects can be made, in any case; empty: they can."""
    if not flagd_sources(flagd):
        return "it names no source; set featureFlagSource, clusterFeatureFlagSource, or both"
    if not is_label(flagd.metadata.name):
        return "its name cannot be that of a Service; use at most 63 lower-case letters, digits and dashes"
    if flagd.spec.service_type == "ExternalName":
        return "serviceType ExternalName is a name for something outside; use another type to reach the agent"
    ports = listen_ports(source, settings) if source else ()
    if len(set(ports)) < len(ports):
        numbers = ", ".join(map(str, ports))
        return f"the agent cannot listen twice on a port: {numbers}; change ofrepPort of the source"
    return ""


def _warnings(spec: FlagdSpec, sources: Sequence[FeatureFlagSourceSpec], needs: Sequence[Needs]) -> list[str]:
    warnings = [each.warning for each in needs if each.warning]
    if any(source.sync_provider_args for source in sources):
        warnings.append("syncProviderArgs are ignored: agents have no such option")
    paths = [source.socket_path for source in sources if source.socket_path]
    warnings += [f"socketPath {path} is ignored: other pods cannot reach a Unix socket" for path in paths]
    routes = spec.gateway_api_routes
    if routes is not None and GRPC_ROUTE not in _disabled(spec) and shares_hosts(routes):
        reason = "the HTTPRoute and the GRPCRoute are for the same hosts, and a gateway may accept only one of them"
        warnings.append(f"{reason}; set grpc.hosts to others")
    return warnings


def _objects(
    flagd: Flagd, source: FeatureFlagSourceSpec, needs: Sequence[Needs], settings: OperatorSettings
) -> tuple[DesiredObject, ...]:
    spec, about, disabled = flagd.spec, flagd.metadata, _disabled(flagd.spec)
    labels = object_labels(about.name, settings.flagd.tag, {**settings.options.labels, **spec.labels})
    owner = owner_reference(FLAGD, {"metadata": {"name": about.name, "uid": about.uid}})
    factory = ObjectFactory(about.namespace, labels, settings.options.annotations, owner)
    ports = listen_ports(source, settings.flagd)
    backend = Backend(
        about.name, about.namespace, settings.flagd.port, settings.flagd.ofrep_port, settings.flagd.sync_port
    )
    deployment = deployment_spec(flagd, source, needs, labels, settings)
    made = [
        factory.make(DEPLOYMENT, about.name, deployment, workload_annotations(spec, needs, settings)),
        factory.make(SERVICE, about.name, service_spec(flagd, ports, settings.flagd), service_annotations(flagd)),
    ]
    if spec.ingress and INGRESS not in disabled:
        made.append(factory.make(INGRESS, about.name, ingress_spec(spec.ingress, backend), spec.ingress.annotations))
    if (routes := spec.gateway_api_routes) and HTTP_ROUTE not in disabled:
        made.append(factory.make(HTTP_ROUTE, about.name, http_route_spec(routes, backend), routes.annotations))
    if routes and GRPC_ROUTE not in disabled:
        made.append(factory.make(GRPC_ROUTE, about.name, grpc_route_spec(routes, backend), routes.annotations))
    return tuple(made)
