"""One evaluation takes a bounded number of steps and builds bounded values, whatever the rule and the context are."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest

import wigwag
from tests.flags.adversarial import CASES, MOST_BYTES, Case
from wigwag import Limits
from wigwag.errors import RuleError
from wigwag.flags.rules.cost import COSTS
from wigwag.flags.rules.operators.table import BUILDERS, functions
from wigwag.flags.rules.scope import LargeOperandError

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
STEPS = Limits().steps


def flags_of(rule: Any, fractional: str = "v2", **limits: int) -> wigwag.FlagSet:
    document = {"flags": {"x": {**FLAG, "targeting": rule}}}
    return wigwag.load(document, fractional=fractional, limits=Limits(**limits))  # type: ignore[arg-type]


def steps_of(rule: Any, context: dict[str, Any]) -> int:
    """Return how many steps an evaluation takes."""
    program = flags_of(rule).flag("x").program  # type: ignore[union-attr]
    run = program.run(0, lambda: 0.0, 10**9)
    program.decide(context, run)
    return 10**9 - run.steps


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_evaluation_takes_long_or_builds_much(case: Case) -> None:
    """The bounds are generous: each took seconds or gigabytes before, and takes at most 50 ms and 50 MB."""
    assert len(json.dumps(case.context, separators=(",", ":"))) <= MOST_BYTES
    flags = flags_of(case.rule, case.fractional)
    assert "raise Limits.rule_nodes" not in flags.resolve("x").message  # and compiles the rule
    start = time.process_time()
    found = flags.resolve("x", context=case.context)
    assert time.process_time() - start < 1
    assert len(found.message) < 1_000
    tracemalloc.start()
    flags.resolve("x", context=case.context)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


def test_every_operator_accounts_for_its_data() -> None:
    assert set(functions(Limits())) - set(COSTS) == {"!", "!!"}
    assert not set(BUILDERS) & set(COSTS)


@pytest.mark.parametrize(
    ("rule", "context"),
    [
        ({"in": ["x", {"var": "xs"}]}, {"xs": ["y"] * (STEPS + 1)}),
        ({"+": {"var": "xs"}}, {"xs": [1] * (STEPS + 1)}),
        ({"contains_any": [{"var": "xs"}, {"var": "xs"}]}, {"xs": [1] * STEPS}),
        ({"merge": [{"var": "xs"}, 1]}, {"xs": [1] * STEPS}),
        ({"cat": {"var": "xs"}}, {"xs": ["a"] * (STEPS + 1)}),
        ({"missing": {"var": "xs"}}, {"xs": ["a"] * STEPS}),
        ({">": [{"var": "t"}, 1]}, {"t": "1" * 32 * STEPS}),
        ({"in": ["x", {"var": "t"}]}, {"t": "1" * 65 * STEPS}),
        ({"fractional": [{"var": "t"}, ["on", 1]]}, {"t": "1" * 64 * STEPS}),
        ({"set": [{"var": ""}, "a", 1]}, {str(n): n for n in range(STEPS + 1)}),
        ({"map": [{"var": "xs"}, 1]}, {"xs": [1] * STEPS}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) and len(value) == 1 else "",
)
def test_data_beyond_the_budget_is_refused_before_it_is_looked_at(rule: Any, context: dict[str, Any]) -> None:
    found = flags_of(rule).resolve("x", context=context)
    assert (found.error, "Limits.steps" in found.message) == ("PARSE_ERROR", True)


def test_a_loop_costs_its_elements_times_the_values_of_its_body() -> None:
    body = {"if": [{"var": "a"}, 1, 2]}  # itself, `var` and its name, two answers
    assert steps_of({"map": [{"var": "xs"}, body]}, {"xs": [{}] * 100}) == 100 * (1 + 5)
    assert steps_of({"map": [{"var": "xs"}, {"in": ["a", ["b"] * 500]}]}, {"xs": [1]}) < 600


def test_nested_loops_add_up() -> None:
    inner = {"some": [{"var": "ys"}, False]}
    assert steps_of({"none": [{"var": "xs"}, inner]}, {"xs": [1] * 30, "ys": [1] * 40}) >= 30 * 40


def test_small_data_needs_no_budget_and_large_data_gets_one() -> None:
    rule = {"in": ["x", {"var": "xs"}]}
    program = flags_of(rule).flag("x").program  # type: ignore[union-attr]
    assert not program.needs_run
    assert program.decide({"xs": ["x"]}, None) is True
    with pytest.raises(LargeOperandError):
        program.decide({"xs": ["y"] * 2_000 + ["x"]}, None)
    large = {"xs": ["y"] * 2_000 + ["x"]}
    assert flags_of({"if": [rule, "on"]}).resolve("x", context=large).variant == "on"


def test_a_rule_with_many_operators_is_accounted_for_from_the_start() -> None:
    few, many = ({"or": [{"in": [{"var": "a"}, {"var": "b"}]}] * count} for count in (50, 51))
    assert not flags_of(few).flag("x").program.needs_run  # type: ignore[union-attr]
    assert flags_of(many).flag("x").program.needs_run  # type: ignore[union-attr]


def test_a_large_list_that_is_part_of_the_rule_costs_one_step() -> None:
    rule = {"some": [{"var": "groups"}, {"in": [{"var": ""}, [f"g{n}" for n in range(5_000)]]}]}
    found = flags_of({"if": [rule, "on"]}).resolve("x", context={"groups": ["h"] * 500 + ["g7"]})
    assert found.variant == "on"


def test_texts_built_together_have_at_most_64_characters_for_each_step() -> None:
    rule = {"map": [{"var": "xs"}, {"cat": [{"var": ""}, "y" * 640]}]}
    flags = flags_of(rule, steps=1_000)
    program = flags.flag("x").program  # type: ignore[union-attr]
    built = program.decide({"xs": ["x"] * 30}, program.run(0, lambda: 0.0))
    assert sum(map(len, built)) == 30 * 641
    with pytest.raises(RuleError, match=r"Limits\.steps"):
        program.decide({"xs": ["x"] * 100}, program.run(0, lambda: 0.0))


def test_a_huge_answer_is_no_variant_and_is_not_quoted() -> None:
    flags = flags_of({"var": "a"})
    assert "cannot be the name of a variant" in flags.resolve("x", context={"a": [1] * 100_000}).message
    assert len(flags.resolve("x", context={"a": "b" * 100_000}).message) < 500
    assert flags.resolve("x", context={"a": [1, {"b": None}]}).message.count("[1,{b:null}]") == 1


def test_an_explanation_does_not_repeat_large_values() -> None:
    rule = {"or": [{"==": [{"var": "t"}, {"var": "xs"}]}] * 100}
    explanation = flags_of(rule).explain("x", {"t": "a" * 100_000, "xs": list(range(10_000))})
    assert len(json.dumps(explanation.to_dict())) < 500_000
    assert len(str(explanation)) < 100_000


def test_an_explanation_has_the_answer_of_the_evaluation_even_near_the_limit() -> None:
    rule = {"if": [{"all": [{"var": "xs"}, {">": [{"var": ""}, 0]}]}, "on"]}
    for size in (100, STEPS // 6, STEPS // 5, STEPS // 4):
        flags, context = flags_of(rule), {"xs": [1] * size}
        assert flags.explain("x", context).resolution == flags.resolve("x", context=context)


def test_a_shared_budget_ends_and_flags_that_need_none_are_still_answered() -> None:
    loop, plain = {"if": [{"all": [{"var": "xs"}, {"var": ""}]}, "on"]}, {"if": [{"==": [{"var": "a"}, "b"]}, "on"]}
    keys = {f"loop-{n}": {**FLAG, "targeting": loop} for n in range(20)}
    flags = wigwag.load({"flags": keys | {"plain": {**FLAG, "targeting": plain}}})
    budget, context = flags.budget(), {"xs": [1] * (STEPS // 10), "a": "b"}
    found = [flags.resolve(key, None, None, context, None, budget) for key in (*keys, "plain")]
    assert found[0].variant == "on"
    assert found[-2].error == "PARSE_ERROR"
    assert found[-1].variant == "on"
    assert [resolution.error for resolution in found].count("PARSE_ERROR") >= 15


def test_all_flags_of_a_request_are_answered_as_one_by_one_with_the_same_budget() -> None:
    rules: dict[str, Any] = {
        "timed": {"if": [{">": [{"var": "$flagd.timestamp"}, 99]}, "on"]},
        "unknown-variant": {"var": "a"},
        "failing": {"+": [{"var": "a"}, None]},
        "number": {"if": [True, 1]},
        "plain": {"if": [{"==": [{"var": "a"}, "b"]}, "on"]},
    }
    rules |= {f"loop-{n}": {"if": [{"all": [{"var": "xs"}, {"var": ""}]}, "on"]} for n in range(9)}
    documents = {key: {**FLAG, "targeting": rule} for key, rule in rules.items()}
    documents |= {"static": FLAG, "disabled": {**FLAG, "state": "DISABLED"}}
    flags = wigwag.load({"flags": documents}, clock=lambda: 100.9)
    alone, together, context = flags.budget(), flags.budget(), {"xs": [1] * (STEPS // 10), "a": "b"}
    one_by_one = [flags.resolve(key, None, None, context, None, alone) for key in flags]
    assert flags.resolve_all(flags.keys(), context, together) == one_by_one
    assert together == alone
    assert together.refused
    assert together.steps < flags.budget().steps / 10
