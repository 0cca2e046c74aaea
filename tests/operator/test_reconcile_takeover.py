"""Objects that the original has made."""

from __future__ import annotations

from typing import Any

from wigwag.operator.reconcile.takeover import takeover_patch

THEIRS = {"manager": "manager", "operation": "Update", "fieldsV1": {"f:spec": {}}}
STATUS = {**THEIRS, "subresource": "status"}
OTHER = {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {}}
OURS = {"manager": "wigwag", "operation": "Apply", "fieldsV1": {}}


def live(*entries: dict[str, Any], label: str = "open-feature-operator") -> dict[str, Any]:
    labels = {"app.kubernetes.io/managed-by": label}
    return {"metadata": {"name": "a", "resourceVersion": "5", "labels": labels, "managedFields": [*entries]}}


def test_fields_of_the_original_become_ours_and_others_stay() -> None:
    taken = {**THEIRS, "manager": "wigwag", "operation": "Apply"}
    patch = takeover_patch(live(OTHER, THEIRS, STATUS), "wigwag")
    assert patch == {"metadata": {"managedFields": [OTHER, taken, STATUS], "resourceVersion": "5"}}


def test_fields_that_are_ours_already_are_no_longer_the_originals() -> None:
    patch = takeover_patch(live(OURS, THEIRS), "wigwag")
    assert patch == {"metadata": {"managedFields": [OURS], "resourceVersion": "5"}}


def test_there_is_nothing_to_take_over() -> None:
    assert takeover_patch(live(OURS, OTHER, STATUS), "wigwag") is None
    assert takeover_patch(live(THEIRS, label="helm"), "wigwag") is None
    assert takeover_patch({"metadata": {"name": "a"}}, "wigwag") is None
