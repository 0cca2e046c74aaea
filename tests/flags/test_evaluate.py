"""From a flag and a context to a resolution."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

import wigwag

VARIANTS = {
    "t": True,
    "s": "text",
    "i": 10,
    "w": 10.0,
    "f": 3.75,
    "n": -3.75,
    "o": {"a": 1},
    "l": [1],
    "z": None,
    "big": 2**60,
}
TYPES: tuple[Any, ...] = ("boolean", "string", "integer", "float", "object", None)


def one(**flag: Any) -> wigwag.FlagSet:
    return wigwag.load({"flags": {"x": {"state": "ENABLED", **flag}}})


@pytest.mark.parametrize(
    ("variant", "answers"),
    [
        ("t", {"boolean": True, None: True}),
        ("s", {"string": "text", None: "text"}),
        ("i", {"integer": 10, "float": 10.0, None: 10}),
        ("w", {"integer": 10, "float": 10.0, None: 10.0}),
        ("f", {"integer": 3, "float": 3.75, None: 3.75}),
        ("n", {"integer": -3, "float": -3.75, None: -3.75}),
        ("o", {"object": {"a": 1}, None: {"a": 1}}),
        ("l", {None: [1]}),
        ("z", {}),
        ("big", {"integer": 2**60, "float": float(2**60), None: 2**60}),
    ],
)
def test_a_value_fits_the_types_it_can_be_given_as_and_mismatches_the_others(
    variant: str, answers: dict[Any, Any]
) -> None:
    for flags in (one(variants=VARIANTS, defaultVariant=variant), one(variants=VARIANTS, targeting={"cat": [variant]})):
        for wanted in TYPES:
            found = flags.resolve("x", wanted, "default")
            if wanted in answers:
                assert (found.value, found.error, found.variant) == (answers[wanted], None, variant)
                assert found.value.__class__ is answers[wanted].__class__
            else:
                assert (found.value, found.variant, found.reason) == ("default", None, "ERROR")
                assert found.error == "TYPE_MISMATCH"


def test_lossless_numbers_are_never_cut() -> None:
    flags = wigwag.load({"flags": {"x": {"variants": VARIANTS, "defaultVariant": "f"}}}, numbers="lossless")
    assert flags.resolve("x", "integer", 7).error == "TYPE_MISMATCH"
    flags = wigwag.load({"flags": {"x": {"variants": VARIANTS, "defaultVariant": "w"}}}, numbers="lossless")
    assert flags.resolve("x", "integer", 7).value == 10


@pytest.mark.parametrize(
    ("rule", "variant", "reason", "error"),
    [
        ({"if": [True, "t"]}, "t", "TARGETING_MATCH", None),
        ({"if": [False, "t"]}, "s", "DEFAULT", None),
        (None, "s", "DEFAULT", None),
        ({}, "s", "STATIC", None),
        ({"==": [1, 1]}, "true", "TARGETING_MATCH", None),
        ({"+": [1, 0]}, "1", "TARGETING_MATCH", None),
        ({"+": [1.5, 0]}, "1.5", "TARGETING_MATCH", None),
        ("t", "t", "TARGETING_MATCH", None),
        ('<&"quoted"&>', '<&"quoted"&>', "TARGETING_MATCH", None),
        ({"if": [True, "nope"]}, None, "ERROR", "GENERAL"),
        ({"merge": ["t"]}, None, "ERROR", "GENERAL"),
        ({"a": 1, "b": 2}, None, "ERROR", "GENERAL"),
        ({"no_such": 1}, None, "ERROR", "PARSE_ERROR"),
        ({"$ref": "nowhere"}, None, "ERROR", "PARSE_ERROR"),
        ({"/": [1, 0]}, None, "ERROR", "PARSE_ERROR"),
    ],
)
def test_what_a_rule_answers_decides_variant_reason_and_error(rule: Any, variant: Any, reason: str, error: Any) -> None:
    variants = {"t": 1, "s": 2, "true": 3, "1": 4, "1.5": 5, '<&"quoted"&>': 6}
    found = one(variants=variants, defaultVariant="s", targeting=rule).resolve("x", "integer", 0)
    assert (found.variant, found.reason, found.error) == (variant, reason, error)


@pytest.mark.parametrize("default", [None, ""])
def test_without_a_default_variant_the_callers_default_applies(default: Any) -> None:
    for rule in ({}, None, {"if": [False, "t"]}):
        found = one(variants={"t": True}, defaultVariant=default, targeting=rule).resolve("x", "boolean", "mine")
        assert (found.value, found.variant, found.reason, found.error) == ("mine", None, "DEFAULT", None)


def test_a_disabled_flag_is_a_success_without_a_value_and_its_rule_is_not_looked_at() -> None:
    flags = one(state="DISABLED", variants={"t": True}, defaultVariant="t", targeting={"no_such": 1}, metadata={"a": 1})
    found = flags.resolve("x", "string", "mine")
    assert (found.value, found.variant, found.reason, found.error) == ("mine", None, "DISABLED", None)
    assert found.metadata == {"a": 1}


@pytest.mark.parametrize("state", ["ENABLED", "enabled", "disabled", "", None])
def test_any_other_state_is_enabled(state: Any) -> None:
    assert one(state=state, variants={"t": True}, defaultVariant="t").resolve("x", "boolean", False).value is True


def test_an_unknown_flag_is_not_found_and_says_so() -> None:
    found = one(variants={"t": True}).resolve("y", "boolean", False)
    assert (found.value, found.reason, found.error) == (False, "ERROR", "FLAG_NOT_FOUND")
    assert "'y'" in found.message


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(wigwag.UsageError, match="boolean, string, integer, float, object"):
        one(variants={"t": True}).resolve("x", "number", 1)  # type: ignore[call-overload]


def test_metadata_of_the_set_is_overlaid_by_the_flags_own_and_nulls_are_dropped() -> None:
    document = {
        "metadata": {"owner": "set", "version": "1", "gone": 1, "never": None},
        "flags": {
            "x": {"variants": {"t": 1}, "metadata": {"owner": "flag", "gone": None}},
            "y": {"variants": {"t": 1}},
        },
    }
    flags = wigwag.load(document)
    assert flags.resolve("x").metadata == {"owner": "flag", "version": "1"}
    assert flags.resolve("y").metadata == {"owner": "set", "version": "1", "gone": 1}
    assert flags.metadata == {"owner": "set", "version": "1", "gone": 1}
    assert flags.resolve("x", "string").metadata == {"owner": "flag", "version": "1"}


def test_time_is_an_argument_or_the_clocks() -> None:
    rule = {"if": [{">": [{"var": "$flagd.timestamp"}, 100]}, "late", "early"]}
    document = {"flags": {"x": {"variants": {"late": 1, "early": 0}, "targeting": rule}}}
    flags = wigwag.load(document, clock=lambda: 50.9)
    assert flags.resolve("x").variant == "early"
    assert flags.resolve("x", now=101.5).variant == "late"
    assert flags.explain("x", now=101.5).resolution.variant == "late"


def test_metadata_may_choose_the_hashing_version() -> None:
    def answers(**options: Any) -> list[Any]:
        shares = [[str(n), 1] for n in range(50)]
        flag = {"variants": {str(n): n for n in range(50)}, "targeting": {"fractional": shares}}
        document = {"flags": {"x": flag}, "metadata": options.pop("metadata", {})}
        flags = wigwag.load(document, **options)
        return [flags.resolve("x", context={"targetingKey": str(n)}).value for n in range(20)]

    assert answers(metadata={"fractional": "v3"}) == answers(fractional="v3") != answers()
    with pytest.raises(wigwag.UsageError, match="v2 or v3"):
        answers(fractional="v1")


class Tier(str):
    """A text that is not quite one."""

    __slots__ = ()


def test_explain_and_resolve_agree_on_contexts_that_are_not_plain_json() -> None:
    rule = {"if": [{"==": [{"var": "tier"}, "gold"]}, "t"]}
    flags = one(variants={"t": 1, "f": 0}, defaultVariant="f", targeting=rule)
    context = {"tier": Tier("gold")}
    assert flags.resolve("x", context=context) == flags.explain("x", context).resolution


def test_a_context_that_is_no_mapping_is_bad_usage() -> None:
    flags = one(variants={"t": 1}, targeting={"if": [{"var": "a"}, "t"]})
    with pytest.raises(wigwag.UsageError, match="mapping of attributes, not list"):
        flags.resolve("x", context=[1])  # type: ignore[call-overload]
    assert flags.resolve("x", context=MappingProxyType({"a": 1})).variant == "t"


def test_an_explanation_may_ask_for_a_type() -> None:
    flags = one(variants={"t": 1}, defaultVariant="t", targeting={"if": [False, "t"]})
    assert flags.explain("x", type="string").resolution.error == "TYPE_MISMATCH"
    with pytest.raises(wigwag.UsageError, match="unknown flag type"):
        flags.explain("x", type="number")  # type: ignore[arg-type]


def test_equal_evaluations_share_one_resolution() -> None:
    flags = one(variants={"t": {"deep": [1]}}, defaultVariant="t")
    assert flags.resolve("x", "object", {}) is flags.resolve("x", "object", {})
