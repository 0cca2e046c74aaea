"""Reviews workloads that carry flags: refuses what cannot work, and marks the pod template so that pods get them.

    metadata.annotations                     spec.template.metadata.annotations, written here
    openfeature.dev/flags: {"flags": …}  ──▶ openfeature.dev/direct-set: NAME-deployment
    openfeature.io/standingorder: a,ops/b ─▶ openfeature.dev/standing-orders: NAMESPACE/a,ops/b

The marks are constant: they name objects. So a change of flags is no change of the template, and restarts no pod; to
name other objects, or to take the annotations away, is one. They follow from the annotations alone and are written in
the same request, so whoever applies a manifest without them does not remove them, and nobody fights about them.

The hard case is flags in the template itself: each change would restart all pods, so they are refused with the place
where they belong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct
from msgspec import field as member

from wigwag.operator.directset.document import PLACE, check_inline
from wigwag.operator.directset.generated import KINDS, Carrier, carrier_of
from wigwag.operator.injection.known import refusal
from wigwag.operator.injection.patch import difference
from wigwag.operator.injection.podflags import standing_orders
from wigwag.operator.injection.verdict import BAD_REQUEST, FORBIDDEN, Allowed, Denied
from wigwag.operator.names import (
    DIRECT_SET,
    ENABLED,
    INLINE_FLAGS,
    STANDING_ORDERS,
    ObjectName,
)
from wigwag.sources.kubernetes.references import ORDERS

if TYPE_CHECKING:
    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.injection.verdict import Verdict
    from wigwag.operator.settings import OperatorSettings

Json: TypeAlias = Any
MARKS = (DIRECT_SET, STANDING_ORDERS)


class _Annotated(Struct):
    name: str = ""
    annotations: dict[str, str] | None = None


class _MarkedTemplate(Struct):
    metadata: _Annotated = member(default_factory=_Annotated)


class _MarkedSpec(Struct):
    template: _MarkedTemplate = member(default_factory=_MarkedTemplate)


class _ReviewedWorkload(Struct):
    metadata: _Annotated = member(default_factory=_Annotated)
    spec: _MarkedSpec = member(default_factory=_MarkedSpec)


class WorkloadRequest(NamedTuple):
    """A request to admit a Deployment, StatefulSet or DaemonSet."""

    kind: str
    namespace: str
    object: Json
    before: Json = None
    """The object that it replaces; None if it is new."""


def review_workload(request: WorkloadRequest, known: KnownObjects, settings: OperatorSettings) -> Verdict:
    """Decide about a workload."""
    try:
        workload = msgspec.convert(request.object, _ReviewedWorkload)
        before = msgspec.convert(request.before or {}, _ReviewedWorkload)
    except msgspec.ValidationError as error:
        return Denied(BAD_REQUEST, f"the object is not a {request.kind}: {error}")
    return _Review(request, workload, before, known, settings).verdict()


@dataclass(frozen=True)
class _Review:
    """The review of one workload."""

    request: WorkloadRequest
    workload: _ReviewedWorkload
    before: _ReviewedWorkload
    known: KnownObjects = field(repr=False)
    settings: OperatorSettings

    def verdict(self) -> Verdict:
        own, template = self._own, self.workload.spec.template.metadata.annotations or {}
        if INLINE_FLAGS in template:
            reason = "in a pod template, each change of a flag would restart the pods"
            where = f"write the annotation to metadata.annotations of the {self.request.kind}"
            return Denied(FORBIDDEN, f"spec.template.{PLACE}: {reason}; {where}")
        orders, problem = standing_orders(own, self.request.namespace, f"the {self.request.kind}")
        if problem:
            return Denied(FORBIDDEN, problem)
        checked = self._check_flags() if INLINE_FLAGS in own else Allowed()
        if isinstance(checked, Denied):
            return checked
        marks = {STANDING_ORDERS: ",".join(map(str, orders))} if orders else {}
        if INLINE_FLAGS in own:
            marks[DIRECT_SET] = self._carrier.flag.name
        changed = self._marked(marks)
        warnings = *checked.warnings, *self._unusable(orders)
        if marks and template.get(ENABLED, "true") != "true":
            warnings = *warnings, f'{ENABLED} of the pod template is not "true", so its pods get no agent'
        return Allowed(patch=tuple(difference(self.request.object, changed)), warnings=warnings)

    @property
    def _own(self) -> dict[str, str]:
        return self.workload.metadata.annotations or {}

    @property
    def _carrier(self) -> Carrier:
        return Carrier(KINDS[self.request.kind], ObjectName(self.request.namespace, self.workload.metadata.name))

    def _check_flags(self) -> Verdict:
        """Check the flags, if they are new, and whether there is a place for them."""
        if not self.workload.metadata.name:
            return Denied(
                FORBIDDEN,
                f"{PLACE}: the FeatureFlag with the flags is named after the {self.request.kind}; "
                "give it a name, not generateName",
            )
        about = self.known.feature_flag(self._carrier.flag)
        if about is not None and carrier_of(about) != self._carrier:
            return Denied(FORBIDDEN, self._carrier.collision)
        text, before = self._own[INLINE_FLAGS], (self.before.metadata.annotations or {}).get(INLINE_FLAGS, "")
        return Allowed() if text == before else check_inline(text, before, lint=self.settings.flags.validation_enabled)

    def _unusable(self, orders: tuple[ObjectName, ...]) -> list[str]:
        """Say which standing orders pods would wait for."""
        policy, namespace = self.settings.options.cross_namespace, self.request.namespace
        found = []
        for name in orders:
            about = self.known.feature_flag(name)
            if denied := refusal("FeatureFlag", name, about, namespace, policy):
                found.append(f"its pods wait: {denied.message}")
            elif about is None and name.namespace == namespace:
                found.append(f"its pods wait: FeatureFlag {name} does not exist; create it, or correct {ORDERS[0]}")
        return found

    def _marked(self, marks: dict[str, str]) -> Json:
        """Return the workload with these marks in its template, and no others."""
        workload = self.request.object
        template = workload["spec"]["template"]
        about = template.get("metadata") or {}
        given = about.get("annotations") or {}
        wanted = {name: value for name, value in given.items() if name not in MARKS} | marks
        if wanted == given:
            return workload
        marked = {**template, "metadata": {**about, "annotations": wanted}}
        return {**workload, "spec": {**workload["spec"], "template": marked}}
