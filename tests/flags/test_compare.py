"""Two sets of flags side by side."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wigwag
from tests.strategies import VARIANTS, contexts, flag, rules
from wigwag.errors import UsageError
from wigwag.flags.diff.compare import MOST_LISTED, Comparing, compare
from wigwag.flags.diff.comparison import Comparison, Name

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
GOLD = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}
USERS = [{"targetingKey": "fay", "tier": "gold"}, {"targetingKey": "bo"}, {"tier": "gold"}]


def load(flags: Any, **options: Any) -> wigwag.FlagSet:
    return wigwag.load({"flags": flags}, **options)


def changed(before: dict[str, Any], after: dict[str, Any], **members: Any) -> list[str]:
    """Return in words how one flag of two documents differs."""
    old, new = (wigwag.load({"flags": {"x": one}, **members}) for one in (before, after))
    return [str(member) for change in compare(old, new).changed for member in change.members]


class TestFlags:
    def test_equal_sets_differ_in_nothing(self) -> None:
        found = compare(load({"x": FLAG}), load({"x": dict(reversed(FLAG.items()))}), USERS)
        assert not found
        assert str(found) == "no flag differs\n\nnone of 3 contexts gets another answer"

    def test_flags_are_told_by_set_and_key(self) -> None:
        red = {"key": "x", **FLAG, "metadata": {"flagSetId": "red"}}
        found = compare(load([red, {"key": "b", **FLAG}]), load([{**red, "state": "DISABLED"}, {"key": "a", **FLAG}]))
        assert (found.added, found.removed) == ((Name("", "a"),), (Name("", "b"),))
        assert [(change.name, str(change.members[0])) for change in found.changed] == [
            (Name("red", "x"), "state ENABLED → DISABLED")
        ]
        assert str(found).splitlines() == ["- b", "+ a", "~ x (red)   state ENABLED → DISABLED"]

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"state": "DISABLED"}, "state ENABLED → DISABLED"),
            ({"defaultVariant": "on"}, "defaultVariant off → on"),
            ({"defaultVariant": None}, "defaultVariant off → none"),
            ({"variants": {"on": 1, "off": False, "half": 0.5}}, "variants +half, ~on"),
            ({"variants": {"off": False}}, "variants -on"),
            ({"targeting": GOLD}, "targeting added"),
            ({"metadata": {"owner": "web"}}, "metadata +owner"),
        ],
    )
    def test_a_change_names_the_member_and_what_in_it(self, change: dict[str, Any], told: str) -> None:
        assert changed(FLAG, {**FLAG, **change}) == [told]

    def test_true_and_1_are_not_the_same(self) -> None:
        one = {**FLAG, "variants": {"on": {"a": [1]}, "off": 0}}
        assert changed(one, {**FLAG, "variants": {"on": {"a": [True]}, "off": 0}}) == ["variants ~on"]

    def test_a_rule_changes_with_the_shared_rule_it_refers_to(self) -> None:
        flag = {**FLAG, "targeting": {"if": [{"$ref": "vip"}, "on"]}}
        old, new = (
            wigwag.load({"flags": {"x": flag}, "$evaluators": {"vip": rule, "unused": rule}}) for rule in (True, False)
        )
        assert [str(member) for member in compare(old, new).changed[0].members] == ["targeting changed"]
        without = {**FLAG, "targeting": GOLD}
        assert changed({**FLAG, "targeting": GOLD}, without) == []
        assert changed(without, FLAG) == ["targeting removed"]

    def test_the_hashing_version_is_part_of_a_flag(self) -> None:
        found = compare(load({"x": FLAG}), load({"x": FLAG}, fractional="v3"))
        assert [str(member) for member in found.changed[0].members] == ["fractional v2 → v3"]

    def test_another_source_counts_unless_told_otherwise(self) -> None:
        old, new = load({"x": FLAG}, source="a.json"), load({"x": FLAG}, source="b.json")
        assert str(compare(old, new)) == "~ x   source a.json → b.json"
        assert not compare(old, new, sources=False)

    def test_metadata_of_the_whole_is_compared_too(self) -> None:
        found = compare(wigwag.load({"flags": {}, "metadata": {"v": 1}}), wigwag.load({"flags": {}}))
        assert str(found) == "~ metadata -v of the flag set"
        assert found.to_dict()["metadata"] == {"member": "metadata", "removed": ["v"]}


class TestAnswers:
    def found(self, **change: Any) -> Comparison:
        return compare(load({"x": FLAG, "same": FLAG}), load({"x": {**FLAG, **change}, "same": FLAG}), USERS)

    def test_each_context_is_told_what_it_gets_before_and_after(self) -> None:
        found = self.found(targeting=GOLD, defaultVariant="on")
        first = found.outcomes[0]
        assert (first.context, first.name, len(found.outcomes)) == (0, "fay", 3)
        assert first.to_dict()["flags"] == [
            {
                "key": "x",
                "before": {"variant": "off", "value": False, "reason": "STATIC", "error": None},
                "after": {"variant": "on", "value": True, "reason": "TARGETING_MATCH", "error": None},
            }
        ]

    def test_contexts_are_counted_by_what_they_move_from_and_to(self) -> None:
        found = self.found(targeting=GOLD)
        assert [(str(move.shift), move.count, move.examples, move.who()) for move in found.moves] == [
            ("off → on", 2, [0, 2], "fay, #3"),
            ("off STATIC → off DEFAULT", 1, [1], "bo"),
        ]
        assert found.affected == 2
        assert str(found).splitlines()[2:] == ["2 of 3 contexts get another answer:", "  x   off → on   2: fay, #3"]

    def test_another_value_of_the_same_variant_is_another_answer(self) -> None:
        found = self.found(variants={"on": True, "off": 0})
        assert [(str(move.shift), move.count) for move in found.moves] == [("off false → off 0", 3)]
        assert found.affected == 3

    def test_another_reason_is_told_but_nobody_feels_it(self) -> None:
        found = self.found(targeting={"if": [False, "on"]})
        assert (found.affected, [move.shift.noticed for move in found.moves]) == (0, [False])
        assert str(found).splitlines()[2:] == [
            "none of 3 contexts gets another answer",
            "  1 more flag gives other reasons only",
        ]

    def test_a_flag_that_goes_is_felt_and_a_new_one_is_not(self) -> None:
        found = compare(load({"old": FLAG}), load({"new": FLAG}), USERS)
        assert found.affected == 3
        assert [(str(move.shift), move.shift.noticed) for move in found.moves] == [
            ("(no such flag) → off", False),
            ("off → (no such flag)", True),
        ]
        assert str(found).splitlines()[-2:] == ["of new flags they get:", "  new   off   3: fay, bo, #3"]

    def test_an_error_is_an_answer(self) -> None:
        found = self.found(targeting={"no-such-operator": []})
        assert [(str(move.shift), move.count) for move in found.moves] == [("off → PARSE_ERROR", 3)]
        assert found.moves[0].to_dict()["after"]["error"] == "PARSE_ERROR"

    def test_disabling_leaves_the_caller_s_default(self) -> None:
        assert str(self.found(state="DISABLED").moves[0].shift) == "off → (caller's default)"

    def test_clients_get_the_flag_that_answers_for_the_key(self) -> None:
        """Of two sets with a key the last one answers; who selects the other sees its change."""
        red, blue = ({"key": "x", **FLAG, "metadata": {"flagSetId": name}} for name in ("red", "blue"))
        old, new = load([red, blue]), load([{**red, "defaultVariant": "on"}, blue])
        assert compare(old, new, USERS).affected == 0
        assert compare(old.select("flagSetId=red"), new.select("flagSetId=red"), USERS).affected == 3

    def test_both_sides_see_the_same_time(self) -> None:
        ticks = iter(range(100))
        early = {"if": [{"<": [{"var": "$flagd.timestamp"}, 50]}, "on", "off"]}
        old = load({"x": {**FLAG, "targeting": early}}, clock=lambda: float(next(ticks)))
        new = load({"x": {**FLAG, "targeting": {"or": [early]}}}, clock=lambda: float(next(ticks)))
        assert compare(old, new, [{}] * 60).moves == ()
        assert next(ticks) == 1
        assert compare(old, new, [{}], now=60.0).moves == ()

    def test_only_flags_that_may_answer_differently_are_evaluated(self) -> None:
        flags = {f"f{n}": FLAG for n in range(100)}
        old = wigwag.load({"flags": flags, "metadata": {"v": 1}})
        new = wigwag.load({"flags": {**flags, "f7": {**FLAG, "state": "DISABLED"}}, "metadata": {"v": 2}})
        assert len(compare(old, new).changed) == 100
        assert compare(old, new, USERS).affected == len(USERS)
        comparing = Comparing(old, new, USERS, work=2 * len(USERS) - 1)
        with pytest.raises(
            UsageError, match="3 contexts are too many for 1 changed flags; compare 2 contexts at a time"
        ):
            list(comparing.steps())
        list(Comparing(old, new, USERS, work=2 * len(USERS)).steps())


class TestLimits:
    def test_contexts_are_limited(self) -> None:
        with pytest.raises(UsageError, match="more than 2 contexts; compare a sample"):
            compare(load({}), load({}), USERS, most=2)
        with pytest.raises(UsageError, match="more than 10000 contexts"):
            compare(load({}), load({}), ({} for _ in iter(int, 1)))

    def test_a_context_is_an_object(self) -> None:
        with pytest.raises(UsageError, match="context #2 must be an object of attributes, not int"):
            compare(load({}), load({}), [{}, 5])  # type: ignore[list-item]

    def test_all_are_counted_and_the_first_are_listed(self) -> None:
        many = [{"targetingKey": f"u{n}"} for n in range(MOST_LISTED + 5)]
        found = compare(load({"x": FLAG}), load({"x": {**FLAG, "defaultVariant": "on"}}), many)
        assert (found.affected, found.moves[0].count, len(found.outcomes)) == (1005, 1005, MOST_LISTED)
        assert found.moves[0].who() == "u0, u1, u2, u3, u4 and 1000 more"

    def test_it_is_done_in_small_steps(self) -> None:
        old, new = (load({f"f{n}": {**FLAG, "defaultVariant": name} for n in range(1000)}) for name in ("on", "off"))
        comparing = Comparing(old, new, USERS)
        assert sum(1 for _ in comparing.steps()) == 4 + 4 + 3 * 4
        assert comparing.result() == compare(old, new, USERS)


def test_one_context_is_spoken_of_as_one() -> None:
    old, new = load({"x": FLAG}), load({"x": {**FLAG, "defaultVariant": "on"}})
    assert str(compare(old, new, [{}])).splitlines()[2] == "the context gets other answers:"
    assert str(compare(old, old, [{}])).splitlines()[2] == "the context gets the same answers"


flags = st.builds(flag, rules, st.sampled_from([*VARIANTS, None]))
documents = st.dictionaries(st.sampled_from("abc"), flags, max_size=3).map(lambda found: {"flags": found})


@settings(max_examples=150, deadline=None)
@given(documents, documents, st.lists(contexts, max_size=3))
def test_it_tells_a_difference_if_and_only_if_there_is_one(old: Any, new: Any, users: list[dict[str, Any]]) -> None:
    before, after = wigwag.load(old), wigwag.load(new)
    found = compare(before, after, users, now=1.0)
    assert bool(found) == (before.id != after.id)
    told = {shift.key for affected in found.outcomes for shift in affected.shifts}
    for key in {*before, *after} - told:
        for user in users:
            old_answer, new_answer = (side.resolve(key, context=user, now=1.0) for side in (before, after))
            assert (old_answer.variant, old_answer.reason) == (new_answer.variant, new_answer.reason)
            assert json.dumps(old_answer.value) == json.dumps(new_answer.value)
    assert json.dumps(found.to_dict()) == json.dumps(compare(before, after, users, now=1.0).to_dict())
