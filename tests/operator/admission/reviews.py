"""AdmissionReviews for tests."""

from __future__ import annotations

import json
from typing import Any


def review(**changes: Any) -> dict[str, Any]:
    """Return an AdmissionReview as an API server sends it."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": kind,
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {"username": "admin", "uid": "1", "groups": ["system:masters"], "extra": {"a": ["b"]}},
        "object": {"metadata": {"generateName": "web-"}, "spec": {"containers": []}},
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        **changes,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()
