"""All parts agree on what an error is: the same finding has the same severity, and the same consequence, everywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET

import wigwag
from wigwag.flags.checks.catalogue import CATALOGUE, Effect

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
BETA = {"==": [{"var": "group"}, "beta"]}
USER = {"group": "beta"}
GOOD = {**FLAG, "targeting": {"if": [BETA, "on"]}}


def document(rule: Any, evaluators: Any = None, **more: Any) -> dict[str, Any]:
    return {"flags": {"x": {**FLAG, "targeting": rule}, **more}, "$evaluators": evaluators or {}}


def test_an_error_always_has_a_consequence_and_a_warning_never_keeps_a_flag_back() -> None:
    served = (Effect.REPORT, Effect.LINT_ONLY)
    for code, entry in CATALOGUE.items():
        assert (entry.severity == "error") == (entry.effect not in served), code


WRONG_ANSWERS = [
    {"if": [BETA, "onn"]},
    {"if": [BETA, "on", "of"]},
    {"if": [BETA, 5]},
    {"or": [{"var": "x"}, "onn"]},
    {"fractional": [{"var": "email"}, ["on", 50], ["onn", 50]]},
    BETA,
    {"sem_ver": [{"var": "version"}, ">=", "1.0.0"]},
    {"starts_with": [{"var": "email"}, "a"]},
    {"ends_with": [{"var": "email"}, "z"]},
    {"if": [{"sem_ver": [{"var": "version"}, ">=", "1.0.0"]}]},
    {"if": [BETA]},
    {"$ref": "shared"},
    "onn",
]


@pytest.mark.parametrize("rule", WRONG_ANSWERS, ids=str)
def test_an_answer_that_is_no_variant_does_not_replace_a_definition_that_works(rule: Any) -> None:
    text = document(rule, {"shared": {"if": [BETA, "onn"]}})
    old = wigwag.load({"flags": {"x": GOOD}})
    new = wigwag.load(text, previous=old)
    assert new.flag("x") is old.flag("x")
    assert (new.resolve("x", context=USER).variant, new.resolve("x").variant) == ("on", "off")
    (problem,) = (each for each in new.layers[0].problems)
    assert (problem.code, problem.severity) == ("variant-unknown", "error")
    assert "stays in force" in problem.message
    assert problem.hint
    assert [each.code for each in wigwag.lint(text) if each.severity == "error"] == ["variant-unknown"]
    with pytest.raises(wigwag.DocumentError, match="variant-unknown"):
        wigwag.load(text, strict=True)


def test_without_a_last_good_definition_it_is_served_as_flagd_serves_it() -> None:
    flags = wigwag.load(document({"if": [BETA, "onn"]}))
    assert flags.resolve("x").variant == "off"
    assert flags.resolve("x", context=USER).error == "GENERAL"
    assert [(each.code, each.severity) for each in flags.problems] == [("variant-unknown", "error")]
    edited = wigwag.load(document({"if": [BETA, "onnn"]}), previous=flags)
    assert "'onnn'" in edited.resolve("x", context=USER).message


def test_a_variant_that_goes_while_a_rule_names_it_keeps_the_flag_as_it_was() -> None:
    old = wigwag.load({"flags": {"x": GOOD}})
    new = wigwag.load({"flags": {"x": {**GOOD, "variants": {"off": False}}}}, previous=old)
    assert new.resolve("x", context=USER).variant == "on"


def test_a_shared_rule_with_a_wrong_answer_names_each_flag_that_it_is_wrong_for() -> None:
    fine = {**FLAG, "variants": {"onn": 1}, "defaultVariant": None, "targeting": {"$ref": "shared"}}
    text = document(
        {"$ref": "shared"}, {"shared": {"if": [BETA, "onn"]}}, y=GOOD | {"targeting": {"$ref": "shared"}}, z=fine
    )
    problems = wigwag.load(text).problems
    assert [each.message.rpartition(" ")[2] for each in problems] == ["'x'", "'y'"]
    assert {each.path for each in problems} == {"$.$evaluators.shared.if[1]"}


def test_only_rules_of_changed_flags_are_read() -> None:
    flags = {f"f{n}": GOOD for n in range(50)}
    old = wigwag.load(json.dumps({"flags": flags}))
    changed = {**flags, "f7": {**GOOD, "targeting": {"if": [BETA, "off"]}}}
    new = wigwag.load(json.dumps({"flags": changed}), previous=old)

    def read(flags: wigwag.FlagSet) -> set[str]:
        return {flag.key for flag in flags.flags() if flag._rule is not UNSET}

    assert (read(old), read(new)) == (set(), {"f7"})


CONDITION = {"==": [{"var": "tier"}, "gold"], "in": [{"var": "country"}, ["de"]]}


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ({"if": [CONDITION, "on"]}, "if[0]"),
        ({"if": [{"and": [BETA, CONDITION]}, "on"]}, "if[0].and[1]"),
        ({"if": [{"!": CONDITION}, "on"]}, 'if[0]["!"]'),
        ({"if": [{"some": [{"var": "items"}, CONDITION]}, "on"]}, "if[0].some[1]"),
        ({"if": [BETA, {"if": [BETA, "on"], "var": "x"}]}, "if[1]"),
        ({"if": [{"==": [1, {"var": "x"}], "comment": "one operator is enough"}, "on"]}, "if[0]"),
        ({"if": [BETA, "on"], "fractional": [["on", 1]]}, ""),
    ],
)
def test_several_operators_in_one_object_are_an_error_where_they_decide(rule: Any, path: str) -> None:
    found = [each for each in wigwag.lint(document(rule)) if each.code == "operator-ambiguous"]
    where = "$.flags.x.targeting" + (f".{path}" if path else "")
    assert [(each.path, each.severity) for each in found] == [(where, "error")]
    old = wigwag.load({"flags": {"x": GOOD}})
    assert wigwag.load(document(rule), previous=old).flag("x") is old.flag("x")


def test_data_that_looks_like_operators_is_only_a_warning() -> None:
    rule = {"if": [{"==": [{"var": "limits"}, {"min": 1, "max": 2}]}, "on"]}
    assert [(each.code, each.severity) for each in wigwag.lint(document(rule))] == [("operator-data", "warning")]


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ({">": [{"var": "$flagd.timestamp"}, "2025-01-01"]}, "write 1735689600"),
        ({"<": ["2025-01-01T01:00:00+01:00", {"var": ["$flagd.timestamp", 0]}]}, "write 1735689600"),
        ({"==": [{"var": "$flagd.timestamp"}, "1735689600"]}, "write 1735689600, without quotes"),
        ({">=": [{"var": "$flagd.timestamp"}, "noon"]}, "write a number such as 1735689600"),
    ],
)
def test_a_timestamp_that_is_compared_with_text_is_found(condition: Any, hint: str) -> None:
    found = wigwag.lint(document({"if": [condition, "on"]}))
    assert [(each.code, each.severity, each.hint) for each in found] == [("timestamp-text", "warning", hint)]


def test_a_timestamp_that_is_compared_with_a_number_is_fine() -> None:
    assert wigwag.lint(document({"if": [{">": [{"var": "$flagd.timestamp"}, 1735689600]}, "on"]})) == []


@pytest.mark.parametrize(
    ("condition", "swapped"),
    [
        ({"in": [["de", "at"], {"var": "country"}]}, True),
        ({"in": [{"var": "email"}, "@example.com"]}, True),
        ({"in": ["country", ["de", "at"]]}, True),
        ({"in": [{"var": "country"}, ["de", "at"]]}, False),
        ({"in": ["@example.com", {"var": "email"}]}, False),
        ({"in": [{"var": "country"}, "de,at"]}, False),
        ({"in": [[1], [[1], [2]]]}, False),
    ],
)
def test_swapped_operands_of_in_are_found(condition: Any, swapped: bool) -> None:
    found = [each.code for each in wigwag.lint(document({"if": [condition, "on"]}))]
    assert ("operands-swapped" in found) is swapped


@pytest.mark.parametrize(
    ("shares", "code"),
    [
        ([["on", 0], ["off", 0]], "weights-zero"),
        ([["on", -1], ["off", 0]], "weights-zero"),
        ([["on", 0.5], ["off", 0.5]], "fractional-weight"),
        ([["on", 3_000_000_000], ["off", 1]], "fractional-weight"),
        ([["on", 2_000_000_000], ["off", 2_000_000_000]], "fractional-weight"),
        (["on", "off"], "fractional-share"),
    ],
)
def test_weights_that_void_a_split_say_so_and_the_agent_hears_of_it(shares: Any, code: str) -> None:
    rule = {"fractional": [{"var": "email"}, *shares]}
    (problem,) = {each.code: each for each in wigwag.load(document(rule)).problems if each.code == code}.values()
    assert problem.message.endswith("nobody gets any of these variants, and the default variant applies")
    assert wigwag.load(document(rule)).resolve("x", context={"email": "a"}).reason == "DEFAULT"


def test_an_evaluator_is_used_though_the_flag_that_uses_it_is_in_quarantine() -> None:
    evaluators = {"shared": {"$ref": "inner"}, "inner": BETA, "idle": BETA}
    bad = {**FLAG, "defaultVariant": "gone", "targeting": {"if": [{"$ref": "shared"}, "on"]}}
    found = wigwag.lint({"flags": {"x": bad}, "$evaluators": evaluators})
    assert [(each.code, each.path) for each in found] == [
        ("default-variant-unknown", "$.flags.x.defaultVariant"),
        ("evaluator-unused", "$.$evaluators.idle"),
    ]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("flags: {x: {defaultVariant: true, variants: {a: 1}}}", "must be text, not a boolean", "put it in quotes"),
        ("flags: {x: {state: 1, variants: {a: 1}}}", "must be text, not a number", "put it in quotes"),
        ("flags: {x: {variants: [a]}}", "must be an object, not an array", ""),
        ("flags: {x: 5}", "must be an object, not a number", ""),
        (
            "flags: {x: {variants: {on: 1}, defaultVariant: onn}}",
            "the default variant 'onn' is not",
            "did you mean `on`?",
        ),
        ("flag: {}", "no `flags`; did you mean `flags` instead of `flag`?", ""),
        ("Flags: {}", "no `flags`; did you mean `flags` instead of `Flags`?", ""),
        ("other: {}", 'no `flags`; a document without flags says {"flags": {}}', ""),
        ("", "the document is empty", ""),
        (" \n", "the document is empty", ""),
        ("flags:\n  x:\n\tstate: ENABLED", "a tab; YAML is indented with spaces", ""),
        ("flags: {x: @me}", "a value cannot start with '@'; put it in quotes", ""),
    ],
)
def test_messages_say_what_to_do(text: str, message: str, hint: str) -> None:
    found = wigwag.lint(text, format="yaml")[0]
    assert message in found.message
    assert not hint or found.hint == hint
