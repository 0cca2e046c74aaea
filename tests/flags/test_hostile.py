"""Input made to hurt: a clear error in bounded time and memory, never a crash, never a lost neighbour."""

from __future__ import annotations

import json
import resource
import sys
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wigwag
from tests.strategies import values
from wigwag import DocumentError, Limits

FORMS: tuple[Literal["json", "yaml"] | None, ...] = ("json", "yaml", None)
GOOD = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}


def nested(depth: int, rule: Any = True) -> Any:
    for _ in range(depth):
        rule = {"!": [rule]}
    return rule


def raw(flag: str) -> wigwag.FlagSet:
    """Load a document with one hostile flag, given as text, beside a good one."""
    return wigwag.load(f'{{"flags": {{"good": {json.dumps(GOOD)}, "bad": {flag}}}}}')


@pytest.mark.parametrize("depth", [150, 400])
def test_a_deeply_nested_rule_answers_parse_error_and_is_reported(depth: int) -> None:
    flags = raw(json.dumps({**GOOD, "targeting": nested(depth)}))
    assert flags.resolve("bad").error == "PARSE_ERROR"
    assert "deep" in flags.resolve("bad").message
    assert ("$.flags.bad.targeting", "limit-rule") in [(problem.path, problem.code) for problem in flags.problems]
    assert flags.resolve("good").value is True
    assert flags.flag("bad").digest  # type: ignore[union-attr]


def test_nesting_beyond_what_the_parser_takes_is_refused() -> None:
    rule = "[" * 100_000 + "]" * 100_000
    with pytest.raises(DocumentError, match="nested too deeply"):
        raw(f'{{"variants": {{"on": 1}}, "targeting": {rule}}}')
    with pytest.raises(DocumentError, match="nested too deeply"):
        wigwag.load('{"flags": ' + "[" * 100_000)


def test_deep_values_are_quarantined() -> None:
    flags = raw(f'{{"variants": {{"on": {"[" * 300}{"]" * 300}}}}}')
    assert flags.keys() == ("good",)
    assert flags.problems[0].path == "$.flags.bad.variants"


def test_deep_python_objects_and_circles_are_refused() -> None:
    with pytest.raises(DocumentError, match="JSON"):
        wigwag.load({"flags": {"a": {"variants": nested(100_000)}}})
    circle: dict[str, Any] = {}
    circle["flags"] = circle
    with pytest.raises(DocumentError, match=r"[Cc]ircular"):
        wigwag.load(circle)


def test_a_huge_rule_is_refused_whole() -> None:
    flags = raw(json.dumps({**GOOD, "targeting": {"+": [1] * 100_000}}))
    assert flags.resolve("bad").error == "PARSE_ERROR"
    assert "rule_nodes" in flags.resolve("bad").message


def test_a_huge_array_in_the_context_is_walked_once_or_refused() -> None:
    rule = {"some": [{"var": "xs"}, {"some": [{"var": "xs"}, {"==": [{"var": ""}, -1]}]}]}
    flags = wigwag.load({"flags": {"a": {**GOOD, "targeting": rule}}})
    found = flags.resolve("a", context={"xs": list(range(10_000))})
    assert (found.error, "steps" in found.message) == ("PARSE_ERROR", True)


def test_references_that_double_at_every_step_are_refused() -> None:
    evaluators: dict[str, Any] = {f"e{n}": {"and": [{"$ref": f"e{n + 1}"}] * 2} for n in range(60)}
    evaluators["e60"] = True
    flags = wigwag.load({"flags": {"a": {**GOOD, "targeting": {"$ref": "e0"}}}, "$evaluators": evaluators})
    assert flags.resolve("a").error == "PARSE_ERROR"
    assert [problem.code for problem in flags.problems if problem.path.startswith("$.flags")] == ["limit-rule"]
    assert flags.id
    assert wigwag.lint({"flags": {"a": {**GOOD, "targeting": {"$ref": "e0"}}}, "$evaluators": evaluators})


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 5000])
def test_numbers_that_json_does_not_have_are_an_error(number: str) -> None:
    for member in (f'"variants": {{"on": {number}}}', f'"variants": {{"on": 1}}, "targeting": {{"+": [{number}]}}'):
        try:
            flags = raw(f"{{{member}}}")
        except DocumentError:
            continue
        assert flags.resolve("good").value is True
        assert flags.resolve("bad").error in ("FLAG_NOT_FOUND", "PARSE_ERROR")
        assert any(problem.severity == "error" for problem in flags.problems)


@pytest.mark.parametrize("text", ['"\\ud800"', '"\\udc00\\ud800"', '"a\\ud83dz"'])
def test_half_a_surrogate_pair_is_replaced_and_reported(text: str) -> None:
    for member in (f'"variants": {{"on": {text}}}', f'"variants": {{"on": 1}}, "targeting": {{"cat": [{text}]}}'):
        flags = raw(f"{{{member}}}")
        assert flags.resolve("good").value is True
        assert "text-mended" in [problem.code for problem in flags.problems]
    assert "\ufffd" in str(raw(f'{{"variants": {{"on": {text}}}, "defaultVariant": "on"}}').resolve("bad").value)
    with pytest.raises(DocumentError, match="surrogate"):
        wigwag.load({"flags": {"a": {"variants": {"x": "\ud800"}}}})
    with pytest.raises(DocumentError, match="surrogate"):
        wigwag.load('{"flags": {"\ud800": {}}}')


