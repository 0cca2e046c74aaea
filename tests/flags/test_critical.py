"""Which flags are critical, and what counts as a change of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import wigwag
from wigwag.errors import DocumentError
from wigwag.flags.critical import NONE, combine, critical_digest, marked
from wigwag.flags.model import Limits
from wigwag.flags.part import read_part

ON: dict[str, Any] = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}
CRITICAL = {**ON, "metadata": {"critical": True}}


def digest(*, format: Any = None, **document: Any) -> bytes:
    return critical_digest(json.dumps(document).encode(), Limits(), format)


def test_a_change_of_a_critical_flag_is_seen_and_one_of_another_flag_is_not() -> None:
    before = digest(flags={"a": CRITICAL, "b": ON})
    assert before != NONE
    assert digest(flags={"a": CRITICAL, "b": {**ON, "state": "DISABLED"}, "c": ON}) == before
    assert digest(flags={"a": {**CRITICAL, "state": "DISABLED"}, "b": ON}) not in (before, NONE)
    assert digest(flags={"b": ON}) == NONE, "one that is deleted"
    assert digest(flags={"a": ON, "b": ON}) == NONE, "one that is critical no longer"
    assert digest(flags={"a": CRITICAL, "b": CRITICAL}) not in (before, NONE), "one that becomes critical"


def test_flags_inherit_the_mark_from_their_document_unless_they_say_otherwise() -> None:
    spared = {**ON, "metadata": {"critical": False}}
    before = digest(flags={"a": ON, "b": spared}, metadata={"critical": True})
    assert before != NONE
    assert digest(flags={"a": ON, "b": {**spared, "state": "DISABLED"}}, metadata={"critical": True}) == before
    assert digest(flags={"a": {**ON, "state": "DISABLED"}, "b": spared}, metadata={"critical": True}) != before


@pytest.mark.parametrize("mark", ["true", 1, None, {}, [True], False])
def test_only_true_marks_a_flag(mark: Any) -> None:
    assert digest(flags={"a": {**ON, "metadata": {"critical": mark}}}) == NONE
    assert digest(flags={"a": ON}, metadata={"critical": mark}) == NONE


def test_a_shared_rule_counts_if_a_critical_flag_may_use_it() -> None:
    rule = {"targeting": {"if": [{"$ref": "staff"}, "on"]}}
    documents = [{"flags": {"a": {**CRITICAL, **rule}}, "$evaluators": {"staff": {"==": [1, n]}}} for n in (1, 2)]
    one, two = (digest(**each) for each in documents)
    assert one != two
    without = [{**each, "flags": {"a": CRITICAL, "b": {**ON, **rule}}} for each in documents]
    assert digest(**without[0]) == digest(**without[1])


@pytest.mark.parametrize(
    "text",
    [
        b'{"critical": ',
        b"[critical]",
        b'{"flags": "critical"}',
        b'{"flags": {"a": "critical"}}',
        b"critical: [",
        b"\xff critical",
    ],
)
def test_what_cannot_be_read_has_no_critical_flags(text: bytes) -> None:
    assert critical_digest(text, Limits()) == NONE
    assert marked(text) == text or json.loads(marked(text))["metadata"] == {"critical": True}


def test_arrays_yaml_and_bad_neighbours_are_understood() -> None:
    assert digest(flags=[{**CRITICAL, "key": "a"}]) != NONE
    assert critical_digest(b"flags:\n  a:\n    metadata: {critical: true}\n", Limits(), "yaml") != NONE
    assert digest(flags={"a": CRITICAL, "b": {"variants": 7, "metadata": "critical"}}) != NONE


def test_parts_are_digested_one_by_one() -> None:
    def part(**flags: Any) -> bytes:
        return read_part(json.dumps({"flags": flags}).encode(), Limits(), "json").critical

    assert part(a=ON) == NONE
    assert combine([part(a=ON), NONE]) == NONE
    assert combine([part(a=CRITICAL), part(b=ON)]) == combine([part(a=CRITICAL), part(b={**ON, "state": "DISABLED"})])
    assert combine([part(a=CRITICAL)]) != combine([part(a=CRITICAL), part(b=CRITICAL)])
    whole = {"flags": {"a": ON}, "metadata": {"critical": True}}
    assert read_part(json.dumps(whole).encode(), Limits(), "json").critical != NONE, "what they inherit is in them"


def test_a_marked_document_has_the_same_flags_all_critical() -> None:
    document = {"flags": {"a": ON, "b": {**ON, "metadata": {"critical": False}}}, "metadata": {"team": "shop"}}
    made = json.loads(marked(json.dumps(document).encode()))
    assert made == {**document, "metadata": {"team": "shop", "critical": True}}
    assert json.loads(marked(b'{"flags": {}, "metadata": {"critical": false}}'))["metadata"] == {"critical": False}


def test_a_document_beyond_the_limits_is_left_to_loading() -> None:
    text = json.dumps({"flags": {"a": CRITICAL}}).encode()
    assert critical_digest(text, Limits(document_bytes=10)) == NONE
    with pytest.raises(DocumentError):
        read_part(text, Limits(document_bytes=10), "json")


def test_the_linter_says_what_marks_nothing_and_what_marks_too_much() -> None:
    def codes(**document: Any) -> list[tuple[str, str]]:
        return [(each.code, each.path) for each in wigwag.lint(document)]

    assert codes(flags={"a": CRITICAL}) == []
    assert codes(flags={"a": {**ON, "metadata": {"critical": "true"}}}) == [
        ("critical-mark", "$.flags.a.metadata.critical")
    ]
    assert codes(flags={"a": ON}, metadata={"critical": 1}) == [("critical-mark", "$.metadata.critical")]
    many = {f"flag-{number}": CRITICAL for number in range(11)}
    assert codes(flags=many) == [("critical-many", "$.flags")]
    assert codes(flags=many | {f"other-{number}": ON for number in range(11)}) == []
