"""Tests in a FeatureFlag, and what is said about a change of one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wigwag.flags.model import Limits
from wigwag.operator.flagtests import failing_tests
from wigwag.operator.injection.verdict import Allowed, Denied
from wigwag.operator.resources.featureflag import FlagTest
from wigwag.operator.validation import validate_feature_flag

GOLD = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}
UI: dict[str, Any] = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off", "targeting": GOLD}


def written(flags: dict[str, Any], *tests: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"spec": {"flagSpec": {"flags": flags, **more}, "tests": [*tests]}}).encode()


def test_a_change_that_keeps_all_tests_is_stored() -> None:
    gold = {"flag": "ui", "context": {"tier": "gold"}, "variant": "on"}
    verdict = validate_feature_flag(written({"ui": UI}, gold, {"flag": "ui", "variant": "off"}))
    assert verdict == Allowed()


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        (
            {"name": "gold", "flag": "ui", "context": {"tier": "gold"}, "variant": "off"},
            "spec.tests[0] (gold): flag ui gives the variant 'on' for {\"tier\":\"gold\"}, not 'off'",
        ),
        ({"flag": "ui", "variant": None}, "spec.tests[0]: flag ui gives the variant 'off' for {}, not none"),
        (
            {"flag": "ui", "variant": "offf"},
            "spec.tests[0]: flag ui gives the variant 'off' for {}, not 'offf', which is none of its variants: on, off",
        ),
        ({"flag": "opem", "variant": "on"}, "spec.tests[0]: there is no flag opem; did you mean open?"),
        ({"flag": "off", "variant": "on"}, "spec.tests[0]: flag off gives no variant (DISABLED) for {}, not 'on'"),
        ({"flag": "open", "variant": "on"}, "spec.tests[0]: flag open gives no variant (DEFAULT) for {}, not 'on'"),
    ],
)
def test_a_change_that_breaks_a_test_is_refused_with_the_case(test: dict[str, Any], reason: str) -> None:
    flags = {
        "ui": UI,
        "off": {**UI, "state": "DISABLED"},
        "open": {"state": "ENABLED", "variants": {"on": 1}},
    }
    verdict = validate_feature_flag(written(flags, test))
    assert isinstance(verdict, Denied)
    assert verdict.message == reason


def test_rules_see_the_time_of_the_test() -> None:
    late = {"if": [{">": [{"var": "$flagd.timestamp"}, 1000]}, "on"]}
    document = json.dumps({"flags": {"ui": {**UI, "targeting": late}}}).encode()
    tests = [FlagTest(flag="ui", variant=variant, timestamp=time) for time, variant in ((999, "off"), (1001, "on"))]
    assert failing_tests(document, tests, Limits()) == []


def test_tests_share_a_budget() -> None:
    costly = {"if": [{"some": [{"var": "items"}, {"==": [{"var": ""}, 1]}]}, "on", "off"]}
    document = json.dumps({"flags": {"ui": {**UI, "targeting": costly}}}).encode()
    tests = [FlagTest(flag="ui", variant="off", context={"items": [0] * 2000})] * 50
    failures = failing_tests(document, tests, Limits(steps=10_000))
    assert 0 < len(failures) < 50
    assert "fails with" in failures[-1]


def weighted(on: int, off: int, **more: Any) -> dict[str, Any]:
    return {**UI, "targeting": {"fractional": [["on", on], ["off", off]]}, **more}


@pytest.mark.parametrize(
    ("before", "after", "warning"),
    [
        (UI, {**UI, "defaultVariant": "on"}, "spec.flagSpec.flags.ui: defaultVariant off → on"),
        (UI, {**UI, "state": "DISABLED"}, "spec.flagSpec.flags.ui: state ENABLED → DISABLED"),
        (
            {**UI, "variants": {"on": 1, "off": 0, "old": 2}},
            UI,
            "spec.flagSpec.flags.ui: variants -old (clients that compare with old will not see it again)",
        ),
        (weighted(50, 50), weighted(75, 25), "spec.flagSpec.flags.ui: targeting.fractional: 25 % move from off to on"),
        (UI, {**UI, "targeting": {}}, "spec.flagSpec.flags.ui: targeting removed"),
        (
            weighted(1, 2),
            weighted(1, 2, targeting={"fractional": [{"var": "team"}, ["on", 2], ["off", 1]]}),
            "spec.flagSpec.flags.ui: targeting changed",
        ),
    ],
)
def test_a_change_says_what_it_means_for_users(before: Any, after: Any, warning: str) -> None:
    verdict = validate_feature_flag(written({"ui": after}), written({"ui": before}))
    assert isinstance(verdict, Allowed)
    assert warning in verdict.warnings


def test_flags_that_go_are_named_and_new_ones_are_not() -> None:
    verdict = validate_feature_flag(written({"b": UI}), written({"a": UI}))
    assert isinstance(verdict, Allowed)
    assert verdict.warnings == ("spec.flagSpec.flags: removed: a; clients get the defaults in their code",)


def test_shared_rules_count() -> None:
    ui = {**UI, "targeting": {"$ref": "half"}}
    documents = (
        written({"ui": ui}, **{"$evaluators": {"half": {"fractional": [["on", share], ["off", 100 - share]]}}})
        for share in (10, 20)
    )
    before, after = documents
    verdict = validate_feature_flag(after, before)
    assert isinstance(verdict, Allowed)
    assert verdict.warnings == ("spec.flagSpec.flags.ui: $evaluators.half.fractional: 10 % move from off to on",)


def test_what_was_stored_before_the_webhook_was_there_is_no_reason_to_refuse() -> None:
    for before in (b"", b"null", b"{}", b'{"spec": {"flagSpec": {"flags": 1}}}', b"["):
        assert isinstance(validate_feature_flag(written({"ui": UI}), before), Allowed)
