"""What each operator answers, corner by corner: facts gathered by asking flagd's own engine."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import wigwag
from tests.strategies import contexts, rules
from wigwag.errors import RuleError
from wigwag.flags.evaluate import variant_name
from wigwag.flags.model import Limits
from wigwag.flags.rules.compile import compile_rule

DATA = Path(__file__).parent / "data"
NOW = 1_700_000_000


def facts(name: str) -> list[dict[str, Any]]:
    return json.loads((DATA / name).read_text())  # type: ignore[no-any-return]


def apply(rule: Any, data: dict[str, Any] | None = None, **options: Any) -> Any:
    program = compile_rule(rule, "key", **options)
    return program.decide(data or {}, program.run(NOW, lambda: NOW))


def same(a: Any, b: Any) -> bool:
    """Equal as JSON: booleans are not numbers, 1 is 1.0."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-12)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


@pytest.mark.parametrize("fact", facts("daemon_rules.json"), ids=lambda fact: json.dumps(fact["rule"])[:70])
def test_a_rule_answers_as_the_daemon_does(fact: dict[str, Any]) -> None:
    if fact.get("error"):
        with pytest.raises(RuleError):
            variant_name(apply(fact["rule"], fact["data"]))  # infinities and NaN fail only when they are the answer
    else:
        assert same(apply(fact["rule"], fact["data"]), fact["result"])


@pytest.mark.parametrize("fact", facts("daemon_resolutions.json"), ids=lambda fact: json.dumps(fact["flag"])[:70])
def test_a_flag_resolves_as_the_daemon_does(fact: dict[str, Any]) -> None:
    flags = wigwag.load({"flags": {"key": fact["flag"]}, "$evaluators": fact.get("evaluators", {})})
    found = flags.resolve("key", None if fact["type"] == "any" else fact["type"], None, fact["context"])
    assert (found.variant, found.reason, found.error) == (fact["variant"], fact["reason"], fact["error"])
    assert same(found.value, fact["value"])


@given(rules, contexts)
def test_any_rule_answers_or_fails_properly(rule: Any, context: dict[str, Any]) -> None:
    try:
        apply(rule, context)
    except RuleError as error:
        assert str(error)


@given(rules, contexts)
def test_evaluating_changes_neither_rule_nor_context(rule: Any, context: dict[str, Any]) -> None:
    before = json.dumps([rule, context])
    for _ in range(2):
        with suppress(RuleError):
            apply(rule, context)
    assert json.dumps([rule, context]) == before


def test_a_fault_counts_only_where_evaluation_gets_to_it() -> None:
    assert apply({"if": [True, "on", {"no_such": []}]}) == "on"
    with pytest.raises(RuleError, match="unknown operator `no_such`"):
        apply({"if": [False, "on", {"no_such": []}]})


def test_filter_some_and_none_see_what_is_around_them_first() -> None:
    data = {"name": "outer", "items": [{"name": "inner"}]}
    assert apply({"some": [{"var": "items"}, {"==": [{"var": "name"}, "outer"]}]}, data) is True
    assert apply({"some": [{"var": "items"}, {"==": [{"var": ".name"}, "inner"]}]}, data) is True
    assert apply({"map": [{"var": "items"}, {"var": "name"}]}, data) == ["inner"]


def test_data_from_the_context_is_never_evaluated_as_a_rule() -> None:
    data = {"evil": {"var": "secret"}, "secret": "s", "list": [{"var": "secret"}]}
    assert apply({"if": [True, {"var": "evil"}]}, data) == {"var": "secret"}
    assert apply({"filter": [{"var": "list"}, True]}, data) == [{"var": "secret"}]


def test_whole_numbers_stay_exact() -> None:
    big = 2**53 + 1
    assert apply({"+": [big, 1]}) == big + 1
    assert apply({"==": [{"var": "n"}, big]}, {"n": big - 1}) is False
    assert apply({"*": [2**40, 2**40]}) == float(2**80)


def test_an_array_literal_to_walk_is_evaluated_first() -> None:
    assert apply({"map": [[1, {"var": "n"}], {"*": [{"var": ""}, 2]}]}, {"n": 5}) == [2, 10]


def test_the_caller_cannot_forge_the_flagd_properties() -> None:
    data = {"$flagd": {"flagKey": "forged", "timestamp": 1}}
    assert apply({"var": "$flagd.flagKey"}, data) == "key"
    assert apply({"var": ["$flagd.timestamp"]}, data) == NOW
    assert apply({"var": {"cat": ["$flagd", ".timestamp"]}}, data) == NOW
    assert apply({"var": ""}, data) == {"$flagd": {"flagKey": "key", "timestamp": NOW}}
    assert apply({"missing": ["$flagd.timestamp", "$flagd.other", "x"]}, data) == ["$flagd.other", "x"]


def test_the_clock_is_read_only_by_rules_that_ask_for_the_time() -> None:
    def clock() -> float:
        raise AssertionError("read")

    for rule in ({"==": [{"var": "a"}, 1]}, {"map": [[1], {"var": ""}]}, {"fractional": [["a", 1]]}):
        program = compile_rule(rule, "key")
        program.decide({}, program.run(None, clock) if program.needs_run else None)
    with pytest.raises(AssertionError, match="read"):
        compile_rule({"var": "$flagd.timestamp"}, "key").run(None, clock)


@pytest.mark.parametrize(
    ("rule", "limits", "message"),
    [
        ({"+": list(range(50))}, Limits(rule_nodes=20), "rule_nodes"),
        ({"!": {"!": {"!": {"!": True}}}}, Limits(depth=3), "depth"),
        ({"cat": ["x" * 30, "y" * 30]}, Limits(string_length=40), "string_length"),
        ({"map": [{"map": [[1] * 20, 1]}, {"map": [[1] * 20, 1]}]}, Limits(steps=100), "steps"),
    ],
)
def test_a_rule_beyond_a_limit_fails_and_names_the_limit(rule: Any, limits: Limits, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        apply(rule, limits=limits)


def test_asking_an_array_for_many_elements_is_quick_and_merging_is_bounded() -> None:
    many = list(range(40_000))
    assert apply({"contains_all": [{"var": "a"}, {"var": "a"}]}, {"a": many}) is True
    assert apply({"contains_any": [{"var": "a"}, [True, "1", None]]}, {"a": many}) is False
    with pytest.raises(RuleError, match="steps"):
        apply({"merge": [{"var": "a"}] * 50}, {"a": many})


def test_text_cannot_be_doubled_without_end() -> None:
    rule = {"reduce": [[0] * 60, {"cat": [{"var": "accumulator"}, {"var": "accumulator"}]}, "ab"]}
    with pytest.raises(RuleError, match="string_length"):
        apply(rule, limits=Limits(string_length=100_000))
    with pytest.raises(RuleError, match="steps"):
        apply(rule)


def test_numbers_cannot_be_squared_without_end() -> None:
    rule = {"reduce": [[0] * 60, {"*": [{"var": "accumulator"}, {"var": "accumulator"}]}, 7]}
    assert apply(rule) == math.inf
