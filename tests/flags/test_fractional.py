"""Hashing and sharing out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import cbor2
import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flags.test_rules import apply
from tests.strategies import values
from wigwag.flags.rules.cbor import encode
from wigwag.flags.rules.operators.fractional import MAX_WEIGHT, hash_v2, to_shares

HALVES = [["one", 50], ["two", 50]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("ejOoVL", 0), ("bY9fO-", 1), ("SI7p-", 2147483647), ("6LvT0", 2147483648), ("ceQdGm", 4294967295)],
)
def test_v2_hashes_the_edges_of_the_range(text: str, expected: int) -> None:
    assert hash_v2(text) == expected


@pytest.mark.parametrize("text", ["Fáy", "日本", "\ud800", "a\udfff"])
def test_v2_hashes_the_utf8_of_any_text_even_of_one_that_is_no_unicode(text: str) -> None:
    assert hash_v2(text) == mmh3.hash(text.encode("utf-8", "surrogatepass"), signed=False)


@pytest.mark.parametrize(("text", "share"), [("ejOoVL", "one"), ("SI7p-", "one"), ("6LvT0", "two"), ("ceQdGm", "two")])
def test_the_edges_of_the_range_fall_into_the_right_share(text: str, share: str) -> None:
    assert apply({"fractional": [{"var": "k"}, *HALVES]}, {"k": text}) == share


def normalised(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and -(2**63) <= value <= 2**64 - 1:
        return int(value)
    if isinstance(value, list):
        return [normalised(item) for item in value]
    return {key: normalised(item) for key, item in value.items()} if isinstance(value, dict) else value


@given(st.one_of(values, st.floats(allow_nan=False), st.integers(), st.text()))
def test_our_cbor_is_the_canonical_one(value: Any) -> None:
    assert encode(value) == cbor2.dumps(normalised(value), canonical=True)


@pytest.mark.parametrize(
    ("weights", "bounds"),
    [
        ([["a"], ["b"]], (1, 2)),
        ([["a", None], ["b", 3]], (1, 4)),
        ([["a", -5], ["b", 3.0]], (0, 3)),
        ([["a", MAX_WEIGHT]], (MAX_WEIGHT,)),
        ([["a", 2.5]], None),
        ([["a", "1"]], None),
        ([["a", True]], None),
        ([["a", 0]], None),
        ([["a", MAX_WEIGHT], ["b", 1]], None),
        ([["a", MAX_WEIGHT + 1]], None),
        ([[]], None),
        (["a"], None),
        ([[["nested"], 1]], None),
        ([], None),
    ],
)
def test_weights_are_whole_and_add_up_or_nothing_is_shared_out(weights: Any, bounds: Any) -> None:
    shares = to_shares(weights)
    assert (shares.bounds if shares else None) == bounds


@pytest.mark.parametrize(
    ("version", "first", "context", "expected"),
    [
        ("v2", {"var": "missing"}, {"targetingKey": "u"}, apply({"fractional": HALVES}, {"targetingKey": "u"})),
        ("v2", {"var": "n"}, {"targetingKey": "u", "n": 5}, None),
        ("v2", {"var": "n"}, {"targetingKey": "u", "n": True}, None),
        ("v2", {"var": "missing"}, {}, None),
        ("v2", {"var": "missing"}, {"targetingKey": ""}, None),
        ("v2", {"var": "missing"}, {"targetingKey": 7}, None),
        ("v3", {"var": "missing"}, {"targetingKey": "u"}, None),
        ("v3", None, {"targetingKey": "u"}, None),
    ],
)
def test_what_can_be_bucketed_by_depends_on_the_version(version: Any, first: Any, context: Any, expected: Any) -> None:
    assert apply({"fractional": [first, *HALVES]}, context, fractional=version) == expected


def test_v3_buckets_by_any_value_and_counts_1_and_1_0_as_the_same() -> None:
    rule = {"fractional": [{"var": "by"}, *[[str(n), 1] for n in range(100)]]}
    answers = {apply(rule, {"by": by}, fractional="v3") for by in (1, 1.0)}
    assert len(answers) == 1
    assert apply(rule, {"by": {"b": 1, "a": 2.0}}, fractional="v3") == apply(
        rule, {"by": {"a": 2, "b": 1}}, fractional="v3"
    )
    assert apply(rule, {"by": True}, fractional="v3") is not None


@given(st.text(), st.lists(st.integers(0, 100), min_size=1, max_size=5))
def test_computed_weights_share_out_like_fixed_ones(key: str, weights: list[int]) -> None:
    fixed = {"fractional": [{"var": "by"}, *[[str(n), weight] for n, weight in enumerate(weights)]]}
    computed = {"fractional": [{"var": "by"}, *[[str(n), {"+": [weight]}] for n, weight in enumerate(weights)]]}
    for version in ("v2", "v3"):
        assert apply(fixed, {"by": key}, fractional=version) == apply(computed, {"by": key}, fractional=version)


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_shares_come_out_as_weighted(version: Any) -> None:
    rule = {"fractional": [["a", 10], ["b", 20], ["c", 70]]}
    counts = Counter(apply(rule, {"targetingKey": f"user-{n}"}, fractional=version) for n in range(5000))
    assert [round(counts[name] / 5000, 1) for name in "abc"] == [0.1, 0.2, 0.7]


def test_a_larger_share_keeps_those_who_were_in_it() -> None:
    def in_share(weight: int) -> set[int]:
        rule = {"fractional": [["in", weight], ["out", 100 - weight]]}
        return {n for n in range(500) if apply(rule, {"targetingKey": str(n)}) == "in"}

    assert in_share(10) < in_share(30) < in_share(80)


def test_inside_an_array_operator_the_element_is_bucketed() -> None:
    rule = {"map": [{"var": "users"}, {"fractional": HALVES}]}
    users = [{"targetingKey": "ejOoVL"}, {"targetingKey": "ceQdGm"}, "no object", {}]
    assert apply(rule, {"users": users, "targetingKey": "root"}) == ["one", "two", None, None]
