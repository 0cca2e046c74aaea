"""AdmissionReview: what is decoded, what is refused, and which responses the API server accepts."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.admission.reviews import encoded, review
from wigwag.operator.admission.review import (
    LONGEST_MESSAGE,
    LONGEST_WARNING,
    LONGEST_WARNINGS,
    MALFORMED,
    AdmissionResponse,
    allowed,
    decode_review,
    denied,
    encode_review,
    patched,
    shown,
)


def response(answer: AdmissionResponse) -> Any:
    document = json.loads(encode_review("uid", answer))
    assert (document["apiVersion"], document["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert document["response"]["uid"] == "uid"
    return document["response"]


def test_a_request_is_decoded_and_its_object_stays_raw() -> None:
    asked = decode_review(encoded(review()))
    assert (asked.operation, asked.namespace, asked.name, asked.dry_run) == ("CREATE", "team-a", "", False)
    assert (asked.kind.kind, asked.user_info.username, asked.user_info.groups) == ("Pod", "admin", ("system:masters",))
    assert json.loads(bytes(asked.object)) == review()["request"]["object"]
    assert bytes(asked.old_object) == b"null"


def test_what_a_request_may_leave_out() -> None:
    small = review()
    for name in ("namespace", "object", "oldObject", "dryRun", "options", "userInfo", "resource"):
        del small["request"][name]
    asked = decode_review(encoded(small))
    assert (asked.namespace, bytes(asked.object), asked.dry_run) == ("", b"null", None)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b'"AdmissionReview"', "Expected `object`"),
        (
            encoded({**review(), "apiVersion": "admission.k8s.io/v1beta1"}),
            "this server reviews",
        ),
        (encoded({**review(), "kind": "ConversionReview"}), "ConversionReview"),
        (encoded({**review(), "request": None}), r"\$\.request"),
        (encoded(review(uid="")), "uid is empty"),
        (encoded(review(uid=7)), r"\$\.request\.uid"),
        (encoded(review(operation="PATCH")), r"\$\.request\.operation"),
        (b"\xff\xfe" + encoded(review()), "invalid|malformed"),
        (
            encoded(review()).replace(b'"containers": []', b'"containers": ' + b"[" * 100_000 + b"]" * 100_000),
            "recursion",
        ),
    ],
)
def test_a_malformed_request_is_refused_with_the_place_of_the_fault(body: bytes, reason: str) -> None:
    with pytest.raises(MALFORMED, match=reason):
        decode_review(body)


def test_an_allowed_object_and_a_refused_one() -> None:
    assert response(allowed("OpenFeature is disabled")) == {
        "uid": "uid",
        "allowed": True,
        "status": {"code": 200, "message": "OpenFeature is disabled"},
    }
    assert response(denied(404, "no such source", warnings=["look"])) == {
        "uid": "uid",
        "allowed": False,
        "status": {"code": 404, "message": "no such source", "reason": "NotFound"},
        "warnings": ["look"],
    }


def test_a_patch_is_base64_and_goes_only_with_an_allowed_object() -> None:
    operations = [{"op": "add", "path": "/spec/initContainers", "value": []}]
    answer = response(patched(operations))
    assert answer["patchType"] == "JSONPatch"
    assert json.loads(b64decode(answer["patch"])) == operations
    assert "patch" not in response(patched([]))
    refused = response(msgspec.structs.replace(patched(operations), allowed=False, code=403))
    assert not {"patch", "patchType"} & set(refused)


def test_audit_annotations_go_along() -> None:
    answer = AdmissionResponse(allowed=True, audit_annotations={"mode": "sidecar"})
    assert response(answer)["auditAnnotations"] == {"mode": "sidecar"}


def test_a_message_that_is_too_long_is_cut() -> None:
    message = response(denied(422, "x" * 100_000))["status"]["message"]
    assert len(message) == LONGEST_MESSAGE
    assert message.endswith("…")


@given(st.lists(st.one_of(st.text(max_size=400), st.text(st.sampled_from("a\n\t\x00é"), min_size=200, max_size=600))))
def test_the_api_server_can_pass_every_warning_on_in_full(warnings: list[str]) -> None:
    lines = shown(warnings)
    assert all(line and line.isprintable() and len(line) <= LONGEST_WARNING for line in lines)
    assert sum(map(len, lines)) <= LONGEST_WARNINGS
    assert len(set(lines)) == len(lines)
    assert bool(lines) == any(any(char.isprintable() and not char.isspace() for char in each) for each in warnings)


def test_of_too_many_warnings_the_last_says_how_many_are_missing() -> None:
    lines = shown(f"{number:0200}" for number in range(1000))
    assert lines[-1] == f"and {1000 - len(lines) + 1} more warnings"
