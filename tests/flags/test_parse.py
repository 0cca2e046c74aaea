"""Documents: what loads, what is put in quarantine, what is rejected, and what a re-load keeps."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wigwag
from wigwag import DocumentError

Flags = st.dictionaries(
    st.sampled_from("abc"),
    st.fixed_dictionaries(
        {"state": st.just("ENABLED"), "variants": st.just({"on": True, "off": False})},
        optional={
            "defaultVariant": st.sampled_from(["on", "off", None]),
            "metadata": st.sampled_from([{}, {"flagSetId": "x"}, {"owner": "me"}]),
            "targeting": st.sampled_from([{}, {"if": [{"$ref": "e"}, "on"]}, {"if": [{"var": "k"}, "off"]}]),
        },
    ),
    max_size=3,
)
listed = Flags.map(lambda flags: [{"key": key, **flag} for key, flag in flags.items()])
documents = st.fixed_dictionaries(
    {"$evaluators": st.sampled_from([{"e": True}, {"e": False}]), "flags": st.one_of(Flags, listed)},
    optional={"metadata": st.sampled_from([{}, {"v": "1"}])},
)
GOOD = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}


def codes(flags: wigwag.FlagSet) -> list[tuple[str, str]]:
    return [(problem.path, problem.code) for problem in flags.problems]


def test_map_and_array_form_are_the_same_flags() -> None:
    mapped = wigwag.load({"flags": {"a": GOOD, "b": GOOD}})
    listed = wigwag.load({"flags": [{"key": "b", **GOOD}, {"key": "a", **GOOD}]})
    assert mapped.keys() == listed.keys() == ("a", "b")
    assert mapped.id == listed.id
    assert mapped == listed


def test_text_bytes_objects_and_yaml_are_the_same_document() -> None:
    document = {"flags": {"a": GOOD}, "metadata": {"version": "1"}}
    text = json.dumps(document, indent=3)
    flag = "{state: ENABLED, variants: {on: true, off: false}, defaultVariant: on}"
    yaml = f"metadata: {{version: '1'}}\nflags:\n  a: {flag}\n"
    forms: list[Any] = [document, text, text.encode(), b"\xef\xbb\xbf" + text.encode(), yaml]
    assert len({wigwag.load(form).id for form in forms}) == 1


def test_null_flags_are_no_flags_and_unknown_members_are_ignored() -> None:
    assert wigwag.load('{"flags": null, "future": 1}').keys() == ()
    assert wigwag.load({"flags": {"a": {**GOOD, "future": {"x": 1}, "key": "ignored"}}}).keys() == ("a",)
    flags = wigwag.load({"flags": {"a": GOOD}, "text": 5, "mended": "x", "definitions": {}, "parts": []})
    assert (flags.keys(), flags.problems) == (("a",), ())


@pytest.mark.parametrize(
    ("flag", "path"),
    [
        ({"variants": []}, "$.flags.bad.variants"),
        ({"variants": {"on": 1}, "defaultVariant": True}, "$.flags.bad.defaultVariant"),
        ({"variants": {"on": 1}, "defaultVariant": "off"}, "$.flags.bad.defaultVariant"),
        ({"variants": {"on": 1}, "metadata": "x"}, "$.flags.bad.metadata"),
        ({"variants": {"on": 1}, "state": 1}, "$.flags.bad.state"),
        ("not an object", "$.flags.bad"),
    ],
)
def test_a_bad_flag_is_quarantined_with_its_path_and_the_others_load(flag: Any, path: str) -> None:
    document = {"flags": {"good": GOOD, "bad": flag}}
    flags = wigwag.load(document)
    assert flags.keys() == ("good",)
    assert flags.problems[0].path == path
    assert flags.problems[0].severity == "error"
    with pytest.raises(DocumentError, match=path.replace("$", r"\$")) as caught:
        wigwag.load(document, strict=True)
    assert caught.value.findings == (flags.problems[0],)


def test_bad_flags_in_an_array_are_known_by_their_place() -> None:
    flags = wigwag.load({"flags": [{"key": "a", **GOOD}, {**GOOD}, {"key": "c", "variants": 1}, {"key": "", **GOOD}]})
    assert flags.keys() == ("a",)
    assert [problem.path for problem in flags.problems if problem.severity == "error"] == [
        "$.flags[1].key",
        "$.flags[2].variants",
        "$.flags[3].key",
    ]


def test_strange_keys_are_quoted_in_paths() -> None:
    assert wigwag.load({"flags": {'a "b".c': {"variants": 1}}}).problems[0].path == '$.flags["a \\"b\\".c"].variants'


def test_the_same_key_may_stand_in_several_flag_sets_but_once_in_each() -> None:
    flags = wigwag.load(
        {
            "flags": [
                {"key": "a", **GOOD, "metadata": {"flagSetId": "one"}},
                {"key": "a", **GOOD, "defaultVariant": "off", "metadata": {"flagSetId": "two"}},
                {"key": "a", **GOOD, "metadata": {"flagSetId": "two"}},
            ]
        }
    )
    assert codes(flags) == [("$.flags[2]", "duplicate-flag")]
    assert [(flag.set_id, flag.default_variant) for flag in flags.flags()] == [("one", "on"), ("two", "on")]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("{", "line 1, column 2"),
        ('{"flags": {"a": {,}}}', "line 1, column 18"),
        ("{}", "no `flags`"),
        ('{"flags": 5}', r"\$\.flags"),
        ('{"flags": "x"}', r"\$\.flags"),
        ('{"flags": {}, "metadata": []}', r"\$\.metadata"),
        ('{"flags": {}, "$evaluators": 1}', r"\$\.\$evaluators"),
        ("[1]", "object|mapping"),
        ('{"flags": {"a": NaN}}', "JSON"),
        ({"flags": {"a": float("nan")}}, "JSON"),
        ({"flags": {"a": {1, 2}}}, "JSON"),
        ("just text", "mapping"),
    ],
)
def test_a_document_that_cannot_be_read_is_rejected_with_the_place(document: Any, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        wigwag.load(document)


def test_numbers_are_kept_exact() -> None:
    flags = wigwag.load('{"flags": {"a": {"variants": {"n": 9007199254740993, "h": 123456789012345678901234567890}}}}')
    flag = flags.flag("a")
    assert flag is not None
    assert flag.variants == {"n": 9007199254740993, "h": 123456789012345678901234567890}
    assert wigwag.load({"flags": {"a": flag.to_dict()}}).flag("a").variants == flag.variants  # type: ignore[union-attr]


def test_references_work_at_any_depth_and_inside_evaluators() -> None:
    document = {
        "$evaluators": {
            "gold": {"==": [{"var": "tier"}, "gold"]},
            "lucky": {"and": [{"$ref": "gold"}, {"var": "luck"}]},
        },
        "flags": {"a": {**GOOD, "targeting": {"if": [{"!": [{"or": [{"$ref": "lucky"}, False]}]}, "off", "on"]}}},
    }
    flags = wigwag.load(document)
    assert flags.problems == ()
    assert flags.resolve("a", context={"tier": "gold", "luck": 1}).variant == "on"
    assert flags.resolve("a", context={"tier": "gold"}).variant == "off"
    assert "$ref" not in json.dumps(flags.flag("a").to_dict())  # type: ignore[union-attr]


def test_references_in_a_circle_or_to_nowhere_are_errors_with_a_path_and_fail_when_reached() -> None:
    document = {
        "$evaluators": {"a": {"!": [{"$ref": "b"}]}, "b": {"!": [{"$ref": "a"}]}, "employees": True},
        "flags": {
            "circle": {**GOOD, "targeting": {"if": [{"$ref": "a"}, "on"]}},
            "typo": {**GOOD, "targeting": {"if": [{"var": "x"}, {"$ref": "employes"}]}},
        },
    }
    flags = wigwag.load(document)
    found = {problem.code: problem for problem in flags.problems}
    assert found["ref-circular"].message.endswith("a → b → a")
    assert found["ref-unknown"].path == "$.flags.typo.targeting.if[1].$ref"
    assert found["ref-unknown"].hint == "did you mean `employees`?"
    assert flags.resolve("circle").error == "PARSE_ERROR"
    assert flags.resolve("typo").variant == "on"
    assert flags.resolve("typo", context={"x": 1}).error == "PARSE_ERROR"


def test_what_is_no_document_is_bad_usage() -> None:
    with pytest.raises(DocumentError, match="name of a file"):
        wigwag.load("flags.yaml")
    with pytest.raises(wigwag.UsageError, match="text, bytes or a mapping, not PosixPath"):
        wigwag.load(Path("flags.yaml"))  # type: ignore[arg-type]
    with pytest.raises(wigwag.UsageError, match="json or yaml"):
        wigwag.load("{}", format="toml")  # type: ignore[arg-type]
    assert wigwag.load(MappingProxyType({"flags": {"a": GOOD}})).keys() == ("a",)


class TestReload:
    @settings(max_examples=150)
    @given(st.lists(documents, min_size=2, max_size=4))
    def test_a_chain_of_reloads_ends_where_a_fresh_load_does(self, chain: list[Any]) -> None:
        flags = wigwag.load(chain[0], source="s")
        for document in chain[1:]:
            flags = wigwag.load(document, source="s", previous=flags)
        fresh = wigwag.load(chain[-1], source="s")
        assert flags.id == fresh.id
        assert flags.keys() == fresh.keys()
        for selector in ("source=s", "flagSetId=", "flagSetId=x"):
            assert flags.select(selector).id == fresh.select(selector).id
        assert wigwag.merge([flags, fresh]).id == fresh.id
        for key in "abc":
            assert flags.resolve(key, context={"k": 1}) == fresh.resolve(key, context={"k": 1})

    def test_a_kept_flag_displaces_nobody(self) -> None:
        a, b = {"key": "a", **GOOD}, {"key": "b", **GOOD}
        first = wigwag.load({"flags": [a]})
        bad = {"flags": [b, {**a, "defaultVariant": "zzz"}]}
        second = wigwag.load(bad, previous=first)
        assert second.keys() == wigwag.load(bad, previous=second).keys() == ("a", "b")

    def test_a_misshapen_flag_is_known_by_its_key_and_set(self) -> None:
        listed = wigwag.load({"flags": [{"key": "a", **GOOD}]})
        assert wigwag.load({"flags": [{"key": "a", "variants": []}]}, previous=listed).keys() == ("a",)
        named = {**GOOD, "metadata": {"flagSetId": "x"}}
        mapped = wigwag.load({"flags": {"a": named}})
        assert wigwag.load({"flags": {"a": {**named, "variants": []}}}, previous=mapped).keys() == ("a",)

    def test_an_escaped_reference_is_a_reference(self) -> None:
        flag = '{"variants": {"on": 1, "off": 0}, "targeting": {"if": [{"\\u0024ref": "e"}, "on", "off"]}}'
        text = '{"flags": {"a": ' + flag + '}, "$evaluators": {"e": %s}}'
        old = wigwag.load(text % "true")
        assert wigwag.load(text % "false", previous=old).resolve("a").variant == "off"

    def test_a_selection_is_no_worse_a_predecessor_than_the_whole(self) -> None:
        old = wigwag.load({"flags": {"a": GOOD}}, source="s")
        new = wigwag.load({"flags": {"a": GOOD}}, source="s", previous=old.select("source=s"))
        assert new == old
        assert new.resolve("a").metadata == {}

    def test_unchanged_flags_are_the_same_objects(self) -> None:
        old = wigwag.load({"flags": {"a": GOOD, "b": GOOD}})
        new = wigwag.load({"flags": {"a": {**GOOD, "defaultVariant": "off"}, "b": GOOD}}, previous=old)
        assert new.flag("b") is old.flag("b")
        assert new.flag("a") is not old.flag("a")
        assert wigwag.diff(old, new) == wigwag.Diff(updated=("a",))

    def test_a_changed_evaluator_or_metadata_changes_the_flags_that_use_it(self) -> None:
        flag = {**GOOD, "targeting": {"if": [{"$ref": "r"}, "on", "off"]}}
        old = wigwag.load({"flags": {"a": flag, "b": GOOD}, "$evaluators": {"r": True}})
        new = wigwag.load({"flags": {"a": flag, "b": GOOD}, "$evaluators": {"r": False}}, previous=old)
        assert (old.resolve("a").variant, new.resolve("a").variant) == ("on", "off")
        assert new.flag("b") is old.flag("b")
        named = wigwag.load({"flags": {"b": GOOD}, "metadata": {"flagSetId": "s"}}, previous=new)
        assert named.select("flagSetId=s").keys() == ("b",)

    def test_a_flag_that_went_bad_keeps_its_last_good_definition(self) -> None:
        first = wigwag.load({"flags": {"a": GOOD, "b": GOOD}})
        bad = {"flags": {"a": {"variants": []}, "b": GOOD}}
        for previous in (first, wigwag.load(bad, previous=first)):
            again = wigwag.load(bad, previous=previous)
            assert again.resolve("a").value is True
            assert again.problems[0].path == "$.flags.a.variants"
            assert "last good" in again.problems[0].message
        mended = wigwag.load({"flags": {"a": {**GOOD, "defaultVariant": "off"}}}, previous=again)
        assert mended.resolve("a").value is False
        assert mended.problems == ()

    def test_a_rule_that_went_bad_keeps_the_last_good_one(self) -> None:
        good = {**GOOD, "targeting": {"if": [{"var": "x"}, "off"]}}
        first = wigwag.load({"flags": {"a": good}})
        worse = wigwag.load({"flags": {"a": {**good, "targeting": {"iff": []}}}}, previous=first)
        assert worse.resolve("a", context={"x": 1}).variant == "off"
        assert worse.problems[0].path == "$.flags.a.targeting.iff"

    def test_a_flag_that_is_gone_is_gone_even_if_it_was_good(self) -> None:
        first = wigwag.load({"flags": {"a": GOOD}})
        assert wigwag.load({"flags": {}}, previous=first).keys() == ()

    def test_arrays_are_compared_by_place(self) -> None:
        items = [{"key": name, **GOOD} for name in "abc"]
        old = wigwag.load({"flags": items})
        new = wigwag.load({"flags": [*items[:2], {**items[2], "defaultVariant": "off"}]}, previous=old)
        assert new.flag("a") is old.flag("a")
        assert new.resolve("c").variant == "off"
        shorter = wigwag.load({"flags": items[1:]}, previous=new)
        assert shorter.keys() == ("b", "c")
        assert [flag.place for flag in shorter.flags()] == [0, 1]


def test_flags_can_be_pickled_before_and_after_they_were_used() -> None:
    flags = wigwag.load({"flags": {"a": {**GOOD, "targeting": {"if": [{"var": "x"}, "off"]}}}}, source="s")
    for _ in range(2):
        copy = pickle.loads(pickle.dumps(flags))
        assert copy == flags
        assert copy.select("source=s").resolve("a", context={"x": 1}).variant == "off"
        flags.resolve("a")
        flags = flags.select("source=s")
