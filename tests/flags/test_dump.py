"""Flags written down and loaded again."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wigwag
from tests.strategies import VARIANTS, contexts, flag, rules
from wigwag.flags.dump import Dumped, document, dump, restore

FLAG = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off"}


def restored(flags: wigwag.FlagSet) -> wigwag.FlagSet:
    """Send the flags through JSON, as from an agent to whoever compares them."""
    text = msgspec.json.encode(dump(flags))
    return restore(msgspec.json.decode(text, type=list[Dumped]), time.time)


def keyed(key: str, set_id: str, **members: Any) -> dict[str, Any]:
    return {"key": key, **FLAG, "metadata": {"flagSetId": set_id}} | members


DOCUMENTS: dict[str, Any] = {
    "none": {"flags": {}},
    "metadata alone": {"flags": {}, "metadata": {"version": 3}},
    "shared rules": {
        "$evaluators": {"vip": {"==": [{"var": "tier"}, {"$ref": "gold"}]}, "gold": "gold", "unused": 1},
        "flags": {"x": {**FLAG, "targeting": {"if": [{"$ref": "vip"}, "on"]}}},
    },
    "own metadata": {
        "metadata": {"flagSetId": "shop", "a": 1, "b": True},
        "flags": {"x": {**FLAG, "metadata": {"a": True, "b": None, "c": "x"}}, "y": FLAG},
    },
    "sets": {"flags": [keyed("x", "red"), keyed("x", "blue", defaultVariant="on"), keyed("y", "red")]},
    "hardly a rule": {"flags": {"x": {**FLAG, "targeting": {}}, "y": {**FLAG, "targeting": None}}},
    "strange": {"flags": {"x": {**FLAG, "state": None, "defaultVariant": ""}, "é/ü \x7f": FLAG}},
}


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("fractional", ["v2", "v3"])
def test_what_is_restored_has_the_same_id(name: str, fractional: Any) -> None:
    flags = wigwag.load(DOCUMENTS[name], fractional, source="a.json")
    again = restored(flags)
    assert again.id == flags.id
    assert [flag.key for flag in again.flags()] == [flag.key for flag in flags.flags()]
    assert again.resolve("x") == flags.resolve("x")


def test_sources_keep_their_order_and_what_lost_is_left_out() -> None:
    low = wigwag.load({"flags": {"x": FLAG, "y": FLAG}, "metadata": {"v": 1}}, source="low")
    high = wigwag.load({"flags": {"x": {**FLAG, "defaultVariant": "on"}}, "metadata": {"v": 2}}, source="high")
    flags = wigwag.merge([low, high])
    assert restored(flags) == flags
    assert [(one.source, b'"x"' in bytes(one.document)) for one in dump(flags)] == [("low", False), ("high", True)]
    assert restored(flags.select("source=low")).keys() == ("y",)


def test_a_rule_that_nobody_can_parse_stays_as_it_is() -> None:
    text = b'{"flags":{"x":{"state":"ENABLED","variants":{"on":1},"targeting":{"a":"\xff"}},"y":{"variants":{"on":1}}}}'
    flags = wigwag.load(text)
    assert flags.resolve("x").error == "PARSE_ERROR"
    assert restored(flags).id == flags.id


@pytest.mark.parametrize("later", [{"vip": False}, {}])
def test_a_flag_that_kept_its_last_good_definition_keeps_what_it_went_by(later: dict[str, Any]) -> None:
    """Its metadata and its shared rules are those of an earlier document."""
    targeted = {**FLAG, "targeting": {"if": [{"$ref": "vip"}, "on"]}}
    good = {"metadata": {"v": 1, "gone": "x"}, "$evaluators": {"vip": True}, "flags": {"x": targeted, "y": FLAG}}
    bad = {"metadata": {"v": 2}, "$evaluators": later, "flags": {"x": {"variants": 5}, "y": FLAG}}
    flags = wigwag.load(bad, previous=wigwag.load(good, source="a"), source="a")
    assert flags.resolve("x").variant == "on"
    assert restored(flags).id == flags.id
    assert restored(flags).resolve("x") == flags.resolve("x")


def test_a_rule_that_uses_no_shared_rules_does_not_mind_new_ones() -> None:
    flag = {**FLAG, "targeting": {"if": [{"var": "x"}, "on"]}}
    before = wigwag.load({"$evaluators": {"a": True}, "flags": {"x": flag, "y": FLAG}})
    after = wigwag.load({"$evaluators": {"a": 1}, "flags": {"x": flag, "y": FLAG}}, previous=before)
    assert len(dump(after)) == 1
    assert restored(after) == after


flags = st.builds(flag, rules, st.sampled_from([*VARIANTS, None]))


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=4), flags, max_size=3), contexts)
def test_any_flags_come_back(found: dict[str, Any], context: dict[str, Any]) -> None:
    before = wigwag.load({"flags": found}, source="a")
    after = restored(before)
    assert after.id == before.id
    plain = wigwag.load(document(before))
    for key in before:
        expected = before.resolve(key, context=context, now=1.0)
        assert after.resolve(key, context=context, now=1.0) == expected
        assert plain.resolve(key, context=context, now=1.0).variant == expected.variant


class TestDocument:
    def test_it_stands_alone(self) -> None:
        flags = wigwag.load(DOCUMENTS["shared rules"], source="a.json")
        told = document(flags)
        assert told.keys() == {"flags"}
        assert told["flags"]["x"]["targeting"] == {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}
        assert "source" not in told["flags"]["x"]
        assert wigwag.load(told).resolve("x", context={"tier": "gold"}).variant == "on"

    def test_where_sets_share_a_key_it_is_an_array(self) -> None:
        flags = wigwag.load(DOCUMENTS["sets"])
        again = wigwag.load(document(flags))
        assert again == flags
        assert again.resolve("x").variant == flags.resolve("x").variant == "on"
