"""The webhooks: what an AdmissionRequest is to the pure functions that decide, and their verdict as a response."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from wigwag.operator.admission.registration import FLAG_PATH, POD_PATH, WORKLOAD_PATH
from wigwag.operator.admission.review import AdmissionRequest, AdmissionResponse, allowed, denied
from wigwag.operator.directset.workload import WorkloadRequest, review_workload
from wigwag.operator.injection.decide import PodRequest, admit_pod
from wigwag.operator.injection.verdict import Denied
from wigwag.operator.validation import validate_feature_flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.operator.admission.server import Review
    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.injection.verdict import Verdict
    from wigwag.operator.settings import OperatorSettings

_STARTING = "the operator has not read all objects yet; the pod's controller tries again"
_NOT_READ = "the operator has not read all objects yet; try again"

_NOT_SERVED = "this operator does not serve the namespace {}, so the pod gets no agent from it; see its --namespaces"


def reviews(
    known: Callable[[], KnownObjects | None],
    settings: OperatorSettings,
    now: Callable[[], float],
    serves: Callable[[str], bool] = lambda _: True,
) -> dict[str, Review]:
    """Return the function for each path.

    `known` returns None until all objects are read; `now` is Unix seconds; `serves` tells whether a namespace is ours.
    """

    def mutate(request: AdmissionRequest) -> AdmissionResponse:
        if not serves(request.namespace):
            return allowed(warnings=[_NOT_SERVED.format(request.namespace)])
        objects = known()
        if objects is None:
            return denied(503, _STARTING)
        pod = PodRequest(
            object=msgspec.json.decode(request.object),
            namespace=request.namespace,
            operation=request.operation,
            now=now(),
        )
        return response(admit_pod(pod, objects, settings))

    def validate(request: AdmissionRequest) -> AdmissionResponse:
        before = bytes(request.old_object) if request.operation == "UPDATE" else b""
        return response(validate_feature_flag(bytes(request.object), before))

    def mark(request: AdmissionRequest) -> AdmissionResponse:
        objects = known()
        if objects is None:
            return denied(503, _NOT_READ)
        before = msgspec.json.decode(request.old_object)
        workload = WorkloadRequest(request.kind.kind, request.namespace, msgspec.json.decode(request.object), before)
        return response(review_workload(workload, objects, settings))

    functions: dict[str, Review] = {POD_PATH: mutate, WORKLOAD_PATH: mark}
    if settings.flags.validation_enabled:
        functions[FLAG_PATH] = validate
    return functions


def response(verdict: Verdict) -> AdmissionResponse:
    """Return a verdict as a response."""
    if isinstance(verdict, Denied):
        return denied(verdict.code, verdict.message)
    if verdict.patch:
        return AdmissionResponse(allowed=True, patch=verdict.patch, warnings=verdict.warnings)
    return allowed(verdict.message, warnings=verdict.warnings)
