"""An explanation agrees with the evaluation, whatever the rule, and says why."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import wigwag
from tests.strategies import contexts, flag, rules

NOW = 1_700_000_000.0


@settings(max_examples=400)
@given(rules, contexts, st.sampled_from(["v2", "v3"]), st.sampled_from(["off", None]))
def test_an_explanation_agrees_with_the_evaluation(rule: Any, context: Any, version: Any, default: Any) -> None:
    flags = wigwag.load({"flags": {"x": flag(rule, default)}}, fractional=version)
    found = flags.resolve("x", None, None, context, NOW)
    explanation = flags.explain("x", context, NOW)
    assert explanation.resolution == found
    assert str(explanation)
    json.dumps(explanation.to_dict(), default=str)


def explain(rule: Any, context: dict[str, Any] | None = None) -> wigwag.Explanation:
    return wigwag.load({"flags": {"x": flag(rule)}, "$evaluators": {"adult": {">": [{"var": "age"}, 17]}}}).explain(
        "x", context, NOW
    )


def test_it_shows_which_branch_was_taken_and_only_what_was_evaluated() -> None:
    rule = {"if": [{"var": "a"}, "on", {"var": "b"}, "red", "off"]}
    for context, branch, seen in (({"a": 1}, 1, 2), ({"b": 1}, 2, 3), ({}, "else", 3)):
        root = explain(rule, context).root
        assert root is not None
        assert root.details == {"branch": branch}
        assert len(root.inputs) == seen
    assert explain({"if": [False, "on"]}).root.note == "no branch taken"  # type: ignore[union-attr]


def test_it_shows_which_attribute_was_missing() -> None:
    told = explain({"if": [{"==": [{"var": "user.name"}, "fay"]}, "on"]}, {"user": {}}).to_dict()
    variable = told["targeting"]["inputs"][0]["inputs"][0]
    assert variable["details"] == {"attribute": "user.name", "missing": True}
    assert variable["path"] == '$.flags.x.targeting.if[0]["=="][0]'
    assert variable["note"] == "missing from the context"


def test_it_shows_the_bucket_of_a_fractional() -> None:
    root = explain({"fractional": [{"var": "email"}, ["on", 30], ["off", 70]]}, {"email": "ceQdGm"}).root
    assert root is not None
    assert root.details == {"hash": 4294967295, "position": 99, "boundaries": [30, 100]}
    nobody = explain({"fractional": [["on", 30], ["off", 70]]}, {}).root
    assert nobody is not None
    assert nobody.note == "nothing to bucket by"


def test_it_follows_references_and_names_them() -> None:
    explanation = explain({"if": [{"$ref": "adult"}, "on"]}, {"age": 20})
    text = str(explanation)
    assert "$ref adult → true" in text
    assert explanation.to_dict()["targeting"]["inputs"][0]["inputs"][0]["path"] == "$.$evaluators.adult"


def test_it_shows_where_a_rule_failed() -> None:
    explanation = explain({"if": [{"%": [{"var": "n"}, 2]}, "on"]})
    assert explanation.resolution.error == "PARSE_ERROR"
    assert "% → failed: null (a missing attribute?) is not a number" in str(explanation)


def test_flags_without_a_rule_are_explained_in_one_line() -> None:
    flags = wigwag.load({"flags": {"s": {"variants": {"v": 5}, "defaultVariant": "v"}, "n": {"variants": {"v": 5}}}})
    assert str(flags.explain("s")) == "s = 5 (variant v, STATIC)"
    assert str(flags.explain("n")) == "n: no value, the caller's default applies (DEFAULT)"
    assert str(flags.explain("nope")) == "nope: FLAG_NOT_FOUND: flag 'nope' does not exist"


def test_a_long_walk_is_told_in_bounded_space_and_says_so() -> None:
    rule = {"if": [{"all": [{"var": "tags"}, {">": [{"var": ""}, 0]}]}, "on", "off"]}
    explanation = explain(rule, {"tags": [1] * 20_000})
    assert explanation.resolution.variant == "on"
    assert explanation.root is not None
    assert explanation.root.details == {"branch": 1}
    assert "… and 19980 more elements" in str(explanation)
    assert len(str(explanation).splitlines()) < 100


def test_a_default_that_stands_in_for_a_missing_attribute_is_told_from_a_value() -> None:
    rule = {"if": [{"==": [{"var": ["tier", "free"]}, "free"]}, "on"]}
    assert "missing from the context, so its default" in str(explain(rule, {}))
    assert "missing" not in str(explain(rule, {"tier": "free"}))
