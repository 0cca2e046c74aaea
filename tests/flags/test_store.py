"""Merging, selecting, comparing."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wigwag


def flag(value: Any = 1, **more: Any) -> dict[str, Any]:
    return {"state": "ENABLED", "variants": {"v": value}, "defaultVariant": "v", **more}


def source(name: str, flags: dict[str, Any], **metadata: Any) -> wigwag.FlagSet:
    return wigwag.load({"flags": flags, "metadata": metadata}, source=name)


def test_the_last_source_wins_and_its_loser_takes_over_when_it_goes() -> None:
    low, high = source("low", {"a": flag("low"), "b": flag("low")}), source("high", {"a": flag("high")})
    assert wigwag.merge([low, high]).resolve("a").value == "high"
    assert wigwag.merge([high, low]).resolve("a").value == "low"
    assert wigwag.merge([low, source("high", {})]).resolve("a").value == "low"
    assert wigwag.merge([low, high]).keys() == ("a", "b")


def test_flags_of_different_sets_do_not_replace_each_other() -> None:
    merged = wigwag.merge(
        [source("1", {"a": flag("one")}, flagSetId="x"), source("2", {"a": flag("two")}, flagSetId="y")]
    )
    assert merged.resolve("a").value == "two"
    assert merged.select("flagSetId=x").resolve("a").value == "one"
    reverse = wigwag.merge(
        [source("2", {"a": flag("two")}, flagSetId="y"), source("1", {"a": flag("one")}, flagSetId="x")]
    )
    assert reverse.resolve("a").value == "one"


def test_without_a_selector_the_highest_source_answers_whatever_its_set() -> None:
    top = source("top", {"a": flag("top")}, flagSetId="x")
    middle = source("middle", {"a": flag("middle")}, flagSetId="y")
    bottom = source("bottom", {"a": flag("bottom")}, flagSetId="x")
    assert wigwag.merge([bottom, middle, top]).resolve("a").value == "top"
    assert wigwag.merge([top, middle, bottom]).resolve("a").value == "bottom"


@pytest.mark.parametrize(
    ("selector", "keys"),
    [
        ("", ("in", "other", "out")),
        ("flagSetId=s", ("in",)),
        ("flagSetId=", ("out",)),
        ("flagSetId=S", ()),
        ("source=f", ("in", "other", "out")),
        ("f", ("in", "other", "out")),
        ("source=F", ()),
        ("source=a=b", ()),
    ],
)
def test_selectors_match_exactly(selector: str, keys: tuple[str, ...]) -> None:
    flags = {"in": flag(metadata={"flagSetId": "s"}), "out": flag(), "other": flag(metadata={"flagSetId": "t"})}
    assert source("f", flags).select(selector).keys() == keys


@pytest.mark.parametrize("selector", ["flagsetid=x", "=x", "key=x"])
def test_an_unknown_selector_key_is_an_error_that_names_the_known_ones(selector: str) -> None:
    with pytest.raises(wigwag.SelectorError, match='valid keys: "flagSetId", "source"'):
        source("f", {}).select(selector)


def test_evaluations_reflect_the_selector_unless_the_flag_says_otherwise() -> None:
    flags = source("f", {"a": flag(), "b": flag(metadata={"source": "mine"})})
    by_source, no_set = flags.select("source=f"), flags.select("flagSetId=")
    assert by_source.resolve("a").metadata == {"source": "f"}
    assert by_source.resolve("b").metadata == {"source": "mine"}
    assert by_source.resolve("x").metadata == {"source": "f"}
    assert no_set.resolve("a").metadata == {"flagSetId": ""}
    assert flags.resolve("a").metadata == {}
    assert flags.resolve("x").metadata == {}


def test_a_selection_can_be_merged_and_selected_from_again() -> None:
    flags = source("f", {"in": flag(metadata={"flagSetId": "s"}), "out": flag()})
    merged = wigwag.merge([flags.select("flagSetId=s"), source("g", {"more": flag()})])
    assert merged.keys() == ("in", "more")
    assert merged.select("source=f").keys() == ("in",)


def test_a_selection_keeps_selecting_from_the_winners_only() -> None:
    merged = wigwag.merge([source("low", {"a": flag(1), "b": flag(1)}), source("high", {"a": flag(2)})])
    assert merged.select("source=low").keys() == ("b",)


def test_a_diff_names_what_was_written_updated_and_deleted() -> None:
    old = source("f", {"same": flag(), "changed": flag(1), "gone": flag()})
    new = source("f", {"same": flag(), "changed": flag(2), "new": flag()})
    found = wigwag.diff(old, new)
    assert found == wigwag.Diff(("new",), ("changed",), ("gone",))
    assert found.kinds() == {"new": "write", "changed": "update", "gone": "delete"}
    assert not wigwag.diff(old, old)


@pytest.mark.parametrize(
    "change",
    [
        {"state": "DISABLED"},
        {"variants": {"v": 2}},
        {"defaultVariant": None},
        {"targeting": {"var": "x"}},
        {"metadata": {"a": 1}},
    ],
)
def test_a_diff_sees_every_part_of_a_flag(change: dict[str, Any]) -> None:
    assert wigwag.diff(source("f", {"a": flag()}), source("f", {"a": flag(**change)})).updated == ("a",)


def test_a_diff_sees_another_source_set_metadata_and_evaluators() -> None:
    plain = source("f", {"a": flag()})
    assert wigwag.diff(plain, source("g", {"a": flag()})).updated == ("a",)
    assert wigwag.diff(plain, source("f", {"a": flag()}, owner="x")).updated == ("a",)
    rule = flag(targeting={"$ref": "r"})
    one, two = ({"flags": {"a": rule}, "$evaluators": {"r": value}} for value in ("v", None))
    assert wigwag.diff(wigwag.load(one), wigwag.load(two)).updated == ("a",)


def test_the_id_depends_on_content_only() -> None:
    one = '{"flags": {"a": {"state": "ENABLED", "variants": {"x": 1, "y": 2}}, "b": {"variants": {}}}}'
    two = '{ "flags" : {"b":{"variants":{}},"a":{"variants":{"y":2,"x":1},"state":"ENABLED","unknown":[]}} }'
    assert wigwag.load(one).id == wigwag.load(two).id
    assert wigwag.load(one).id != wigwag.load(one.replace("2", "3")).id
    assert wigwag.load(one) == wigwag.load(two)
    assert len({wigwag.load(one), wigwag.load(two)}) == 1


def test_the_id_covers_all_that_decides() -> None:
    doubling: dict[str, Any] = {f"e{n}": {"and": [{"$ref": f"e{n + 1}"}] * 2} for n in range(20)}
    one, two = (
        wigwag.load({"flags": {"a": flag(targeting={"$ref": "e0"})}, "$evaluators": doubling | {"e20": answer}})
        for answer in ("v", "w")
    )
    assert one != two
    document = {"flags": {"a": flag(1.5)}}
    assert wigwag.load(document, numbers="lossless") != wigwag.load(document)
    assert wigwag.load({"flags": {}, "metadata": {"a": 1}}) != wigwag.load({"flags": {}})
    assert wigwag.load(document, source="a\udcff").id
    assert wigwag.load({"flags": {"a": flag()}, "$evaluators": {"unused": 1}}) == wigwag.load({"flags": {"a": flag()}})


def test_a_merged_set_keeps_the_clock() -> None:
    rule = {"if": [{"==": [{"var": "$flagd.timestamp"}, 7]}, "v"]}
    flags = wigwag.load({"flags": {"a": flag(targeting=rule)}}, clock=lambda: 7)
    assert wigwag.merge([flags]).resolve("a").reason == "TARGETING_MATCH"


documents = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2).map(flag), max_size=3)


@given(st.lists(documents, min_size=1, max_size=4))
def test_merging_is_a_lookup_from_the_top(flags: list[dict[str, Any]]) -> None:
    sets = [source(str(n), document) for n, document in enumerate(flags)]
    merged = wigwag.merge(sets)
    for key in "abc":
        expected = next((document[key]["variants"]["v"] for document in reversed(flags) if key in document), None)
        assert merged.resolve(key).value == expected
    regrouped = wigwag.merge([wigwag.merge(sets[:2]), wigwag.merge(sets[2:])])
    assert regrouped.id == merged.id


@given(documents, documents)
def test_applying_a_diff_leads_from_one_set_to_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    found = wigwag.diff(source("f", before), source("f", after))
    result = {key: value for key, value in before.items() if key not in found.deleted}
    result |= {key: after[key] for key in (*found.written, *found.updated)}
    assert json.dumps(result, sort_keys=True) == json.dumps(after, sort_keys=True)


def test_a_merged_set_lists_the_problems_of_every_source() -> None:
    merged = wigwag.merge([source("one", {"a": {"variants": 1}}), source("two", {"b": {"variants": 1}})])
    assert [(problem.source, problem.path) for problem in merged.problems] == [
        ("one", "$.flags.a.variants"),
        ("two", "$.flags.b.variants"),
    ]


def test_a_bad_neighbour_does_not_change_which_flag_set_answers() -> None:
    flags = [{"key": "k", **flag("inner"), "metadata": {"flagSetId": "x"}}, {"key": "k", **flag("outer")}]
    document = {"flags": flags, "metadata": {"flagSetId": "y"}}
    alone = wigwag.load(document)
    for more in [{"key": "bad", "variants": []}], [{"key": "good", **flag()}]:
        grown = {**document, "flags": flags + more}
        for previous in None, alone:
            assert wigwag.load(grown, previous=previous).resolve("k").value == alone.resolve("k").value


@pytest.mark.parametrize("part", ["metadata", "$evaluators"])
def test_a_change_from_1_to_true_in_what_flags_share_is_one(part: str) -> None:
    flags = {"a": {"state": "ENABLED", "variants": {"1": "one", "true": "yes"}, "targeting": {"$ref": "x"}}}
    before, after = ({"flags": flags, "$evaluators": {"x": 1}, part: {"x": value}} for value in (1, True))
    old = wigwag.load(before)
    assert wigwag.load(after, previous=old) == wigwag.load(after) != old


def test_a_set_that_nobody_holds_goes_without_a_search_for_garbage() -> None:
    gc.disable()
    try:
        flags = wigwag.load({"flags": {"a": {"state": "ENABLED", "variants": {"on": 1}, "defaultVariant": "on"}}})
        selected = flags.select("flagSetId=")
        assert (selected.whole is flags, flags.whole is flags, selected.resolve("a").value) == (True, True, 1)
        gone = [weakref.ref(flags), weakref.ref(selected)]
        del flags, selected
        assert [reference() for reference in gone] == [None, None]
    finally:
        gc.enable()
