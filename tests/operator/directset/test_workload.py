"""Reviews of workloads that carry flags or follow some."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.documents import ROOT, contents
from tests.operator.known import Laid, patched, settings
from wigwag.operator.directset.document import MOST_BYTES, flag_spec
from wigwag.operator.directset.workload import WorkloadRequest, review_workload
from wigwag.operator.injection.verdict import Allowed, Denied
from wigwag.operator.names import ALLOW_FROM, CARRIER, DIRECT_SET, ENABLED, INLINE_FLAGS, REMARKS, STANDING_ORDERS
from wigwag.operator.settings import OperatorSettings
from wigwag.sources.kubernetes.references import ORDER, ORDERS

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}
GOOD = json.dumps({"flags": {"new-ui": FLAG}})
CARRIES = {INLINE_FLAGS: GOOD}
FOLLOWS = {ORDERS[0]: "base, ops/shop"}


def workload(
    own: dict[str, str] | None, template: dict[str, str] | None = None, kind: str = "Deployment", **metadata: Any
) -> dict[str, Any]:
    pods: dict[str, Any] = {"metadata": {"annotations": template}} if template is not None else {}
    spec: dict[str, Any] = {"template": pods}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    return {"kind": kind, "metadata": {"name": "web", "annotations": own, **metadata}, "spec": spec}


def review(
    made: dict[str, Any], before: Any = None, known: Laid | None = None, given: OperatorSettings | None = None
) -> Any:
    request = WorkloadRequest(made["kind"], "team-a", made, before)
    return review_workload(request, known or Laid(flags={"team-a/base": {}}), given or settings())


def reviewed(made: dict[str, Any], before: Any = None, known: Laid | None = None) -> dict[str, Any]:
    """The workload after its review; to review it again changes nothing."""
    verdict = review(made, before, known)
    assert isinstance(verdict, Allowed), verdict
    changed: dict[str, Any] = patched(made, verdict.patch)
    again = review(changed, changed, known)
    assert isinstance(again, Allowed)
    assert again.patch == ()
    return changed


def refused(
    made: dict[str, Any], before: Any = None, known: Laid | None = None, given: OperatorSettings | None = None
) -> str:
    verdict = review(made, before, known, given)
    assert isinstance(verdict, Denied), verdict
    assert verdict.code == 403
    return verdict.message


def marks(changed: dict[str, Any]) -> dict[str, str]:
    spec = changed["spec"].get("jobTemplate", changed)["spec"]
    found: dict[str, str] = spec["template"].get("metadata", {}).get("annotations", {})
    return found


@pytest.mark.parametrize("template", [None, {}, {"other": "yes"}, {DIRECT_SET: "forged", STANDING_ORDERS: "x/y"}])
def test_the_template_is_marked_with_names_and_keeps_its_own(template: dict[str, str] | None) -> None:
    changed = reviewed(workload({**CARRIES, **FOLLOWS}, template))
    kept = {name: value for name, value in (template or {}).items() if name == "other"}
    assert marks(changed) == {**kept, DIRECT_SET: "web-deployment", STANDING_ORDERS: "team-a/base,ops/shop"}


def test_another_flag_is_no_change_of_the_template() -> None:
    before = reviewed(workload(CARRIES))
    after = {
        **before,
        "metadata": {**before["metadata"], "annotations": {INLINE_FLAGS: GOOD.replace('"on"}', '"off"}')}},
    }
    assert reviewed(after, before) == after


def test_without_annotations_the_marks_go() -> None:
    before = reviewed(workload({**CARRIES, **FOLLOWS, REMARKS: "x"}, {"other": "yes"}))
    after = {**before, "metadata": {"name": "web", "annotations": None}}
    assert marks(reviewed(after, before)) == {"other": "yes"}


def test_a_workload_that_only_its_template_asks_for_is_left_alone() -> None:
    made = workload({}, {ORDERS[0]: "base"})
    assert reviewed(made) == made


def test_the_namespace_of_orders_may_have_an_annotation_of_its_own() -> None:
    known = Laid(flags={"ops/shop": {ALLOW_FROM: "team-a"}})
    changed = reviewed(workload({ORDER: '"shop"', f"{ORDER}-namespace": "ops"}), known=known)
    assert marks(changed) == {STANDING_ORDERS: "ops/shop"}


def test_jobs_are_labelled_for_the_controller() -> None:
    for kind, name in (("CronJob", "web-cronjob"), ("Job", "web-job")):
        changed = reviewed(workload(CARRIES, kind=kind))
        assert marks(changed) == {DIRECT_SET: name}
        assert changed["metadata"]["labels"] == {CARRIER: "true"}
        assert "labels" not in reviewed(workload(FOLLOWS, kind=kind))["metadata"]
    before = workload(None, kind="Job")
    assert "the pods of a Job cannot be changed" in refused(workload(CARRIES, kind="Job"), before)


@pytest.mark.parametrize(
    ("own", "template", "why"),
    [
        ({INLINE_FLAGS: "{"}, {}, f"metadata.annotations[{INLINE_FLAGS}]: $: not valid JSON"),
        ({INLINE_FLAGS: ""}, {}, "the document is empty"),
        ({INLINE_FLAGS: '{"new-ui": {}}'}, {}, "no `flags`"),
        ({INLINE_FLAGS: '{"flags": {"a": 1}}'}, {}, f"[{INLINE_FLAGS}]: $.flags.a: must be an object"),
        ({INLINE_FLAGS: " " * (MOST_BYTES + 1)}, {}, "take 65537 bytes, and an annotation may have 65536; put them"),
        ({}, CARRIES, f"spec.template.metadata.annotations[{INLINE_FLAGS}]: in a pod template, each change"),
        ({ORDERS[0]: "a/b/c"}, {}, "the annotation openfeature.io/standingorder of the Deployment has 'a/b/c'"),
        ({ORDERS[0]: ""}, {}, "names 0 FeatureFlags; name 1 to 50"),
    ],
)
def test_what_cannot_work_is_refused(own: dict[str, str], template: dict[str, str], why: str) -> None:
    assert why in refused(workload(own, template))


def test_a_flag_of_somebody_else_is_in_the_way() -> None:
    message = refused(workload(CARRIES), known=Laid(flags={"team-a/web-deployment": {}}))
    assert (
        "the FeatureFlag team-a/web-deployment, which would hold the flags, exists and is not the operator's" in message
    )


def test_a_generated_name_is_not_known_in_time() -> None:
    assert "give it a name" in refused(workload(CARRIES, name=""))


def test_what_is_no_workload_is_a_bad_request() -> None:
    for bad in ({"kind": "Deployment", "metadata": {"annotations": CARRIES}}, workload({INLINE_FLAGS: 1})):  # type: ignore[dict-item]
        assert review(bad).code == 400


def test_warnings_say_what_changes_and_what_pods_wait_for() -> None:
    before = workload(CARRIES)
    after = workload(
        {INLINE_FLAGS: GOOD.replace('"defaultVariant": "on"', '"defaultVariant": "off"'), **FOLLOWS}, {ENABLED: "false"}
    )
    warnings = "\n".join(review(after, before, Laid()).warnings)
    assert f"metadata.annotations[{INLINE_FLAGS}]: $.flags.new-ui: defaultVariant on → off" in warnings
    assert "its pods wait: FeatureFlag team-a/base does not exist" in warnings
    assert "its pods wait: FeatureFlag ops/shop is in another namespace than the pod (team-a)" in warnings
    assert 'openfeature.dev/enabled of the pod template is not "true"' in warnings


def test_flags_that_did_not_change_are_not_checked_again_and_none_are_without_validation() -> None:
    wrong = workload({INLINE_FLAGS: '{"flags": {"a": 1}}'})
    assert isinstance(review(wrong, wrong), Allowed)
    lenient = settings({"FLAGS_VALIDATION_ENABLED": "false"})
    assert isinstance(review(wrong, given=lenient), Allowed)
    assert "not valid JSON" in refused(workload({INLINE_FLAGS: "{"}), given=lenient)


def test_null_is_the_same_as_nothing() -> None:
    text = json.dumps({"flags": {"a": {**FLAG, "targeting": None}}, "metadata": {"team": "a"}})
    assert flag_spec(text) == {"flags": {"a": FLAG}, "metadata": {"team": "a"}}
    assert flag_spec('{"flags": null}') == {"flags": {}}


def test_the_guide_shows_the_example() -> None:
    guide = (ROOT / "docs/guides/workload-flags.md").read_text()
    example = (ROOT / "deploy/examples/workload-flags.yaml").read_text()
    _, _, manifests = example.partition("\n")
    assert contents(guide, "yaml") == [manifests]
