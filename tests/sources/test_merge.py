"""Documents of many keys: one on top of the other, each with what is its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wigwag
from wigwag.flags.document import Format
from wigwag.flags.model import Limits
from wigwag.flags.part import Part, read_part
from wigwag.sources.document import Merged
from wigwag.sources.merge import SLICE, Merger

GOLD = {"==": [{"var": "tier"}, "gold"]}


def flag(default: str = "on", **more: Any) -> dict[str, Any]:
    return {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": default, **more}


def merge(*documents: Any, merger: Merger | None = None) -> tuple[bytes, str]:
    texts = [document if isinstance(document, bytes) else json.dumps(document).encode() for document in documents]
    merged, problem = (merger or Merger()).merge({f"{number}": text for number, text in enumerate(texts)})
    return merged.content, problem


def load(*documents: Any) -> wigwag.FlagSet:
    content, problem = merge(*documents)
    assert problem == ""
    return wigwag.load(content, format="json")


def test_a_later_document_wins() -> None:
    flags = load({"flags": {"a": flag(), "b": flag()}}, {"flags": {"a": flag("off")}})
    assert flags.keys() == ("a", "b")
    assert flags.resolve("a").variant == "off"
    assert flags.problems == ()


def test_shared_rules_and_metadata_are_those_of_the_own_document() -> None:
    def document(key: str, tier: str) -> dict[str, Any]:
        rule = {"if": [{"$ref": "premium"}, "on", "off"]}
        shared = {"premium": {"==": [{"var": "tier"}, tier]}}
        return {"flags": {key: flag(targeting=rule)}, "$evaluators": shared, "metadata": {"tier": tier}}

    flags = load(document("a", "gold"), document("b", "tin"))
    assert flags.resolve("a", context={"tier": "gold"}).variant == "on"
    assert flags.resolve("b", context={"tier": "gold"}).variant == "off"
    assert flags.resolve("b", context={"tier": "tin"}).variant == "on"
    assert flags.resolve("b").metadata == {"tier": "tin"}


def test_shared_rules_that_refer_to_others_are_followed_and_circles_fail_where_they_are_used() -> None:
    shared = {"premium": {"$ref": "gold"}, "gold": GOLD, "round": {"$ref": "round"}}
    rules = {name: flag(targeting={"if": [{"$ref": name}, "on", "off"]}) for name in ("premium", "round", "unknown")}
    content, _ = merge({"flags": {**rules, "plain": flag()}, "$evaluators": shared})
    flags = wigwag.load(content)
    assert flags.resolve("premium", context={"tier": "gold"}).variant == "on"
    assert {flags.resolve(name).error for name in ("round", "unknown")} == {"PARSE_ERROR"}
    assert flags.resolve("plain").variant == "on"


def test_the_same_key_in_two_flag_sets_is_two_flags() -> None:
    red, blue = ({"flags": {"a": flag()}, "metadata": {"flagSetId": name}} for name in ("red", "blue"))
    flags = load(red, blue, {"flags": [{"key": "a", **flag("off"), "metadata": {"flagSetId": "red"}}]})
    assert flags.select("flagSetId=red").resolve("a").variant == "off"
    assert flags.select("flagSetId=blue").resolve("a").variant == "on"


def test_a_bad_flag_is_carried_along_so_that_its_last_good_definition_stays() -> None:
    before = load({"flags": {"a": flag(), "b": flag()}}, {"flags": {"c": flag()}})
    content, problem = merge({"flags": {"a": {**flag(), "variants": 5}, "b": 7}}, {"flags": {"c": flag("off")}})
    assert problem == ""
    after = wigwag.load(content, previous=before)
    assert {key: after.resolve(key).variant for key in "abc"} == {"a": "on", "b": "on", "c": "off"}
    assert [found.path for found in after.problems] == ["$.flags.a.variants", "$.flags.b"]


def test_a_bad_flag_among_flags_of_several_sets_is_carried_along_too() -> None:
    red = {"flags": {"a": flag()}, "metadata": {"flagSetId": "red"}}
    content, _ = merge(red, {"flags": {"a": flag(), "b": 7}})
    flags = wigwag.load(content)
    assert flags.keys() == ("a",)
    assert len(flags.problems) == 1


def test_a_document_that_cannot_be_read_keeps_what_it_said_last_and_the_others_load() -> None:
    merger = Merger()
    merge({"flags": {"a": flag()}}, {"flags": {"b": flag()}}, merger=merger)
    content, problem = merge(b"{", {"flags": {"b": flag("off")}}, merger=merger)
    assert problem.startswith("0: not valid JSON")
    flags = wigwag.load(content)
    assert (flags.resolve("a").variant, flags.resolve("b").variant) == ("on", "off")
    content, problem = merge(b"{", b"[", merger=merger)
    assert problem.endswith("(and 1 more)")
    assert wigwag.load(content).keys() == ("a", "b")
    content, problem = merge({"flags": {}}, merger=merger)
    assert (content, problem) == (b'{"flags":{}}', "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "the document is empty"),
        (b"{}", "no `flags`"),
        (b'{"flags": 5}', "$.flags: must be an object or an array of flags"),
        (b'{"flags": {}, "metadata": 5}', "$.metadata: must be an object"),
        (b'{"flags": {}, "$evaluators": []}', "$.$evaluators: must be an object"),
        (b"\xff\xfe", ""),
    ],
)
def test_what_is_no_document_is_told(text: bytes, said: str) -> None:
    content, problem = merge(text, {"flags": {"a": flag()}})
    assert problem.startswith("0: ")
    assert said in problem
    assert wigwag.load(content).keys() == ("a",)


def test_yaml_is_told_by_the_name_or_by_the_text() -> None:
    merged, problem = Merger().merge({"a.yaml": b"flags: {a: {variants: {on: 1}}}", "b": b"flags: {b: {variants: {}}}"})
    assert problem == ""
    assert json.loads(merged.content)["flags"].keys() == {"a", "b"}


keys = st.sampled_from("abc")
definitions = st.builds(
    lambda default, meta: flag(default, **({"metadata": meta} if meta is not None else {})),
    st.sampled_from(["on", "off"]),
    st.sampled_from([None, {}, {"owner": "x"}, {"flagSetId": "red"}, {"flagSetId": None}]),
)
documents = st.fixed_dictionaries(
    {"flags": st.dictionaries(keys, definitions)},
    optional={"metadata": st.sampled_from([{}, {"flagSetId": "red"}, {"owner": "y"}])},
)


@given(st.lists(documents, min_size=1, max_size=4))
def test_it_loads_to_what_the_documents_are_on_top_of_each_other(given: list[dict[str, Any]]) -> None:
    apart, together = wigwag.merge(wigwag.load(each) for each in given), load(*given)
    assert [(each.set_id, each.key, each.digest) for each in together.flags()] == [
        (each.set_id, each.key, each.digest) for each in apart.flags()
    ]


class TestOnlyWhatChanged:
    """A document is read again only when its text is another one."""

    def merger(self) -> tuple[Merger, list[bytes]]:
        read: list[bytes] = []

        def counting(content: bytes, limits: Limits, format: Format | None) -> Part:
            read.append(content)
            return read_part(content, limits, format)

        return Merger(counting), read

    def documents(self, count: int, **changed: str) -> dict[str, bytes]:
        variants = {f"{number}": "on" for number in range(count)} | changed
        return {name: json.dumps({"flags": {name: flag(variant)}}).encode() for name, variant in variants.items()}

    def test_one_change_among_hundreds_reads_one_document(self) -> None:
        merger, read = self.merger()
        first, _ = merger.merge(self.documents(300))
        assert len(read) == 300
        second, _ = merger.merge(self.documents(300, **{"7": "off"}))
        assert len(read) == 301
        assert [name for name, part in second.parts.items() if part is not first.parts[name]] == ["7"]
        assert second.size_since(first) == second.parts["7"].size

    def test_nothing_new_is_the_same_object(self) -> None:
        merger, _ = self.merger()
        first, _ = merger.merge(self.documents(3))
        assert merger.merge(self.documents(3))[0] is first

    def test_another_text_that_says_the_same_is_the_same_object(self) -> None:
        merger, _ = self.merger()
        first, _ = merger.merge({"a": b'{"flags": {"x": {"variants": {}}}}'})
        assert merger.merge({"a": b'{"flags" :{"x" :{"variants": {}}}}'})[0] is first

    def test_what_cannot_be_read_is_tried_once(self) -> None:
        merger, read = self.merger()
        for _ in range(3):
            assert merger.merge({"a": b"{"})[1].startswith("a: not valid JSON")
        assert len(read) == 1

    def test_two_mergers_make_equal_documents_of_the_same_texts(self) -> None:
        one, two = (Merger().merge(self.documents(3))[0] for _ in range(2))
        assert one is not two
        assert one == two
        assert one != Merger().merge(self.documents(3, **{"1": "off"}))[0]
        assert one != Merger().merge(dict(reversed(self.documents(3).items())))[0]

    def test_while_much_is_read_others_get_their_turn(self) -> None:
        async def main() -> tuple[int, Merged]:
            turns, over = 0, asyncio.Event()

            async def others() -> None:
                nonlocal turns
                while not over.is_set():
                    turns += 1
                    await asyncio.sleep(0)

            async with asyncio.TaskGroup() as group:
                group.create_task(others())
                merged, _ = await Merger().merge_in_turns(large)
                over.set()
            return turns, merged

        large = {f"{n}": json.dumps({"flags": {f"{n}": flag(note="n" * 1000)}}).encode() for n in range(2000)}
        turns, merged = asyncio.run(main())
        assert turns >= sum(map(len, large.values())) // (2 * SLICE)
        assert merged == Merger().merge(large)[0]
