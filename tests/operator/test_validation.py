"""FeatureFlags when they are written: 22 bad documents and 11 good ones, of which the original takes 11 and refuses 2.

| group | test |
|---|---|
| U08 | `test_u08_metadata_is_read_as_it_is_written` |
| U101 | `test_u101_a_bad_document_is_refused_with_path_and_reason`, `test_u101_a_good_document_is_accepted` |
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.flags.test_conformance import read
from wigwag.operator.injection.verdict import Allowed, Denied, Verdict
from wigwag.operator.resources.featureflag import FeatureFlag
from wigwag.operator.validation import MOST, flag_findings, is_refused, validate_feature_flag

SHARES = [["on", 50], ["off", 50]]
EMAIL = {"var": "email"}


def document(*, evaluators: Any = None, metadata: Any = None, **members: Any) -> dict[str, Any]:
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on", **members}
    more = {"$evaluators": evaluators, "metadata": metadata}
    return {"flags": {"x": flag}, **{key: value for key, value in more.items() if value is not None}}


def rule(targeting: Any, **more: Any) -> dict[str, Any]:
    return document(targeting=targeting, **more)


def when(condition: Any, **more: Any) -> dict[str, Any]:
    return rule({"if": [condition, "on", "off"]}, **more)


def validated(flag_spec: Any) -> Verdict:
    return validate_feature_flag(json.dumps({"metadata": {"name": "flags"}, "spec": {"flagSpec": flag_spec}}).encode())


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "a default that is no variant": (
        document(defaultVariant="of"),
        "flags.x.defaultVariant",
        "is not one of the variants",
    ),
    "a rule names no variant": (rule({"if": [EMAIL, "onn"]}), "flags.x.targeting.if[1]", "can answer 'onn'"),
    "a share names no variant": (
        rule({"fractional": [EMAIL, ["red", 50], ["on", 50]]}),
        "flags.x.targeting.fractional[1][0]",
        "can answer 'red'",
    ),
    "a reference to nowhere": (
        when({"$ref": "staff"}),
        "flags.x.targeting.if[0].$ref",
        "evaluator that does not exist",
    ),
    "a bad evaluator": (
        when({"$ref": "staff"}, evaluators={"staff": {"iff": [1]}}),
        "$evaluators.staff.iff",
        "unknown operator `iff`",
    ),
    "evaluators in a circle": (
        when({"$ref": "a"}, evaluators={"a": {"$ref": "b"}, "b": {"$ref": "a"}}),
        "$evaluators.b.$ref",
        "in a circle",
    ),
    "metadata of a flag that is no scalar": (
        {"flags": {"x": {**document()["flags"]["x"], "metadata": {"a": {}}}}},
        "flags.x.metadata.a",
        "cannot be an object",
    ),
    "metadata of the set that is no scalar": (document(metadata={"a": [1]}), "metadata.a", "cannot be an array"),
    "a rule that yields a number": (rule({"+": [1, {"var": "age"}]}), 'flags.x.targeting["+"]', "can answer a number"),
    "a branch that yields a number": (rule({"if": [EMAIL, 1, "on"]}), "flags.x.targeting.if[1]", "can answer '1'"),
    "two operators in a rule": (rule({"==": [1, 1], "!=": [1, 2]}), "flags.x.targeting", "several members is data"),
    "two operators in a condition": (
        when({"==": [1, 1], "in": [1, [1]]}),
        "flags.x.targeting.if[0]",
        "several members",
    ),
    "a bucketing value that is a literal": (
        rule({"fractional": ["email", *SHARES]}),
        "flags.x.targeting.fractional[0]",
        "never changes",
    ),
    "a weight that is text": (
        rule({"fractional": [EMAIL, ["on", "50"], ["off", 50]]}),
        "flags.x.targeting.fractional[1][1]",
        "must be a whole number",
    ),
    "a parameter of ends_with that is a number": (
        when({"ends_with": [EMAIL, 1]}),
        "flags.x.targeting.if[0].ends_with[1]",
        "compares text",
    ),
    "too few parameters": (when({"starts_with": [EMAIL]}), "flags.x.targeting.if[0].starts_with", "exactly 2 operands"),
    "no variants": (document(variants={}), "flags.x.defaultVariant", "the variants: none"),
    "variants of two types": (document(variants={"on": True, "off": "no"}), "flags.x.variants", "several types"),
    "variants that are arrays": (document(variants={"on": [1], "off": [2]}), "flags.x.variants.on", "an array"),
    "an unknown operator": (rule({"iff": [EMAIL, "on"]}), "flags.x.targeting.iff", "did you mean `if`?"),
    "an unknown operator of versions": (
        when({"sem_ver": [{"var": "v"}, "=>", "1.0.0"]}),
        "flags.x.targeting.if[0].sem_ver[1]",
        "unknown version operator '=>'",
    ),
    "an unknown property of flagd": (
        when({"==": [{"var": "$flagd.user"}, "a"]}),
        'flags.x.targeting.if[0]["=="][0].var',
        "unknown property $flagd.user",
    ),
}
GOOD: dict[str, dict[str, Any]] = {
    "no flags": {"flags": {}},
    "booleans": document(),
    "a default that is null": document(defaultVariant=None),
    "a default that is absent": {"flags": {"x": {"state": "ENABLED", "variants": {"on": True}}}},
    "an empty rule": rule({}),
    "shares": rule({"fractional": [EMAIL, *SHARES]}),
    "shares without a bucketing value": rule({"fractional": SHARES}),
    "a condition": when({"ends_with": [EMAIL, "@example.com"]}),
    "a branch that gives the default": rule({"if": [EMAIL, "on", None]}),
    "evaluators and metadata": when(
        {"$ref": "staff"}, evaluators={"staff": {"in": ["@example.com", EMAIL]}}, metadata={"flagSetId": "shop"}
    ),
    "objects": document(variants={"on": {"a": [1]}, "off": {}}),
}


def test_the_numbers_are_those_of_the_comparison() -> None:
    assert (len(BAD), len(GOOD)) == (22, 11)


@pytest.mark.parametrize("name", BAD)
def test_u101_a_bad_document_is_refused_with_path_and_reason(name: str) -> None:
    flag_spec, path, reason = BAD[name]
    verdict = validated(flag_spec)
    assert isinstance(verdict, Denied)
    assert verdict.code == 403
    first = verdict.message.splitlines()[0]
    assert first.startswith(f"spec.flagSpec.{path}: ")
    assert reason in first


@pytest.mark.parametrize("name", GOOD)
def test_u101_a_good_document_is_accepted(name: str) -> None:
    assert validated(GOOD[name]) == Allowed()


def test_what_looks_wrong_is_a_warning() -> None:
    verdict = validated(document(evaluators={"staff": {"==": [EMAIL, "a"]}}, owner="me"))
    assert isinstance(verdict, Allowed)
    assert [line.partition(": ")[0] for line in verdict.warnings] == [
        "spec.flagSpec.$evaluators.staff",
        "spec.flagSpec.flags.x.owner",
    ]


def test_an_object_without_flags_has_nothing_to_check() -> None:
    for text in (b"{}", b'{"spec": {}}', b'{"spec": null}'):
        assert validate_feature_flag(text) == Allowed()


@pytest.mark.parametrize("text", [b"", b"[]", b'{"spec": 1}', b'{"spec": {"flagSpec": {]}}'])
def test_what_is_no_object_is_a_bad_request(text: bytes) -> None:
    verdict = validate_feature_flag(text)
    assert isinstance(verdict, Denied)
    assert verdict.code == 400


def test_an_answer_has_a_limited_number_of_lines() -> None:
    flag = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "off"}
    verdict = validated({"flags": {f"f{number}": flag for number in range(100)}})
    assert isinstance(verdict, Denied)
    *shown, last = verdict.message.splitlines()
    assert (len(shown), last) == (MOST, "and 80 more")


def test_u08_metadata_is_read_as_it_is_written() -> None:
    spec = {"flagSpec": document(metadata={"flagSetId": "shop", "version": "1"})}
    parsed = msgspec.convert({"spec": spec}, FeatureFlag).spec.flag_spec
    assert parsed is not None
    assert parsed.metadata == {"flagSetId": "shop", "version": "1"}


VECTORS = [
    pytest.param(each, id=f"{each['schema']}-{each['sign']}-{each['name']}")
    for each in read("schema")
    if not isinstance(each["document"].get("flags"), list)
]
"""The flags of an object are a map, never a list."""
BEYOND_THE_SCHEMA = {"ref-unknown", "variant-unknown", "default-variant-unknown"}
"""What the schema cannot see. Its examples of rules have neither variants nor evaluators."""


@pytest.mark.parametrize("vector", VECTORS)
def test_the_vectors_of_the_schema_are_judged_as_the_schema_does(vector: dict[str, Any]) -> None:
    given = vector["document"]
    flag_spec = given if vector["schema"] != "targeting" else rule(given.get("targeting", given))
    found = {each.code for each in flag_findings(json.dumps(flag_spec).encode()) if is_refused(each)}
    if vector["sign"] == "positive":
        assert found <= BEYOND_THE_SCHEMA
    else:
        assert found - {"variant-unknown"}


def test_an_annotation_that_marks_nothing_is_a_warning() -> None:
    def warnings(value: str) -> tuple[str, ...]:
        about = {"name": "x", "annotations": {"openfeature.dev/critical": value}}
        verdict = validate_feature_flag(json.dumps({"metadata": about, "spec": {"flagSpec": document()}}).encode())
        assert isinstance(verdict, Allowed)
        return tuple(verdict.warnings)

    said = "metadata.annotations.openfeature.dev/critical: 'yes' marks nothing as critical; write \"true\""
    assert [warnings(value) for value in ("true", "false", "yes")] == [(), (), (said,)]
