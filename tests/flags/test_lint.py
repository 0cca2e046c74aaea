"""Every finding: its code, its place, its severity and its hint."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import wigwag
from tests.flags.test_conformance import read
from tests.strategies import flag, rules, values
from wigwag.flags.rules.operators.table import OPERATORS

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
        ({"if": [EMAIL, {"+": [EMAIL, 1]}]}, [("variant-unknown", 'targeting.if[1]["+"]', "error")]),
        ({"if": [EMAIL, None, "blue"]}, []),
        ({"if": [True, "red", EMAIL, "blue"]}, [("branch-unreachable", "targeting.if[2]", "warning")]),
        ({"if": [True, "red", "blue"]}, [("branch-unreachable", "targeting.if[2]", "warning")]),
        ({"if": [False, "red", "blue"]}, [("branch-unreachable", "targeting.if[1]", "warning")]),
        ({"if": [EMAIL, "red", EMAIL, "blue"]}, [("branch-unreachable", "targeting.if[3]", "warning")]),
        ({"fractional": [["red", 0], ["blue", 0]]}, [("weights-zero", "targeting.fractional", "warning")]),
        ({"fractional": [["red", 0], ["blue", 1]]}, []),
        (
            {"if": [EMAIL, "red", {"==": [{"var": "email"}, 5]}, "blue"]},
            [("attribute-type", 'targeting.if[2]["=="]', "warning")],
        ),
        (
            {"if": [{"in": [{"var": "a"}, ["x", "y"]]}, "red", {"<": [{"var": ["a", 0]}, 5]}, "blue"]},
            [("attribute-type", 'targeting.if[2]["<"]', "warning")],
        ),
        ({"if": [{"and": [EMAIL, {"ends_with": [{"var": "email"}, "x"]}]}, "red"]}, []),
        ({"iff": [1]}, [("operator-unknown", "targeting.iff", "error")]),
        ({"if": [{"$ref": "gone"}, "red"]}, [("ref-unknown", "targeting.if[0].$ref", "error")]),
        ({"if": [{"==": [{"var": "a"}]}, "red"]}, [("operand-count", 'targeting.if[0]["=="]', "warning")]),
        ({"if": [{"==": [1, 1], "var": "x"}, "red"]}, [("operator-ambiguous", "targeting.if[0]", "error")]),
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


RED = {"state": "ENABLED", "variants": {"red": 1}, "defaultVariant": "red"}
FAILS = "operation-fails"
LOOPED = {"some": [{"var": "items"}, {"==": [{"var": "email"}, 5]}]}


def codes(rule: Any, **more: Any) -> list[tuple[str, str]]:
    return [(code, path) for code, path, _ in lint(rule, **more)]


class TestSharedRules:
    def test_a_rule_that_refers_to_itself_twice_is_linted_at_once(self) -> None:
        evaluators = {"e": {"if": [{"var": "x"}, {"$ref": "e"}, {"$ref": "e"}]}}
        assert codes({"$ref": "e"}, evaluators=evaluators) == [
            ("ref-circular", "$.$evaluators.e.if[1].$ref"),
            ("ref-circular", "$.$evaluators.e.if[2].$ref"),
        ]

    def test_rules_that_double_at_every_step_are_linted_at_once(self) -> None:
        evaluators: dict[str, Any] = {
            f"e{n}": {"if": [EMAIL, {"$ref": f"e{n + 1}"}, {"$ref": f"e{n + 1}"}]} for n in range(90)
        }
        evaluators["e90"] = "pink"
        assert codes({"$ref": "e0"}, evaluators=evaluators) == [
            ("limit-rule", "targeting"),
            ("variant-unknown", "$.$evaluators.e90"),
        ]

    def test_a_shared_rule_is_checked_once_however_many_flags_use_it(self) -> None:
        shared: dict[str, Any] = {"or": [{"==": [{"var": "email"}, n]} for n in range(2200)]}
        user = {**RED, "targeting": {"if": [{"$ref": "e"}, "red"]}}
        document = {"flags": {f"f{n}": user for n in range(300)}, "$evaluators": {"e": shared}}
        started = time.process_time()
        assert wigwag.lint(document) == []
        old = wigwag.load(document)
        shared["or"].append({"iff": []})
        assert len(wigwag.load(document, previous=old).problems) == 1
        assert time.process_time() - started < 3

    def test_a_long_line_of_references_is_beyond_the_depth_and_no_crash(self) -> None:
        evaluators: dict[str, Any] = {f"e{n}": {"$ref": f"e{n + 1}"} for n in range(3000)}
        assert codes({"$ref": "e0"}, evaluators=evaluators | {"e3000": "red"}) == [("limit-rule", "targeting")]
        circle = evaluators | {"e3000": {"$ref": "e0"}}
        found = wigwag.lint({"flags": {"x": {**RED, "targeting": {"$ref": "e0"}}}, "$evaluators": circle})
        assert [finding.code for finding in found] == ["ref-circular", "limit-rule"]
        assert found[0].message.endswith("e0 → e1 → e2 → e3 → e4 → e5 → e6 → e7 → … → e0")

    def test_a_circle_is_found_though_no_flag_leads_to_it(self) -> None:
        evaluators = {"a": {"!": [{"$ref": "b"}]}, "b": {"!": [{"$ref": "a"}]}, "c": {"$ref": "a"}}
        found = codes({"if": [EMAIL, "red"]}, evaluators=evaluators)
        assert found[0] == ("ref-circular", '$.$evaluators.b["!"][0].$ref')
        assert [code for code, _ in found[1:]] == ["evaluator-unused"] * 3

    def test_what_is_wrong_in_a_shared_rule_keeps_the_old_flag_in_force(self) -> None:
        def document(shared: Any) -> Any:
            return {"flags": {"x": {**RED, "targeting": {"if": [{"$ref": "e"}, "red"]}}}, "$evaluators": {"e": shared}}

        old = wigwag.load(document(EMAIL))
        broken: tuple[Any, ...] = ({"iff": []}, {"$ref": "e"}, {"$ref": "gone"}, {"+": [None]}, {"+": [1] * 20_000})
        for shared in broken:
            new = wigwag.load(document(shared), previous=old)
            assert "last good" in new.problems[0].message

    def test_an_evaluator_that_is_named_by_no_text_is_unknown(self) -> None:
        for name, told in ((["e"], "an array"), (None, "null"), (1, "a number")):
            finding, unused = wigwag.lint(
                {"flags": {"x": {**RED, "targeting": {"$ref": name}}}, "$evaluators": {"e": True}}
            )
            assert finding.message == f"`$ref` needs the name of an evaluator, not {told}"
            assert (finding.code, unused.code) == ("ref-unknown", "evaluator-unused")


def test_a_computed_number_may_name_a_variant() -> None:
    flag = {"state": "ENABLED", "variants": {"1": "a", "2": "b"}, "defaultVariant": "1", "targeting": {"max": [1, 2]}}
    assert wigwag.lint({"flags": {"x": flag}}) == []


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"if": "red"}, [(FAILS, "targeting.if")]),
        ({"and": True}, [(FAILS, "targeting.and")]),
        ({"+": [None]}, [(FAILS, 'targeting["+"]'), ("variant-unknown", 'targeting["+"]')]),
        ({"cat": [True]}, [(FAILS, "targeting.cat")]),
        ({"if": [{"in": [1, "text"]}, "red"]}, [(FAILS, "targeting.if")]),
        ({"if": [EMAIL, {"cat": ["a", {"+": [None]}]}]}, [(FAILS, "targeting.if[1].cat")]),
        (
            {"if": [{"all": []}, {"var": "a"}]},
            [("operand-count", "targeting.if[0].all"), (FAILS, "targeting.if[0].all")],
        ),
        ({"if": EMAIL}, [(FAILS, "targeting.if")]),
        ({"if": [{"or": {"var": "a"}}, "red"]}, [(FAILS, "targeting.if[0].or")]),
        ({"if": [{"some": {"var": "a"}}, "red"]}, [(FAILS, "targeting.if[0].some")]),
        ({"reduce": {"var": "a"}}, [(FAILS, "targeting.reduce")]),
        ({"if": [True, "red", {"if": "red"}]}, [("branch-unreachable", "targeting.if[2]")]),
        ({"if": [{"iff": [1]}, "red"]}, [("operator-unknown", "targeting.if[0].iff")]),
        ([{"iff": [1]}], [("operator-unknown", "targeting[0].iff"), ("rule-shape", "targeting")]),
        ({"cat": ["r", "ed"]}, []),
    ],
)
def test_an_operation_that_always_fails_is_found(rule: Any, expected: Any) -> None:
    assert sorted(codes(rule)) == sorted(expected)


def test_the_message_is_the_one_that_evaluation_would_give() -> None:
    document = {"flags": {"x": {**RED, "targeting": {"cat": [True]}}}}
    assert wigwag.lint(document)[0].message == "this always fails: a boolean cannot be joined to text"
    assert "a boolean cannot be joined to text" in wigwag.load(document).resolve("x").message


def test_a_rule_beyond_a_limit_is_only_that() -> None:
    deep: Any = {"var": "a"}
    for _ in range(230):
        deep = {"!": [deep]}
    assert codes({"if": [deep, "red", "blue"]}) == [("limit-rule", "targeting")]
    assert codes({"if": [{"==": [{"var": "a"}, *range(20_000)]}, "red", "blue"]}) == [("limit-rule", "targeting")]


def test_a_constant_that_takes_too_long_is_left_alone() -> None:
    rule: Any = 1
    for _ in range(4):
        rule = {"map": [list(range(100)), rule]}
    assert codes({"if": [rule, "red", "blue"]}) == []


@pytest.mark.parametrize(
    ("condition", "place"),
    [
        ({"==": [1, 1]}, "if[2]"),
        ({"==": [1, 2]}, "if[1]"),
        ([], "if[1]"),
        ({}, "if[1]"),
        ([1], "if[2]"),
        ({"!": [[]]}, "if[2]"),
        ({"a": 1, "b": 2}, "if[2]"),
    ],
)
def test_a_condition_that_is_constant_leaves_a_branch_unreached(condition: Any, place: str) -> None:
    assert codes({"if": [condition, "red", "blue"]}) == [("branch-unreachable", f"targeting.{place}")]
    inner = {"if": [EMAIL, {"if": [condition, "red", "blue"]}]}
    assert codes(inner) == [("branch-unreachable", f"targeting.if[1].{place}")]


def test_a_branch_is_unreachable_once() -> None:
    rule = {"if": [False, "red", False, "blue", EMAIL, "red"]}
    assert codes(rule) == [("branch-unreachable", "targeting.if[1]"), ("branch-unreachable", "targeting.if[3]")]
    nothing = {"==": [1, 2]}
    assert len(codes({"if": [nothing, "red", nothing, "blue"]})) == 2


@pytest.mark.parametrize(
    ("rule", "places"),
    [
        ({"or": [{"var": "a"}, "pink", "blue"]}, ["or[1]"]),
        ({"or": [{"if": [EMAIL, "pink"]}, "rose"]}, ["or[0].if[1]", "or[1]"]),
        ({"and": ["pink", EMAIL, "rose"]}, ["and[1]", "and[2]"]),
        ({"==": [{"var": "a"}, 1]}, ['["=="]']),
        ({"if": [EMAIL, {"!": [EMAIL]}, {"in": ["a", {"var": "b"}]}]}, ['if[1]["!"]', "if[2].in"]),
        ({"or": [EMAIL, "red"]}, ['or[0]["=="]']),
        ({"and": [EMAIL, "red"]}, ["and[0]"]),
        ({"if": [EMAIL, {"and": [EMAIL, "red"]}]}, ["if[1].and[0]"]),
        ({"or": [{"and": [EMAIL, "red"]}, "blue"]}, []),
        ({"or": [{"var": "a"}, {"and": [EMAIL, "red"]}]}, ["or[1].and[0]"]),
        ({"or": [False, "", {"var": "a"}, "red"]}, []),
        ({"and": [{"var": "a"}, "red"]}, []),
    ],
)
def test_what_or_and_and_comparisons_answer_must_be_a_variant(rule: Any, places: list[str]) -> None:
    expected = [("variant-unknown", f"targeting.{place}".replace(".[", "[")) for place in places]
    assert codes(rule) == expected


def test_a_comparison_may_answer_true_or_false_if_one_of_them_is_a_variant() -> None:
    for variants in ({"true": 1, "false": 2}, {"true": 1}, {"false": 1}):
        assert codes(EMAIL, variants=variants, defaultVariant=None) == []


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([["red", None], ["blue", 1]], []),
        ([["red", 1.0], ["blue", 2.0]], []),
        ([["red", 1.5], ["blue", 1]], [("fractional-weight", "targeting.fractional[0][1]")]),
        ([["red", True], ["blue", 1]], [("fractional-weight", "targeting.fractional[0][1]")]),
        ([["red", 2147483647], ["blue", 1]], [("fractional-weight", "targeting.fractional")]),
        ([["red", 2147483647], ["blue", 0]], []),
        ([["red", 2147483647], ["blue", {"var": "n"}], ["red"]], [("fractional-weight", "targeting.fractional")]),
        ([["red", 2147483648], ["blue", 1]], [("fractional-weight", "targeting.fractional[0][1]")]),
        ([["red", 0.0], ["blue", 0]], [("weights-zero", "targeting.fractional")]),
    ],
)
def test_weights_are_judged_as_the_daemon_reads_them(shares: Any, expected: Any) -> None:
    assert codes({"fractional": shares}) == expected


@pytest.mark.parametrize(
    ("condition", "evaluators", "expected"),
    [
        (LOOPED, {}, []),
        ({"!": [{"filter": [{"var": "items"}, {"<": [1, {"var": "email"}]}]}]}, {}, []),
        ({"reduce": [{"var": "items"}, {"==": [{"var": "email"}, 5]}, 0]}, {}, []),
        ({"some": [{"var": "items"}, {"$ref": "a"}]}, {"a": {"$ref": "b"}, "b": {"==": [{"var": "email"}, 5]}}, []),
        ({"some": [{"if": [{"==": [{"var": "email"}, 5]}, [1]]}, True]}, {}, ['targeting.if[2].some[0].if[0]["=="]']),
        ({"$ref": "a"}, {"a": {"==": [{"var": "email"}, 5]}}, ['$.$evaluators.a["=="]']),
        ({"in": [{"var": "email"}, [5]]}, {}, ["targeting.if[2].in"]),
        ({"in": [{"var": "email"}, "a@b.c d@e.f"]}, {}, []),
    ],
)
def test_only_attributes_of_the_context_have_a_type(condition: Any, evaluators: Any, expected: list[str]) -> None:
    found = codes({"if": [EMAIL, "red", condition, "blue"]}, evaluators=evaluators)
    assert found == [("attribute-type", path) for path in expected]


def test_an_attribute_that_is_looked_for_in_a_text_is_text() -> None:
    rule = {"if": [{"in": [{"var": "n"}, "a text"]}, "red", {"<": [{"var": "n"}, 5]}, "blue"]}
    assert codes(rule) == [("attribute-type", 'targeting.if[2]["<"]')]


class TestManyNames:
    def test_a_hint_lists_a_few_names(self) -> None:
        variants = {f"v{n}": n for n in range(20)}
        (finding,) = wigwag.lint(
            {
                "flags": {
                    "x": {**RED, "variants": variants, "defaultVariant": None, "targeting": {"if": [EMAIL, "pink"]}}
                }
            }
        )
        assert finding.hint == "the variants are: v0, v1, v2, v3, v4, v5, v6, v7 and 12 more"

    def test_there_is_no_suggestion_among_very_many(self) -> None:
        variants = {f"variant-{n}": n for n in range(201)}
        (finding,) = wigwag.lint(
            {
                "flags": {
                    "x": {**RED, "variants": variants, "defaultVariant": None, "targeting": {"if": [EMAIL, "variant"]}}
                }
            }
        )
        assert finding.hint.endswith("and 193 more")

    def test_a_flag_has_at_most_20_unknown_answers(self) -> None:
        answers = [operand for n in range(50) for operand in (EMAIL if n == 0 else {"var": f"a{n}"}, f"pink-{n}")]
        assert len(codes({"if": answers})) == 20
        assert len(codes({"or": [{"if": [{"var": "a"}, "pink"]}] * 50})) == 20


class TestMembers:
    def test_unknown_members_are_found_with_a_suggestion(self) -> None:
        flag = {**RED, "State": "x", "defaultvariant": "x", "targetting": {}, "colour": 1}
        findings = wigwag.lint({"Flags": {}, "evaluators": {}, "flags": {"x": flag}})
        assert [(finding.code, finding.severity) for finding in findings] == [("member-unknown", "warning")] * 6
        assert [(finding.path, finding.hint) for finding in findings] == [
            ("$.Flags", "did you mean `flags`?"),
            ("$.evaluators", "did you mean `$evaluators`?"),
            ("$.flags.x.State", "did you mean `state`?"),
            ("$.flags.x.defaultvariant", "did you mean `defaultVariant`?"),
            ("$.flags.x.targetting", "did you mean `targeting`?"),
            ("$.flags.x.colour", ""),
        ]

    def test_known_members_are_fine_also_those_of_payloads(self) -> None:
        flag = {**RED, "key": "x", "targeting": {}, "metadata": {}, "source": "a", "selector": "b"}
        assert wigwag.lint({"$schema": "", "flags": [flag], "metadata": {}, "$evaluators": {}}) == []

    def test_flags_in_quarantine_and_in_arrays_are_looked_at_too(self) -> None:
        findings = wigwag.lint({"flags": [{"key": "x", "variants": 1, "Variants": {}}, 5]})
        assert findings[-1].path == "$.flags[0].Variants"

    def test_loading_minds_no_unknown_members(self) -> None:
        assert wigwag.load({"flags": {"x": {**RED, "colour": 1}}, "more": 1}).problems == ()


def test_messages_are_in_plain_words() -> None:
    def messages(**flag: Any) -> list[str]:
        return [finding.message for finding in wigwag.lint({"flags": {"x": {**RED, **flag}}})]

    assert messages(state=None) == ["there is no state; anything but DISABLED counts as enabled"]
    assert messages(targeting=[1])[0].startswith("the rule is an array, not an object")
    assert messages(metadata={"a": []}) == ["a metadata value cannot be an array"]
    assert messages(variants={"red": None}) == ["null cannot be asked for by type"]
    version = {"if": [{"sem_ver": ["1", ["="], {"var": "v"}]}, "red"]}
    assert messages(targeting=version) == ["a version operator is text, not an array"]


anything = st.one_of(values, rules)
arguments = st.one_of(anything, st.lists(anything, min_size=1, max_size=3))


@given(rules, st.dictionaries(st.sampled_from(["a", "b"]), anything, max_size=2))
def test_any_rule_can_be_checked(rule: Any, evaluators: Any) -> None:
    document = {"flags": {"x": flag(rule), "y": flag({"if": [rule, {"$ref": "a"}]})}, "$evaluators": evaluators}
    found = wigwag.lint(document)
    assert all(finding.message for finding in found)
    assert set(wigwag.load(document).problems) <= set(found)


@given(arguments)
@example(["1", ["="], "2"])
@example(["a"])
@example({"a": 1, "b": 2})
def test_every_operator_can_be_checked_with_any_argument(argument: Any) -> None:
    operations = [{name: argument} for name in (*OPERATORS, "$ref", "nope")]
    used = {f"flag-{n}": flag({"if": [operation, "on"]}) for n, operation in enumerate(operations)}
    document = {"flags": used, "$evaluators": {f"e{n}": operation for n, operation in enumerate(operations)}}
    assert wigwag.lint(document)
    assert wigwag.load(document).problems


@given(st.dictionaries(st.sampled_from(["state", "variants", "targeting", "metadata", "key", "x"]), values), values)
def test_any_flag_can_be_checked(flag: Any, other: Any) -> None:
    for flags in ({"x": flag, "y": other}, [flag, other]):
        assert all(finding.message for finding in wigwag.lint({"flags": flags, "more": other}))
