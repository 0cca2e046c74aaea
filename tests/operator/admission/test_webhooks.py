"""The functions behind the paths: what they do before all objects are read, and how a verdict becomes a response."""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.json import encode

from tests.operator.known import NOW, Laid, pod, settings, source_object
from wigwag.operator.admission.registration import FLAG_PATH, POD_PATH, WORKLOAD_PATH
from wigwag.operator.admission.review import AdmissionRequest, ReviewedKind
from wigwag.operator.admission.webhooks import reviews
from wigwag.operator.injection.known import KnownObjects

HTTP = {"source": "http://flags.test", "provider": "http"}


def created(kind: ReviewedKind, manifest: Any) -> AdmissionRequest:
    return AdmissionRequest(uid="1", kind=kind, namespace="team-a", operation="CREATE", object=Raw(encode(manifest)))


def test_u100_pods_are_refused_until_all_objects_are_read() -> None:
    objects: list[KnownObjects | None] = [None]
    mutate = reviews(lambda: objects[0], settings(), lambda: NOW)[POD_PATH]
    request = created(ReviewedKind("", "v1", "Pod"), pod())
    early = mutate(request)
    assert (early.allowed, early.code) == (False, 503)
    objects[0] = Laid(sources={"team-a/flags": source_object(HTTP)})
    ready = mutate(request)
    assert ready.allowed
    assert ready.patch


def test_pods_of_namespaces_that_are_not_served_pass_with_a_warning() -> None:
    known = Laid(sources={"team-a/flags": source_object(HTTP)})
    mutate = reviews(lambda: known, settings(), lambda: NOW, lambda namespace: namespace != "team-a")[POD_PATH]
    response = mutate(created(ReviewedKind("", "v1", "Pod"), pod()))
    assert (response.allowed, response.patch) == (True, ())
    assert "does not serve the namespace team-a" in response.warnings[0]


def test_flags_are_checked_at_once_unless_that_is_turned_off() -> None:
    functions = reviews(lambda: None, settings(), lambda: NOW)
    good = {"metadata": {"name": "x"}, "spec": {"flagSpec": {"flags": {}}}}
    kind = ReviewedKind("core.openfeature.dev", "v1beta1", "FeatureFlag")
    assert functions[FLAG_PATH](created(kind, good)).allowed
    without = reviews(lambda: None, settings({"FLAGS_VALIDATION_ENABLED": "false"}), lambda: NOW)
    assert list(without) == [POD_PATH, WORKLOAD_PATH]
