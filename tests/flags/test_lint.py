"""Every finding: its code, its place, its severity and its hint."""

from __future__ import annotations

from typing import Any

import pytest

import wigwag
from tests.flags.test_conformance import read

GOOD = {"state": "ENABLED", "variants": {"red": 1, "blue": 2}, "defaultVariant": "red"}
EMAIL = {"==": [{"var": "email"}, "a"]}


def lint(rule: Any = None, evaluators: Any = None, **flag: Any) -> list[tuple[str, str, str]]:
    definition = {**GOOD, **({"targeting": rule} if rule is not None else {}), **flag}
    findings = wigwag.lint({"flags": {"x": definition}, "$evaluators": evaluators or {}})
    assert all(finding.message for finding in findings)
    return [(finding.code, finding.path.removeprefix("$.flags.x."), finding.severity) for finding in findings]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"if": [EMAIL, "purple", "blue"]}, [("variant-unknown", "targeting.if[1]", "error")]),
        ({"if": [EMAIL, "blue", "bleu"]}, [("variant-unknown", "targeting.if[2]", "error")]),
        ({"if": [EMAIL, {"if": [EMAIL, "nope"]}]}, [("variant-unknown", "targeting.if[1].if[1]", "error")]),
        ({"fractional": [["red", 1], ["pink", 1]]}, [("variant-unknown", "targeting.fractional[1][0]", "error")]),
        ({"if": [EMAIL, True]}, [("variant-unknown", "targeting.if[1]", "error")]),
        ({"if": [EMAIL, None, "blue"]}, []),
        ({"if": [True, "red", EMAIL, "blue"]}, [("branch-unreachable", "targeting.if[2]", "warning")]),
        ({"if": [True, "red", "blue"]}, [("branch-unreachable", "targeting.if[2]", "warning")]),
        ({"if": [False, "red", "blue"]}, [("branch-unreachable", "targeting.if[1]", "warning")]),
        ({"if": [EMAIL, "red", EMAIL, "blue"]}, [("branch-unreachable", "targeting.if[3]", "warning")]),
        ({"fractional": [["red", 0], ["blue", 0]]}, [("weights-zero", "targeting.fractional", "warning")]),
        ({"fractional": [["red", 0], ["blue", 1]]}, []),
        (
            {"and": [EMAIL, {"==": [{"var": "email"}, 5]}]},
            [("attribute-type", 'targeting.and[1]["=="]', "warning")],
        ),
        (
            {"and": [{"in": [{"var": "a"}, ["x", "y"]]}, {"<": [{"var": ["a", 0]}, 5]}]},
            [("attribute-type", 'targeting.and[1]["<"]', "warning")],
        ),
        ({"and": [EMAIL, {"ends_with": [{"var": "email"}, "x"]}]}, []),
        ({"iff": [1]}, [("operator-unknown", "targeting.iff", "error")]),
        ({"if": [{"$ref": "gone"}, "red"]}, [("ref-unknown", "targeting.if[0].$ref", "error")]),
        ({"==": [1]}, [("operand-count", 'targeting["=="]', "warning")]),
        ({"if": [{"==": [1, 1], "var": "x"}, "red"]}, [("operator-ambiguous", "targeting.if[0]", "warning")]),
        ("red", [("rule-shape", "targeting", "warning")]),
        ({"var": "$flagd.nope"}, [("flagd-property", "targeting.var", "warning")]),
        ({"fractional": [EMAIL, "red"]}, [("fractional-share", "targeting.fractional[1]", "warning")]),
        ({"fractional": [EMAIL]}, [("fractional-share", "targeting.fractional", "warning")]),
    ],
)
def test_a_rule_that_looks_wrong_is_found(rule: Any, expected: Any) -> None:
    assert lint(rule) == expected


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ({"variants": {"red": 1, "blue": "2"}}, [("variants-mixed", "variants", "warning")]),
        ({"variants": {}, "defaultVariant": None}, [("variants-missing", "variants", "warning")]),
        ({"variants": {"red": [1]}}, [("variant-type", "variants.red", "warning")]),
        ({"defaultVariant": "pink"}, [("default-variant-unknown", "defaultVariant", "error")]),
        ({"state": "ON"}, [("state-unknown", "state", "warning")]),
        ({"metadata": {"a": {}}}, [("metadata-value", "metadata.a", "warning")]),
        ({"metadata": {"flagSetId": 5}}, [("metadata-value", "metadata.flagSetId", "warning")]),
        ({"variants": 5}, [("flag-shape", "variants", "error")]),
        ({}, []),
    ],
)
def test_a_flag_that_looks_wrong_is_found(flag: Any, expected: Any) -> None:
    assert lint(**flag) == expected


