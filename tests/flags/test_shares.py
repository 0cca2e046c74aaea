"""Who moves when the weights of a `fractional` change."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wigwag.flags.diff.shares import fractionals, moved_shares
from wigwag.flags.rules.operators.fractional import Shares, to_shares

variants = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)).map(list), min_size=1, max_size=5).filter(
    lambda shares: any(weight for _, weight in shares)
)


def shares(given: Any) -> Shares:
    made = to_shares(given)
    assert made is not None
    return made


@given(variants, variants)
def test_the_shares_are_those_that_agents_see(before: Any, after: Any) -> None:
    old, new = shares(before), shares(after)
    total = old.bounds[-1] * new.bounds[-1]
    pick_old, pick_new = old.picker(), new.picker()
    moved: dict[tuple[Any, Any], int] = {}
    for bucket in range(total):  # every bucket that either side can tell apart
        hashed = ((2 * bucket + 1) << 31) // total
        pair = pick_old(hashed), pick_new(hashed)
        if pair[0] != pair[1]:
            moved[pair] = moved.get(pair, 0) + 1
    expected = {pair: Fraction(count, total) for pair, count in moved.items()}
    assert {(each.before, each.after): each.share for each in moved_shares(old, new)} == expected


def test_the_largest_share_comes_first_and_a_variant_in_the_middle_moves_all_after_it() -> None:
    before, after = shares([["a", 1], ["c", 1]]), shares([["a", 1], ["b", 1], ["c", 1]])
    assert [str(each) for each in moved_shares(before, after)] == [
        "16.7 % move from a to b",
        "16.7 % move from c to b",
    ]


def test_fractionals_are_found_wherever_they_are() -> None:
    rule = {"if": [{"var": "x"}, {"fractional": [{"var": "team"}, ["on", 1], ["off", 1]]}, {"fractional": [["on"]]}]}
    places = {place: value for place, value, _ in fractionals(rule)}
    assert places == {"$.if[1].fractional": {"var": "team"}, "$.if[2].fractional": None}
    assert list(fractionals({"fractional": [["on", {"var": "weight"}]]})) == [], "weights that are computed"
