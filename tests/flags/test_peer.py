"""Side by side with openfeature-flagd-core on random documents and contexts, where the two are meant to agree.

The core is another implementation with another engine, so the generator stays where both follow flagd. Left out on
purpose, because the core answers differently from the daemon (which we follow):

  hashing                   the core is v3 only
  weights                   2.0 and null are refused by the core; the daemon takes 2.0 for 2 and null for 1
  comparison and arithmetic of text with numbers, of null, of booleans: JavaScript's rules there, the Go engine's here
  `in` with a needle that is no text, `cat` of anything but text, trimming of `cat`
  `and` / `or` in a place where the operand itself, not its truth, becomes the answer: both return the operand
  integer requests on 10.0  the core mismatches, the daemon cuts
  float requests on true    the core answers true, the daemon mismatches
  object requests on arrays the core answers, the daemon mismatches
  partial versions with a pre-release ("1-rc"): valid for the core, not for the daemon
  `missing` of an empty text: missing for the core, there for the daemon
  a flag without a context  the core still sees a targetingKey of None
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openfeature.contrib.tools.flagd.core import FlagdCore
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode, OpenFeatureError

import wigwag

WORDS = ("", "a", "gold", "golden", "fay@example.com", "é😀")
VERSIONS = ("1.0.0", "1.2.3", "v1.2", "2", "2.0.0-rc.1", "2.0.0-rc.2", "2.0.0+build", "x", "1.2.3.4", "01.0.0")
VARIANTS = {"on": True, "off": False}
TYPED: dict[str, dict[str, Any]] = {
    "boolean": VARIANTS,
    "string": {"on": "yes", "off": "no"},
    "integer": {"on": 1, "off": 0},
    "float": {"on": 1.5, "off": 0.25},
    "object": {"on": {"a": [1, {"b": None}]}, "off": {}},
}
DEFAULTS = {"boolean": False, "string": "", "integer": 7, "float": 7.5, "object": {}}

logging.getLogger("openfeature.contrib").setLevel(logging.CRITICAL)  # it logs every null answer as an error

words, versions = st.sampled_from(WORDS), st.sampled_from(VERSIONS)
contexts = st.fixed_dictionaries(
    {"name": words, "count": st.integers(-3, 3), "version": versions, "flag": st.booleans()},
    optional={
        "roles": st.lists(words, max_size=3),
        "user": st.fixed_dictionaries({"name": st.sampled_from(WORDS[1:])}),
    },
)
text = st.one_of(words, st.sampled_from([{"var": "name"}, {"var": ["user.name", "nobody"]}]))
number = st.one_of(st.integers(-3, 3), st.just({"var": "count"}))
truths = st.one_of(
    st.booleans(),
    st.just({"var": "flag"}),
    st.tuples(st.sampled_from(["==", "!=", "===", "!==", "<", ">"]), text, text).map(lambda t: {t[0]: [t[1], t[2]]}),
    st.tuples(st.sampled_from(["==", "!=", "===", "<", "<=", ">", ">="]), number, number).map(
        lambda t: {t[0]: [t[1], t[2]]}
    ),
    st.tuples(st.sampled_from(["starts_with", "ends_with", "in"]), text, text).map(lambda t: {t[0]: [t[1], t[2]]}),
    st.tuples(text, st.lists(words, max_size=3)).map(lambda t: {"in": [t[0], t[1]]}),
    st.tuples(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "^", "~", "?"]), versions).map(
        lambda t: {"sem_ver": [{"var": "version"}, t[0], t[1]]}
    ),
    st.tuples(st.sampled_from(["some", "all", "none"]), words).map(
        lambda t: {t[0]: [{"var": "roles"}, {"==": [{"var": ""}, t[1]]}]}
    ),
    st.lists(st.sampled_from(["user", "user.name", "nope"]), min_size=1).map(lambda names: {"!": [{"missing": names}]}),
    st.just({"$ref": "shared"}),
)
conditions = st.recursive(
    truths,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"!": [part]}),
    ),
    max_leaves=5,
)
shares = st.lists(st.tuples(st.sampled_from(["on", "off"]), st.integers(-1, 20)).map(list), min_size=1, max_size=4)
answers = st.one_of(
    st.sampled_from(["on", "off", None, "unknown"]),
    shares.map(lambda s: {"fractional": s}),
    st.tuples(text, shares).map(lambda t: {"fractional": [t[0], *t[1]]}),
)
rules = st.recursive(
    st.one_of(answers, conditions),
    lambda inner: st.tuples(conditions, answers, inner).map(lambda parts: {"if": list(parts)}),
    max_leaves=4,
)


def outcome(core: FlagdCore, type: str, context: EvaluationContext) -> tuple[Any, ...]:
    try:
        found = getattr(core, f"resolve_{type}_value")("x", DEFAULTS[type], context)
    except OpenFeatureError as error:
        return "ERROR", error.error_code.value
    reason = getattr(found.reason, "value", found.reason)
    return reason, None, found.variant or None, found.value


@settings(max_examples=600, deadline=None)
@given(
    rules,
    contexts,
    st.sampled_from(sorted(TYPED)),
    st.sampled_from(sorted(TYPED)),
    st.sampled_from(["on", None]),
    st.sampled_from(["ENABLED", "ENABLED", "ENABLED", "DISABLED"]),
    st.sampled_from(["user-1", "é", ""]),
)
def test_both_answer_the_same(
    rule: Any, attributes: dict[str, Any], has: str, wants: str, default: Any, state: str, key: str
) -> None:
    if {has, wants} == {"integer", "float"} or (has, wants) == ("boolean", "float"):
        wants = has
    flag = {"state": state, "variants": TYPED[has], "defaultVariant": default}
    if isinstance(rule, dict):
        flag["targeting"] = rule
    document = {"flags": {"x": flag}, "$evaluators": {"shared": {"in": ["a", {"var": "name"}]}}}
    kind: Any = wants
    ours = wigwag.load(document, fractional="v3").resolve(
        "x", kind, DEFAULTS[wants], {**attributes, "targetingKey": key}
    )
    core = FlagdCore()
    core.set_flags(document)
    theirs = outcome(core, wants, EvaluationContext(key, attributes))
    expected = (ours.reason, ours.error) + (() if ours.error else (ours.variant, ours.value))
    assert expected == theirs


def test_the_intended_differences_are_still_there() -> None:
    """If the core changes its mind about one of these, the list above must shrink."""
    core = FlagdCore()
    core.set_flags(
        {"flags": {"x": {"state": "ENABLED", "variants": {"w": 10.0, "t": True, "l": [1]}, "defaultVariant": "w"}}}
    )
    with pytest.raises(OpenFeatureError) as caught:
        core.resolve_integer_value("x", 0, EvaluationContext("u"))
    assert caught.value.error_code is ErrorCode.TYPE_MISMATCH
