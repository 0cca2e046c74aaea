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

from wigwag.kube.kinds import CRON_JOB, JOB
from wigwag.operator.directset.document import PLACE, check_inline
from wigwag.operator.directset.generated import KINDS, LABEL, LABELLED, Carrier, carrier_of
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


class _AnnotatedObject(Struct):
    metadata: _Annotated = member(default_factory=_Annotated)

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations or {}


class WorkloadRequest(NamedTuple):
    """A request to admit a Deployment, StatefulSet, DaemonSet, Job or CronJob."""

    kind: str
    namespace: str
    object: Json
    before: Json = None
    """The object that it replaces; None if it is new."""


def review_workload(request: WorkloadRequest, known: KnownObjects, settings: OperatorSettings) -> Verdict:
    """Decide about a workload."""
    try:
        workload, before = (msgspec.convert(each or {}, _AnnotatedObject) for each in (request.object, request.before))
        template = msgspec.convert(_part(request.object, template_place(request.kind)), _AnnotatedObject)
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        return Denied(BAD_REQUEST, f"the object is not a {request.kind}: {error}")
    return _Review(request, workload, before.annotations, template.annotations, known, settings).verdict()


def template_place(kind: str) -> tuple[str, ...]:
    """Return where the pod template is."""
    return ("spec", "jobTemplate", "spec", "template") if kind == CRON_JOB.kind else ("spec", "template")


@dataclass(frozen=True)
class _Review:
    """The review of one workload."""

    request: WorkloadRequest
    workload: _AnnotatedObject
    before: dict[str, str]
    """The annotations of the object that it replaces."""
    template: dict[str, str]
    """The annotations of its pod template."""
    known: KnownObjects = field(repr=False)
    settings: OperatorSettings

    def verdict(self) -> Verdict:
        """Decide, with a patch that marks the template."""
        own, kind = self.workload.annotations, self.request.kind
        if INLINE_FLAGS in self.template:
            reason = "in a pod template, each change of a flag would restart the pods"
            where = f"write the annotation to metadata.annotations of the {kind}"
            return Denied(FORBIDDEN, f"{'.'.join(template_place(kind))}.{PLACE}: {reason}; {where}")
        orders, problem = standing_orders(own, self.request.namespace, f"the {kind}")
        if problem:
            return Denied(FORBIDDEN, problem)
        checked = self._check_flags() if INLINE_FLAGS in own else Allowed()
        if isinstance(checked, Denied):
            return checked
        wanted = self._marked(orders)
        if kind == JOB.kind and self.request.before is not None and wanted != self.template:
            reason = "the pods of a Job cannot be changed, so other flags would not reach them"
            return Denied(FORBIDDEN, f"metadata.annotations: {reason}; create the Job with the annotations it needs")
        warnings = [*checked.warnings, *self._unusable(orders)]
        if wanted.keys() & {*MARKS} and wanted.get(ENABLED, "true") != "true":
            warnings.append(f'{ENABLED} of the pod template is not "true", so its pods get no agent')
        return Allowed(patch=tuple(difference(self.request.object, self._changed(wanted))), warnings=tuple(warnings))

    @property
    def _carrier(self) -> Carrier:
        return Carrier(KINDS[self.request.kind], ObjectName(self.request.namespace, self.workload.metadata.name))

    def _check_flags(self) -> Verdict:
        """Check the flags, if they are new, and whether there is a place for them."""
        if not self.workload.metadata.name:
            reason = f"the FeatureFlag with the flags is named after the {self.request.kind}"
            return Denied(FORBIDDEN, f"{PLACE}: {reason}; give it a name, not generateName")
        about = self.known.feature_flag(self._carrier.flag)
        if about is not None and carrier_of(about) != self._carrier:
            return Denied(FORBIDDEN, self._carrier.collision)
        text, before = self.workload.annotations[INLINE_FLAGS], self.before.get(INLINE_FLAGS)
        if text == before:
            return Allowed()
        return check_inline(text, before or "", lint=self.settings.flags.validation_enabled)

    def _unusable(self, orders: tuple[ObjectName, ...]) -> list[str]:
        """Say which standing orders pods would wait for."""
        policy, namespace = self.settings.options.cross_namespace, self.request.namespace
        warnings = []
        for name in orders:
            about = self.known.feature_flag(name)
            if denied := refusal("FeatureFlag", name, about, namespace, policy):
                warnings.append(f"its pods wait: {denied.message}")
            elif about is None and name.namespace == namespace:
                warnings.append(f"its pods wait: FeatureFlag {name} does not exist; create it, or correct {ORDERS[0]}")
        return warnings

    def _marked(self, orders: tuple[ObjectName, ...]) -> dict[str, str]:
        """Return the annotations of the template with the marks that it should have, and no others."""
        marked = {name: value for name, value in self.template.items() if name not in MARKS}
        if orders:
            marked[STANDING_ORDERS] = ",".join(map(str, orders))
        if INLINE_FLAGS in self.workload.annotations:
            marked[DIRECT_SET] = self._carrier.flag.name
        return marked

    def _changed(self, template: dict[str, str]) -> Json:
        """Return the workload with these annotations in its template, and with a label if it is watched by that."""
        workload = self.request.object
        if template != self.template:
            place = *template_place(self.request.kind), "metadata", "annotations"
            workload = _with_part(workload, place, template)
        if INLINE_FLAGS in self.workload.annotations and self._carrier.kind in LABELLED:
            labels = (workload["metadata"].get("labels") or {}) | LABEL
            workload = _with_part(workload, ("metadata", "labels"), labels)
        return workload


def _part(value: Json, place: tuple[str, ...]) -> Json:
    for name in place:
        value = value[name]
    return value


def _with_part(value: Json, place: tuple[str, ...], part: Json) -> Json:
    """Return an object with another part."""
    if not place:
        return part
    name, *rest = place
    return {**(value or {}), name: _with_part((value or {}).get(name), tuple(rest), part)}