def test_text_that_is_not_utf_8_is_quarantined() -> None:
    good = json.dumps(GOOD).encode()
    flags = wigwag.load(b'{"flags": {"good": %s, "bad": {"variants": {"on": "\xff"}}}}' % good)
    assert flags.keys() == ("good",)
    assert "UTF-8" in flags.problems[0].message
    flags = wigwag.load(b'{"flags": {"bad": {"variants": {"on": 1}, "targeting": {"var": "\xff"}}}}')
    assert flags.resolve("bad").error == "PARSE_ERROR"
    assert flags.problems[-1].code == "rule-undecodable"


def test_surrogates_in_a_context_are_only_text() -> None:
    rule = {"if": [{"fractional": [{"var": "k"}, ["on", 1]]}, "on"]}
    for version in ("v2", "v3"):
        flags = wigwag.load({"flags": {"a": {**GOOD, "targeting": rule}}}, fractional=version)
        assert flags.resolve("a", context={"k": "\ud800", "targetingKey": "\udfff"}).variant == "on"


def test_duplicate_keys_keep_the_last_and_are_reported() -> None:
    flags = wigwag.load('{"flags": {"a": {"variants": {"on": 1}}, "a": {"state": "ENABLED", "variants": {"on": 2}}}}')
    assert flags.flag("a").variants == {"on": 2}  # type: ignore[union-attr]
    assert [(problem.code, problem.path) for problem in flags.problems] == [("duplicate-key", "$.flags.a")]


def test_a_large_document_loads_and_a_larger_one_is_refused() -> None:
    flags = {f"flag-{n}": {**GOOD, "variants": {"on": "x" * 900}} for n in range(10_000)}
    text = json.dumps({"flags": flags})
    assert len(text) > 9_000_000
    assert len(wigwag.load(text)) == 10_000
    with pytest.raises(DocumentError, match="document_bytes"):
        wigwag.load(text, limits=Limits(document_bytes=1_000_000))


def test_a_string_beyond_the_limit_is_quarantined() -> None:
    flags = wigwag.load({"flags": {"a": {"variants": {"on": "x" * 200}}, "b": GOOD}}, limits=Limits(string_length=100))
    assert flags.keys() == ("b",)
    assert "string_length" in flags.problems[0].message


def test_a_version_of_thousands_of_digits_is_no_version() -> None:
    rule = {"if": [{"sem_ver": [{"var": "v"}, ">", "1.0.0"]}, "on"]}
    flags = wigwag.load({"flags": {"a": {**GOOD, "targeting": rule}}})
    assert flags.resolve("a", context={"v": "9" * 100_000}).reason == "DEFAULT"
    assert flags.resolve("a", context={"v": 10**5000}).reason == "DEFAULT"


def test_numbers_of_thousands_of_digits_in_a_context_are_no_crash() -> None:
    huge = 10**6000
    for rule in (
        {"cat": [{"var": "n"}]},
        {"+": [{"var": "n"}, 0.5]},
        {"var": "n"},
        {"%": [{"var": "n"}, 7]},
        {"substr": ["abc", {"var": "n"}]},
        {"missing_some": [{"var": "n"}, ["x"]]},
        {"max": [{"var": "n"}]},
    ):
        flags = wigwag.load({"flags": {"a": {**GOOD, "targeting": rule}}})
        assert flags.resolve("a", context={"n": huge}).error in ("PARSE_ERROR", "GENERAL")


def test_an_attack_costs_bounded_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DocumentError):
        wigwag.load("\n".join([*lines, "flags: {}"]))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


@given(st.one_of(values, st.dictionaries(st.sampled_from(["flags", "$evaluators", "metadata", "$schema"]), values)))
def test_any_json_loads_or_is_rejected(document: Any) -> None:
    try:
        flags = wigwag.load(json.dumps(document))
    except DocumentError as error:
        assert str(error)
    else:
        assert flags.id
        assert isinstance(flags.problems, tuple)


@given(st.binary(max_size=60))
def test_any_bytes_load_or_are_rejected(text: bytes) -> None:
    for form in FORMS:
        try:
            wigwag.load(text, format=form)
        except DocumentError as error:
            assert str(error)


@given(st.text(alphabet="&*[]{}:-,!#|>'\"\n ax1<~?%@`", max_size=40))
def test_any_yaml_loads_or_is_rejected(text: str) -> None:
    try:
        wigwag.load(text, format="yaml")
    except DocumentError as error:
        assert str(error)


def test_the_stack_is_deep_enough_for_every_rule_within_the_limits() -> None:
    """A rule just within the depth limit must evaluate even when the caller is already deep in its own stack."""
    flags = wigwag.load({"flags": {"a": {**GOOD, "targeting": nested(95, {"var": "x"})}}})

    def deep(levels: int) -> wigwag.Resolution:
        return deep(levels - 1) if levels else flags.resolve("a", context={"x": 1})

    assert deep(sys.getrecursionlimit() // 2).error == "GENERAL"