def test_evaluators_are_checked_and_must_be_used() -> None:
    found = lint({"if": [{"$ref": "a"}, "red"]}, {"a": {"$ref": "b"}, "b": True, "c": {"iff": []}})
    assert found == [
        ("operator-unknown", "$.$evaluators.c.iff", "error"),
        ("evaluator-unused", "$.$evaluators.c", "warning"),
    ]


def test_a_typo_comes_with_a_suggestion() -> None:
    def hint(rule: Any) -> str:
        document = {"flags": {"x": {**GOOD, "targeting": rule}}, "$evaluators": {"is_employee": True}}
        return wigwag.lint(document)[0].hint

    assert hint({"if": [{"$ref": "is_employe"}, "red"]}) == "did you mean `is_employee`?"
    assert hint({"start_with": [{"$ref": "is_employee"}, "red"]}) == "did you mean `starts_with`?"
    assert hint({"if": [{"$ref": "is_employee"}, "bleu"]}) == "did you mean `blue`?"


def test_a_flag_hidden_by_another_source_is_found() -> None:
    findings = wigwag.lint({"flags": {"x": GOOD, "y": GOOD}}, {"flags": {"x": GOOD}})
    assert [(finding.code, finding.source, finding.path) for finding in findings] == [
        ("flag-shadowed", "#1", "$.flags.x")
    ]


def test_duplicate_members_are_found_with_their_path() -> None:
    text = (
        '{"flags": {"x": {"state": "ENABLED", "state": "DISABLED", "variants": {"a": 1}}, "x": {"variants": {"b": 1}}}}'
    )
    found = [(finding.code, finding.path) for finding in wigwag.lint(text) if finding.code == "duplicate-key"]
    assert found == [("duplicate-key", "$.flags.x")]
    inner = '{"flags": {"x": {"state": "ENABLED", "variants": {"a": 1, "a": 2}}}}'
    assert [finding.path for finding in wigwag.lint(inner)] == ["$.flags.x.variants.a"]


def test_a_document_that_cannot_be_read_is_a_finding() -> None:
    (finding,) = wigwag.lint("{")
    assert (finding.code, finding.severity, finding.path) == ("document-rejected", "error", "$")
    (finding,) = wigwag.lint('{"flags": 1}')
    assert finding.path == "$.flags"


def test_findings_are_sorted_worst_first_and_become_json() -> None:
    flag = {**GOOD, "state": "?", "targeting": {"iff": []}}
    findings = wigwag.lint({"flags": {"x": flag}})
    assert [finding.severity for finding in findings] == ["error", "warning"]
    assert findings[0].to_dict() == {
        "code": "operator-unknown",
        "path": "$.flags.x.targeting.iff",
        "severity": "error",
        "message": "unknown operator `iff`",
        "hint": "did you mean `if`?",
        "source": "",
    }


def test_the_flags_of_the_conformance_suites_have_only_the_mistakes_they_were_given() -> None:
    found = {finding.code for suite in ("evaluator", "provider") for finding in wigwag.lint(read(f"{suite}-flags"))}
    assert found == {
        "attribute-type", "branch-unreachable", "fractional-weight", "operand-count", "operand-type",
        "operator-unknown", "ref-unknown", "semver-operator", "semver-version", "variant-unknown", "weights-zero",
    }  # fmt: skip
