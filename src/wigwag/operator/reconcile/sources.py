"""The status of sources, shared ones too, and of InProcessConfigurations: who uses them, and what is missing.

A name in a source is read in the namespace of the pod. So what a source refers to depends on who uses it: it is looked
up for every namespace with workloads that name the source, and for its own if there are none.

The status of a source also says how far a rollout is: it takes `digest` and `observedGeneration` when no workload is
behind (see `rollout`). So it must not be written before all workloads are known.

What another namespace has is not told: a flag there that does not exist and one that grants nothing read the same. And
a workload elsewhere that names a source without a grant makes only `Granted` false, since its owner cannot help that.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wigwag.flags.model import canonical
from wigwag.operator.injection.known import refusal
from wigwag.operator.injection.merge import effective_source
from wigwag.operator.injection.permission import may_use
from wigwag.operator.injection.sources import SourceResolver
from wigwag.operator.injection.verdict import Denied
from wigwag.operator.names import ALLOW_FROM, ObjectName, config_map_name, parse_name
from wigwag.operator.reconcile.remotes import remote_digests
from wigwag.operator.reconcile.rollout import DIGITS, source_digest
from wigwag.operator.reconcile.status import (
    ACCEPTED,
    GRANTED,
    PROGRAMMED,
    RESOLVED,
    ROLLING_OUT,
    ConditionState,
    conditions,
    listed,
)
from wigwag.operator.resources.featureflagsource import (
    FILE,
    FLAGD_PROXY,
    KUBERNETES,
    PROVIDERS,
    FeatureFlagSourceStatus,
)
from wigwag.operator.resources.inprocessconfiguration import InProcessStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.names import Mode
    from wigwag.operator.reconcile.rollout import RolloutPlan
    from wigwag.operator.reconcile.workloads import Workload
    from wigwag.operator.resources.featureflagsource import FeatureFlagSource, FeatureFlagSourceSpec, SourceEntry
    from wigwag.operator.resources.inprocessconfiguration import InProcessConfiguration
    from wigwag.operator.settings import OperatorSettings

_ALLOW = "add to spec.allowedNamespaces.names"


@dataclass(frozen=True)
class NamedBy:
    """The workloads that name an object."""

    allowed: tuple[Workload, ...]
    refused: tuple[Workload, ...]
    """Those of other namespaces that may not use it."""


@dataclass(frozen=True, kw_only=True)
class SourceStatuses:
    """Makes the status of objects, at one moment."""

    known: KnownObjects
    settings: OperatorSettings
    now: float
    """Unix seconds."""

    def of_source(
        self, name: ObjectName, source: FeatureFlagSource, workloads: Iterable[Workload], plan: RolloutPlan
    ) -> FeatureFlagSourceStatus:
        """Return the status of a FeatureFlagSource; equal to the one it has if there is nothing to write."""
        users = self._users(
            "sidecar", name, workloads, lambda each: not may_use(name, source, each, self.known, self.settings)
        )
        spec = effective_source(self.settings.sidecar, [source.spec])
        states = {
            ACCEPTED: _accepted(spec),
            RESOLVED: self._resolved(name, spec, users),
            PROGRAMMED: self._programmed(spec, plan),
            GRANTED: _granted(users, f"annotate this object with {ALLOW_FROM}" if name.namespace else _ALLOW),
        }
        before, generation = source.status, source.metadata.generation
        status = FeatureFlagSourceStatus(
            observed_generation=before.observed_generation,
            digest=before.digest,
            conditions=conditions(before.conditions, states, generation, self.now),
            sources=len(source.spec.sources),
            workloads=len(users.allowed),
            remotes=before.remotes,
        )
        if not plan.is_complete:
            return status
        remotes = remote_digests(source.spec, _namespaces(name, users), self.known, self.settings)
        digest = source_digest(source.spec)
        return replace(status, observed_generation=generation, digest=digest, remotes=remotes)

    def of_in_process(
        self, name: ObjectName, configuration: InProcessConfiguration, workloads: Iterable[Workload]
    ) -> InProcessStatus:
        """Return the status of an InProcessConfiguration, the same way. It refers to nothing in the cluster."""
        kind, policy = "InProcessConfiguration", self.settings.options.cross_namespace
        users = self._users(
            "in-process",
            name,
            workloads,
            lambda each: refusal(kind, name, configuration.metadata, each, policy) is not None,
        )
        granted = _granted(users, f"annotate this object with {ALLOW_FROM}")
        states = {ACCEPTED: ConditionState("True", "Valid"), GRANTED: granted}
        before, generation = configuration.status, configuration.metadata.generation
        return InProcessStatus(
            observed_generation=generation,
            conditions=conditions(before.conditions, states, generation, self.now),
            digest=sha256(canonical(configuration.spec)).hexdigest()[:DIGITS],
            workloads=len(users.allowed),
        )

    def _users(
        self, mode: Mode, name: ObjectName, workloads: Iterable[Workload], refuses: Callable[[str], bool]
    ) -> NamedBy:
        """Return who names an object; `refuses` tells whether workloads of a namespace may not use it."""
        allowed: list[Workload] = []
        refused: list[Workload] = []
        for each in workloads:
            if each.mode == mode and name in each.named and not each.deleting:
                (refused if refuses(each.name.namespace) else allowed).append(each)
        return NamedBy(tuple(allowed), tuple(refused))

    def _resolved(self, name: ObjectName, spec: FeatureFlagSourceSpec, users: NamedBy) -> ConditionState:
        """Say which FeatureFlags are missing, or may not be used."""
        namespaces = sorted(_namespaces(name, users))
        problems = dict.fromkeys(each for namespace in namespaces for each in self._problems(spec, namespace))
        if not problems:
            return ConditionState("True", "Resolved")
        reason = next(iter(problems))[0]
        message = listed([message for _, message in problems])
        return ConditionState("False", reason, f"new pods are refused, or get no flags: {message}")

    def _problems(self, spec: FeatureFlagSourceSpec, namespace: str) -> Iterator[tuple[str, str]]:
        """Yield a reason and a message for each reference that pods of a namespace cannot use."""
        resolver = SourceResolver(namespace=namespace, known=self.known, settings=self.settings, now=self.now)
        for entry in spec.sources:
            provider = _provider(entry, spec)
            if provider not in (KUBERNETES, FILE, FLAGD_PROXY):
                continue
            flag = resolver.flag(entry, exists=True)
            if isinstance(flag, Denied):
                is_missing = parse_name(entry.source, namespace).namespace == namespace
                yield ("FlagMissing" if is_missing else "FlagNotGranted"), flag.message
                continue
            config_map = ObjectName(namespace, config_map_name(flag, namespace))
            if provider == FILE and self.known.is_foreign_config_map(config_map):
                yield (
                    "ConfigMapNotOurs",
                    f"ConfigMap {config_map} is not the operator's; rename it, or FeatureFlag {flag}",
                )

    def _programmed(self, spec: FeatureFlagSourceSpec, plan: RolloutPlan) -> ConditionState:
        """Say whether the proxy is ready, if it is needed, and how far a rollout is."""
        resolver = SourceResolver(namespace="", known=self.known, settings=self.settings, now=self.now)
        needs_proxy = any(_provider(entry, spec) == FLAGD_PROXY for entry in spec.sources)
        if needs_proxy and (denied := resolver.proxy_refusal()):
            return ConditionState("False", "ProxyNotReady", denied.message)
        if plan.due:
            return ConditionState("False", ROLLING_OUT, f"workloads to be rolled: {len(plan.due)}")
        if plan.held:
            message = listed([f"{workload}: {reason}" for workload, reason in plan.held])
            return ConditionState("False", "RolloutHeld", f"new pods would be refused, so they wait: {message}")
        return ConditionState("True", "UpToDate")


def _namespaces(name: ObjectName, users: NamedBy) -> set[str]:
    """Return the namespaces that names in a source are looked up in; a shared source has none of its own."""
    return {each.name.namespace for each in users.allowed} or {name.namespace} - {""}


def _provider(entry: SourceEntry, spec: FeatureFlagSourceSpec) -> str:
    return entry.provider or spec.default_sync_provider


def _accepted(spec: FeatureFlagSourceSpec) -> ConditionState:
    unknown = sorted({each for entry in spec.sources if (each := _provider(entry, spec)) not in PROVIDERS})
    if not unknown:
        return ConditionState("True", "Valid")
    message = f"unknown providers, so new pods are refused: {listed(unknown)}; use some of {', '.join(PROVIDERS)}"
    return ConditionState("False", "UnknownProvider", message)


def _granted(users: NamedBy, remedy: str) -> ConditionState:
    """Say who names the object without a grant; `remedy` is how to give one."""
    if not users.refused:
        return ConditionState("True", "Granted")
    namespaces = ", ".join(sorted({each.name.namespace for each in users.refused}))
    workloads = listed(sorted(map(str, users.refused)))
    return ConditionState("False", "GrantMissing", f"{workloads}; if they may, {remedy}: {namespaces}")
