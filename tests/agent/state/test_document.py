"""Flags in force, as a document that loads to the same flags."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wigwag
from tests.strategies import contexts, rules, texts, values
from wigwag.agent.state.document import document_of
from wigwag.errors import DocumentError, StateError, UsageError
from wigwag.flags.evaluate import TYPES

DATA = Path(__file__).parents[2] / "flags" / "data"
FIXED: tuple[dict[str, Any], ...] = (
    {},
    {"targetingKey": "user-1", "email": "fay@example.com", "tier": "gold", "age": 41, "version": "1.2.3"},
)
ON = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off"}


def again(flags: wigwag.FlagSet, **options: Any) -> wigwag.FlagSet:
    """What a restart makes of the flags."""
    return wigwag.load(document_of(flags), source=flags.layers[0].setting.source, **options)


def answers(flags: wigwag.FlagSet, more: dict[str, Any] | None = None) -> list[str]:
    """Everything that a client can see, with 1 and true told apart."""
    sets = sorted({flag.set_id for flag in flags.flags()})
    views = [flags, *(flags.select(f"flagSetId={name}") for name in sets)]
    return [
        json.dumps([key, kind, found.value, found.variant, found.reason, found.error, found.metadata], sort_keys=True)
        for view in views
        for key in view
        for kind in (None, *TYPES)
        for context in (*FIXED, more or {})
        for found in [view.resolve(key, kind, "default", context, now=1_700_000_000)]
    ]


def same(one: wigwag.FlagSet, other: wigwag.FlagSet, context: dict[str, Any] | None = None) -> None:
    assert answers(one, context) == answers(other, context)
    assert json.dumps(one.metadata) == json.dumps(other.metadata)


def read(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


def documents_of_the_suites() -> list[Any]:
    rows = [read(f"conformance/{name}-flags") for name in ("evaluator", "provider")]
    rows += [row["document"] for row in read("conformance/schema") if row["schema"] != "targeting"]
    rows += [{"flags": {"x": fact["flag"]}} for fact in read("daemon_resolutions")]
    rules = [row["document"] for row in read("conformance/schema") if row["schema"] == "targeting"]
    rules += [fact["rule"] for fact in read("daemon_rules")] + [rule for rule, _, _ in read("conformance/jsonlogic")]
    rows.append({"flags": {f"r{number}": {**ON, "targeting": rule} for number, rule in enumerate(rules)}})
    return rows


@pytest.mark.parametrize("fractional", ["v2", "v3"])
def test_every_document_of_the_suites_survives(fractional: Any) -> None:
    survived = 0
    for document in documents_of_the_suites():
        try:
            flags = wigwag.load(document, fractional, source="s")
        except DocumentError:
            continue  # not one to keep
        restored = again(flags, fractional=fractional)
        assert restored.id == flags.id
        same(flags, restored)
        survived += 1
    assert survived > 80


names = st.sampled_from(["a", "b", "c"])
references = st.one_of(names, st.just("nowhere")).map(lambda name: {"$ref": name})
shared = st.one_of(rules, references, st.tuples(references, rules).map(lambda pair: {"or": list(pair)}))
metadata = st.fixed_dictionaries(
    {},
    optional={
        "flagSetId": st.sampled_from(["", "s", "t", "u", None, 5, True]),
        "fractional": st.sampled_from(["v2", "v3", 3, None]),
        "owner": st.one_of(values, st.sampled_from([1, True, 1.0, 10**30, -0.0])),
        "é\n": texts,
    },
)
targeting = st.one_of(
    rules, shared, st.sampled_from([{}, None, {"if": [{"$ref": "a"}, "on", {"x": 1, "y": {"$ref": "a"}}]}])
)
good = st.fixed_dictionaries(
    {"variants": st.just({"on": 10**25, "off": False, "": {"x": [None, 1.0, 1]}, "null": None})},
    optional={
        "state": st.sampled_from(["ENABLED", "DISABLED", "odd", "", None]),
        "defaultVariant": st.sampled_from(["on", "off", "", None]),
        "targeting": targeting,
        "metadata": metadata,
    },
)
bad = st.sampled_from([{"variants": []}, {"state": 1}, {"variants": {"on": 1}, "defaultVariant": "x"}, 7])
bad_in_a_set = metadata.map(lambda own: {"variants": [], "metadata": own})
flags = st.one_of(good, good, good, bad, bad_in_a_set)
keys = st.sampled_from(["k", "l", "m", "a.b", "é"])
in_arrays = st.lists(
    st.tuples(keys, flags).map(lambda pair: {**pair[1], "key": pair[0]} if isinstance(pair[1], dict) else pair[1]),
    max_size=6,
)
documents = st.fixed_dictionaries(
    {"flags": st.one_of(st.dictionaries(keys, flags, max_size=4), in_arrays)},
    optional={"metadata": metadata, "$evaluators": st.dictionaries(names, shared, max_size=3)},
)


@settings(deadline=None)
@given(documents, contexts, st.sampled_from(["v2", "v3"]), st.sampled_from(["truncate", "lossless"]))
def test_whatever_can_be_loaded_can_be_kept(document: Any, context: Any, fractional: Any, numbers: Any) -> None:
    options: dict[str, Any] = {"fractional": fractional, "numbers": numbers}
    flags = wigwag.load(json.dumps(document), source="s", **options)
    restored = again(flags, **options)
    assert restored.id == flags.id
    same(flags, restored, context)
    assert document_of(restored) == document_of(flags)


@settings(max_examples=200, deadline=None)
@given(st.lists(documents, min_size=2, max_size=4), contexts, st.integers(0, 2))
def test_nobody_can_tell_that_there_was_a_restart(history: list[Any], context: Any, when: int) -> None:
    """Quarantined flags keep their last good definition, with what it inherited from documents that are gone."""
    stayed: wigwag.FlagSet | None = None
    wentdown: wigwag.FlagSet | None = None
    for number, document in enumerate(history):
        text = json.dumps(document)
        stayed = wigwag.load(text, source="s", previous=stayed)
        wentdown = wigwag.load(text, source="s", previous=wentdown)
        same(stayed, wentdown, context)
        if number >= when:
            wentdown = again(wentdown)
            same(stayed, wentdown, context)


def test_the_same_bytes_every_time_whatever_the_history() -> None:
    many = {key: {**ON, "metadata": {"n": 1}} for key in string.ascii_lowercase}
    document = {"metadata": {"owner": "x"}, "flags": many}
    new = wigwag.load(document, source="s")
    old = wigwag.load({**document, "flags": {**many, "a": ON}}, source="s")
    reloaded = wigwag.load(document, source="s", previous=old)
    assert reloaded.flag("b") is old.flag("b")
    assert document_of(reloaded) == document_of(new)
    assert document_of(wigwag.load({**document, "flags": dict(reversed(many.items()))}, source="s")) == document_of(new)
    assert document_of(new).count(b'"owner"') == 1


def quarantined(then: dict[str, Any], now: dict[str, Any]) -> wigwag.FlagSet:
    """A flag `kept` that was good in a document that said `then`, and is not in one that says `now`."""
    rule = {"if": [{"$ref": "shared"}, "on"]}
    before = wigwag.load({"flags": {"kept": {**ON, "targeting": rule}}, **then}, source="s")
    flags = {"kept": {"variants": []}, "new": {**ON, "targeting": rule}}
    return wigwag.load({"flags": flags, **now}, source="s", previous=before)


def test_the_last_good_definition_of_a_flag_in_quarantine_survives() -> None:
    flags = quarantined({"$evaluators": {"shared": True}}, {"$evaluators": {"shared": True}})
    restored = again(flags)
    assert restored.resolve("kept").value == 1
    assert restored.id == flags.id


def test_a_kept_flag_keeps_its_metadata_and_nobody_else_gets_it() -> None:
    flags = quarantined({"metadata": {"a": 1, "b": 1}}, {"metadata": {"b": True, "c": 3}})
    restored = again(flags)
    assert restored.id == flags.id
    assert json.dumps(restored.resolve("kept").metadata, sort_keys=True) == '{"a": 1, "b": 1}'
    assert restored.resolve("new").metadata == restored.metadata == {"b": True, "c": 3}


@pytest.mark.parametrize("then", [True, False, {"$ref": "other"}, {"$ref": "shared"}])
@pytest.mark.parametrize("now", [True, False, 1, None])
def test_a_kept_flag_keeps_the_shared_rules_of_its_own_document(then: Any, now: Any) -> None:
    flags = quarantined(
        {"$evaluators": {"shared": then, "other": {"==": [{"var": "tier"}, "gold"]}}},
        {"$evaluators": {} if now is None else {"shared": now, "other": False}},
    )
    restored = again(flags)
    same(flags, restored, {"tier": "gold"})
    second = again(wigwag.load({"flags": {"kept": 7}}, source="s", previous=restored))
    assert answers(second) == [answer for answer in answers(restored) if '["kept"' in answer]
    assert document_of(again(second)) == document_of(second)


def test_the_names_of_earlier_rules_do_not_grow_with_every_restart() -> None:
    flags = again(quarantined({"$evaluators": {"shared": True}}, {"$evaluators": {"shared": False}}))
    kept = []
    for _ in range(3):
        flags = again(wigwag.load({"flags": {"kept": 7}, "$evaluators": {"x": 1}}, source="s", previous=flags))
        kept.append(document_of(flags))
    assert kept[0] == kept[1] == kept[2]


def test_data_that_looks_like_a_reference_is_left_alone() -> None:
    rule = {"if": [{"$ref": "shared"}, {"x": {"$ref": "shared"}, "y": 1}]}
    flag = {"state": "ENABLED", "variants": {"{x:{$ref:shared},y:1}": "found"}, "targeting": rule}
    before = wigwag.load({"flags": {"a": flag}, "$evaluators": {"shared": True}}, source="s")
    flags = wigwag.load({"flags": {"a": 7}}, source="s", previous=before)
    assert flags.resolve("a").value == again(flags).resolve("a").value == "found"


def test_a_shared_rule_that_is_gone_does_not_come_back_for_others() -> None:
    flags = quarantined({"$evaluators": {"shared": True}}, {})
    restored = again(flags)
    assert (restored.resolve("kept").value, restored.resolve("new").error) == (1, "PARSE_ERROR")


def test_a_rule_is_copied_to_the_byte() -> None:
    rule = b'{ "if" : [ {"==": [1.50, 1E2]},\n "\\u006fn" ] }'
    flags = wigwag.load(b'{"flags": {"a": {"variants": {"on": 1}, "targeting": ' + rule + b"}}}", source="s")
    assert rule in document_of(flags)


@pytest.mark.parametrize("rule", [b'{"==": [1e999, 1]}', b"[" * 600 + b"]" * 600])
def test_a_rule_that_cannot_be_read_fails_as_it_did(rule: bytes) -> None:
    text = b'{"$evaluators": {"x": 1}, "flags": {"a": {"variants": {"on": 1}, "targeting": %s}, "b": 7}}' % rule
    flags = wigwag.load(text, source="s")
    assert flags.resolve("a").error == "PARSE_ERROR"
    later = wigwag.load('{"flags": {"a": {"variants": []}, "b": {}}}', source="s", previous=flags)
    for kept in (flags, later):
        assert again(kept).id == kept.id
        same(kept, again(kept))


def test_what_flags_inherit_cannot_blow_up_the_document() -> None:
    limits = wigwag.Limits(document_bytes=100_000)
    many = {f"f{number}": ON for number in range(500)}
    before = wigwag.load({"metadata": {"long": "x" * 1000}, "flags": many}, source="s", limits=limits)
    flags = wigwag.load({"flags": dict.fromkeys(many, 7)}, source="s", previous=before, limits=limits)
    assert len(flags) == 500
    with pytest.raises(StateError, match="s: the flags in force take more than 100000 bytes"):
        document_of(flags)


@pytest.mark.parametrize("names", [(), ("s", "t")])
def test_a_document_is_that_of_one_source(names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="one source"):
        document_of(wigwag.merge([wigwag.load({"flags": {}}, source=name) for name in names]))


def test_an_empty_set_stays_one_with_its_metadata() -> None:
    flags = wigwag.load({"metadata": {"flagSetId": "x"}, "flags": {}}, source="s")
    assert (again(flags).id, again(flags).metadata) == (flags.id, {"flagSetId": "x"})
