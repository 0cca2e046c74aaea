"""A source of many parts: what it loads to, and that a change costs what changed."""

from __future__ import annotations

import json
import pickle
from time import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import wigwag
from wigwag.errors import DocumentError
from wigwag.flags.flag import LoadSettings
from wigwag.flags.model import Limits
from wigwag.flags.part import Part, read_part, written
from wigwag.flags.store import load_parts

Documents = dict[str, Any]
"""Documents by name, in order."""


def flag(default: str = "on", **more: Any) -> dict[str, Any]:
    return {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": default, **more}


def of_set(name: str, **flags: Any) -> dict[str, Any]:
    return {"metadata": {"flagSetId": name}, "flags": flags}


class Loads:
    """Loads documents one after the other; a document that is equal stays the same part, as for a source."""

    def __init__(self, **limits: int) -> None:
        self._parts: dict[str, tuple[Any, Part]] = {}
        self._limits = Limits(**limits)
        self.flags: wigwag.FlagSet | None = None

    def __call__(self, documents: Documents, *, strict: bool = False) -> wigwag.FlagSet:
        known, self._parts = self._parts, {}
        for name, document in documents.items():
            before = known.get(name)
            same = before is not None and before[0] == document
            part = before[1] if same and before else read_part(json.dumps(document).encode(), self._limits, "json")
            self._parts[name] = document, part
        self.flags = load_parts(
            {name: part for name, (_, part) in self._parts.items()},
            source="src",
            options=LoadSettings(limits=self._limits),
            strict=strict,
            previous=self.flags,
            clock=time,
        )
        return self.flags

    def text(self) -> bytes:
        """Return the parts of now as one document."""
        return written(part for _, part in self._parts.values())


@pytest.fixture
def load() -> Loads:
    return Loads()


class TestWhatChanges:
    def test_flags_whose_text_did_not_change_are_the_same_objects(self, load: Loads) -> None:
        first = load({"a": {"flags": {"x": flag(), "y": flag()}}, "b": {"flags": {"z": flag()}}})
        second = load({"a": {"flags": {"x": flag("off"), "y": flag()}}, "b": {"flags": {"z": flag()}}})
        assert second.flag("x") is not first.flag("x")
        assert [second.flag(key) is first.flag(key) for key in "yz"] == [True, True]
        assert second.resolve("x").variant == "off"
        assert first.resolve("x").variant == "on"

    def test_a_part_that_goes_takes_its_flags_and_what_it_hid_comes_back(self, load: Loads) -> None:
        low = {"flags": {"x": flag(), "y": flag()}}
        both = load({"a": low, "b": {"flags": {"x": flag("off"), "z": flag()}}})
        assert (both.keys(), both.resolve("x").variant) == (("x", "y", "z"), "off")
        alone = load({"a": low})
        assert (alone.keys(), alone.resolve("x").variant) == (("x", "y"), "on")

    def test_a_part_in_between_is_below_the_later_one_and_above_the_earlier(self, load: Loads) -> None:
        a, b, c = ({"flags": {"x": flag(metadata={"from": name})}} for name in "abc")
        assert load({"a": a, "c": c}).resolve("x").metadata == {"from": "c"}
        assert load({"a": a, "b": b, "c": c}).resolve("x").metadata == {"from": "c"}
        assert load({"a": a, "b": b}).resolve("x").metadata == {"from": "b"}

    def test_another_order_of_the_same_parts_is_another_winner(self, load: Loads) -> None:
        a, b = {"flags": {"x": flag()}}, {"flags": {"x": flag("off")}}
        assert load({"a": a, "b": b}).resolve("x").variant == "off"
        assert load({"b": b, "a": a}).resolve("x").variant == "on"

    def test_a_flag_that_moves_to_another_set_leaves_the_first(self, load: Loads) -> None:
        assert load({"a": of_set("red", x=flag())}).select("flagSetId=red").keys() == ("x",)
        moved = load({"a": of_set("blue", x=flag())})
        assert moved.select("flagSetId=red").keys() == ()
        assert moved.select("flagSetId=blue").keys() == ("x",)

    def test_flags_in_force_can_be_pickled(self, load: Loads) -> None:
        flags = load({"a": {"flags": {"x": flag()}}})
        assert pickle.loads(pickle.dumps(flags)) == flags


class TestBadFlags:
    def test_a_bad_flag_keeps_its_last_good_definition_and_says_which_part_is_at_fault(self, load: Loads) -> None:
        good = {"flags": {"y": flag()}}
        load({"a": {"flags": {"x": flag("off")}}, "b": good})
        flags = load({"a": {"flags": {"x": flag() | {"variants": 5}}}, "b": good})
        assert flags.resolve("x").variant == "off"
        (found,) = flags.problems
        assert (found.source, found.path) == ("src (a)", "$.flags.x.variants")
        assert "its last good definition stays in force" in found.message

    def test_it_stays_in_quarantine_while_others_change_and_until_it_is_mended(self, load: Loads) -> None:
        load({"a": {"flags": {"x": flag("off")}}, "b": {"flags": {"y": flag()}}})
        bad = {"flags": {"x": 7}}
        first = load({"a": bad, "b": {"flags": {"y": flag()}}})
        second = load({"a": bad, "b": {"flags": {"y": flag("off")}}})
        assert second.problems == first.problems
        assert second.layers[0].problems is first.layers[0].problems
        assert second.resolve("x").variant == "off"
        mended = load({"a": {"flags": {"x": flag()}}, "b": {"flags": {"y": flag("off")}}})
        assert (mended.problems, mended.resolve("x").variant) == ((), "on")

    def test_it_keeps_its_definition_though_another_part_defines_it_now(self, load: Loads) -> None:
        load({"a": {"flags": {"x": flag("off")}}, "b": {"flags": {}}})
        flags = load({"a": {"flags": {}}, "b": {"flags": {"x": 7}}})
        assert flags.resolve("x").variant == "off"
        assert [found.source for found in flags.problems] == ["src (b)"]

    def test_a_bad_definition_of_a_later_part_does_not_bring_back_that_of_an_earlier_one(self, load: Loads) -> None:
        flags = load({"a": {"flags": {"x": flag()}}, "b": {"flags": {"x": 7}}})
        assert flags.keys() == ()
        assert load({"a": {"flags": {"x": flag()}}}).keys() == ("x",)

    @pytest.mark.parametrize("bad", [7, flag() | {"variants": 5}, flag(metadata=5)])
    def test_it_keeps_its_definition_in_a_flag_set_that_the_part_names(self, load: Loads, bad: Any) -> None:
        load({"a": of_set("red", x=flag("off"), y=flag())})
        flags = load({"a": of_set("red", x=bad, y=flag())})
        assert flags.select("flagSetId=red").resolve("x").variant == "off"

    def test_a_rule_that_went_bad_does_not_replace_one_that_worked(self, load: Loads) -> None:
        load({"a": {"flags": {"x": flag(targeting={"if": [True, "off"]})}}})
        flags = load({"a": {"flags": {"x": flag(targeting={"iff": [True, "off"]})}}})
        assert flags.resolve("x").variant == "off"
        assert [found.code for found in flags.problems] == ["operator-unknown"]

    def test_what_the_schema_complains_about_is_told_with_the_part(self, load: Loads) -> None:
        flags = load({"a": {"flags": {"x": flag(state="on")}}, "b": {"flags": {"y": flag()}}})
        assert [(found.code, found.source) for found in flags.problems] == [("state-unknown", "src (a)")]

    def test_members_that_appear_twice_are_told_with_the_part(self) -> None:
        text = b'{"flags": {"x": {"state": "ENABLED", "variants": {"on": 1, "on": 2}}}}'
        parts = {"a": read_part(text, Limits(), "json")}
        flags = load_parts(parts, source="src", options=LoadSettings(), strict=False, previous=None, clock=time)
        assert [(found.code, found.path, found.source) for found in flags.problems] == [
            ("duplicate-key", "$.flags.x.variants.on", "src (a)")
        ]

    def test_where_one_is_an_error_all_are_refused_if_so_wanted(self, load: Loads) -> None:
        with pytest.raises(DocumentError, match=r"src \(b\): \$.flags.y: error"):
            load({"a": {"flags": {"x": flag()}}, "b": {"flags": {"y": 7}}}, strict=True)


class TestLimits:
    def test_parts_that_are_too_large_together_are_refused(self) -> None:
        load = Loads(document_bytes=300)
        load({"a": {"flags": {"x": flag()}}})
        with pytest.raises(DocumentError, match="more than the limit of 300"):
            load({name: {"flags": {name: flag()}} for name in "abcd"})

    def test_metadata_cannot_make_a_part_larger_than_the_limit(self) -> None:
        document = {"metadata": {"note": "n" * 500}, "flags": {str(number): flag() for number in range(10)}}
        with pytest.raises(DocumentError, match="larger than 3000 bytes"):
            read_part(json.dumps(document).encode(), Limits(document_bytes=3000), "json")


definitions = st.one_of(
    st.builds(
        lambda default, meta: flag(default, **({"metadata": meta} if meta is not None else {})),
        st.sampled_from(["on", "off"]),
        st.sampled_from([None, {"owner": "x"}, {"flagSetId": "red"}, {"flagSetId": None}]),
    ),
    st.sampled_from([flag() | {"variants": 5}, flag("none"), flag(targeting={"iff": []})]),
)
some = st.fixed_dictionaries(
    {"flags": st.dictionaries(st.sampled_from("xyz"), definitions)},
    optional={"metadata": st.sampled_from([{"flagSetId": "red"}, {"flagSetId": "blue"}, {"owner": "y"}])},
)
histories = st.lists(st.dictionaries(st.sampled_from("abcd"), some, max_size=4), min_size=1, max_size=5)


BLUE = {"flagSetId": "blue"}
OVERTAKEN: list[Documents] = [
    {
        "a": {"metadata": BLUE, "flags": {"x": flag() | {"variants": 5}, "y": flag(metadata={"flagSetId": "red"})}},
        "b": {"metadata": BLUE, "flags": {"y": flag(targeting={"iff": []})}},
    }
]
"""A bad flag does not count: the set that answers for `y` is the one whose first good flag comes last."""


@example(OVERTAKEN, False)
@given(histories, st.booleans())
def test_one_after_the_other_is_the_same_as_all_at_once(history: list[Documents], order: bool) -> None:
    """Whatever came before, flags, answers, ids and problems are those of the parts as one document."""
    load, whole = Loads(), None
    for documents in history:
        flags = load(dict(sorted(documents.items())) if order else documents)
        whole = wigwag.load(load.text(), source="src", format="json", previous=whole)
        assert [(each.set_id, each.key, each.digest) for each in flags.flags()] == [
            (each.set_id, each.key, each.digest) for each in whole.flags()
        ]
        assert flags.id == whole.id
        for key in "xyz":
            assert flags.resolve(key) == whole.resolve(key)
        assert sorted(found.code for found in flags.layers[0].problems) == sorted(
            found.code for found in whole.layers[0].problems
        )


@given(histories)
def test_an_id_follows_from_the_flags_and_not_from_what_they_were_before(history: list[Documents]) -> None:
    load, before = Loads(), Loads()({})
    assert before.id
    for documents in history:
        flags = load(documents).after(before)
        assert flags.id == pickle.loads(pickle.dumps(flags)).id  # which knows nothing but the flags
        before = flags
