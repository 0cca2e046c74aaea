"""Rules in words: the forms of the documentation, bounds, and that paths are those of explanations."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

import wigwag
from tests.strategies import rules
from wigwag.flags.explain import Step
from wigwag.flags.words import MOST_PHRASES, Phrase, describe_rule, summarize_rule

EMAIL: dict[str, Any] = {"var": "email"}
ELSE = "otherwise the default variant"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"if": [{"ends_with": [EMAIL, "@b.com"]}, "on", "off"]}, 'if email ends with "@b.com" → on; otherwise off'),
        ({"if": [{"in": ["@b.com", EMAIL]}, "on", None]}, f'if email contains "@b.com" → on; {ELSE}'),
        ({"if": [{"in": [{"var": "a"}, ["x", "y"]]}, "on", "off"]}, 'if a is one of "x", "y" → on; otherwise off'),
        ({"if": [{"sem_ver": [{"var": "v"}, ">=", "2.1.0"]}, "x"]}, f"if v is at least version 2.1.0 → x; {ELSE}"),
        ({"fractional": [["on", 10], ["off", 90]]}, "10 % on, 90 % off, by targetingKey"),
        ({"fractional": [{"var": "email"}, ["on", 1], ["off", 0]]}, "100 % on, 0 % off, by email"),
        (
            {"if": [{"and": [{"==": [{"var": "a"}, 1]}, {"or": [{"var": "b"}, {"!": {"var": "c"}}]}]}, "x", "y"]},
            "if (a equals 1) and (b or not (c)) → x; otherwise y",
        ),
        ({"if": [{"<": [1, {"var": "d"}, 3]}, "y", "z"]}, "if 1 < d < 3 → y; otherwise z"),
        ({"if": [{"$ref": "staff"}, "on", "off"]}, 'if staff (email ends with "@a.com") → on; otherwise off'),
        ({"if": [{"$ref": "nobody"}, "on", "off"]}, "if nobody → on; otherwise off"),
        ({"if": [{"var": ["tier", "free"]}, "on", "off"]}, 'if tier (or "free" if missing) → on; otherwise off'),
        ({"cat": ["on", {"var": "x"}]}, 'the variant named by "on" & x'),
        ("on", "on"),
        (True, "true"),
        (None, "the default variant"),
        ({"unheard-of": [1, 2]}, 'the variant named by {"unheard-of": [1, 2]}'),
        ({"fractional": [["a", EMAIL]]}, 'the variant named by {"fractional": [["a", {"var": "email"}]]}'),
    ],
)
def test_a_rule_in_one_line(rule: Any, words: str) -> None:
    assert summarize_rule(rule, {"staff": {"ends_with": [EMAIL, "@a.com"]}}) == words


def test_a_shared_rule_that_refers_to_itself_ends() -> None:
    assert summarize_rule({"$ref": "a"}, {"a": {"$ref": "b"}, "b": {"$ref": "a"}})
    assert summarize_rule({"if": [{"$ref": "a"}, "on"]}, {"a": {"!": {"$ref": "a"}}})


def phrases(tree: list[Phrase]) -> list[Phrase]:
    return [each for phrase in tree for each in (phrase, *phrases(phrase.children))]


def steps(step: Step) -> list[Step]:
    return [step, *(each for inner in step.inputs for each in steps(inner))]


def test_what_an_explanation_evaluated_can_be_marked_in_the_words() -> None:
    rule = {"if": [{"and": [{"var": "a"}, {"var": "b"}]}, "on", {"fractional": [["on", 1], ["off", 1]]}]}
    flag = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off", "targeting": rule}
    explained = wigwag.load({"flags": {"x": flag}}).explain("x", {"targetingKey": "u"})
    assert explained.root is not None
    evaluated = {step.path for step in steps(explained.root)}
    said = {phrase.path: phrase.kind for phrase in phrases(describe_rule(rule, "$.flags.x.targeting", {}))}
    assert {said[path] for path in evaluated & set(said)} == {"all", "condition", "split", "share"}


@settings(max_examples=60)
@given(rules)
def test_any_rule_has_words_of_bounded_size(rule: Any) -> None:
    said = phrases(describe_rule(rule, "$", {}))
    assert said
    assert all(len(phrase.text) <= 400 for phrase in said)


def test_a_huge_rule_is_cut() -> None:
    wide = {"if": [part for number in range(20_000) for part in ({"var": f"a{number}"}, "on")]}
    assert len(phrases(describe_rule(wide, "$", {}))) < 10 * MOST_PHRASES
    deep: Any = "on"
    for _ in range(150):
        deep = {"if": [True, deep, "off"]}
    assert len(json.dumps(summarize_rule(deep, {}))) < 2_000
