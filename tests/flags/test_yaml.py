"""YAML documents mean what they mean to flagd's reader (on and off are text), and cannot blow up."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given

from tests.strategies import values
from wigwag import DocumentError, Limits, load
from wigwag.flags.document import parse_yaml, to_json
from wigwag.yaml import dump


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("''", ""),
        ("'true'", "true"),
        ("12", 12),
        ("-7", -7),
        ("0o17", 15),
        ("0xff", 255),
        ("012", 10),
        ("09", 9.0),
        ("1_000", 1000),
        ("0b11", 3),
        ("-0x1F", -31),
        ("_1", "_1"),
        ("!!map {a: 1}", {"a": 1}),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("12:30:45", "12:30:45"),
        ("2026-11-15", "2026-11-15"),
        ("9007199254740993", 9007199254740993),
        ("!!str 12", "12"),
        ("!!int '12'", 12),
        ("!!bool true", True),
        ("[1, {a: b}]", [1, {"a": "b"}]),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        ("&anchor [1]", [1]),
    ],
)
def test_a_scalar_means_what_it_means_to_flagd(text: str, value: Any) -> None:
    assert parse_yaml(f"v: {text}".encode(), Limits()) == {"v": value}


def test_keys_become_text_as_written() -> None:
    assert parse_yaml(b"{on: 1, 1: 2, true: 3, 1.50: 4, ~: 5}", Limits()) == {
        "on": 1,
        "1": 2,
        "true": 3,
        "1.50": 4,
        "~": 5,
    }


def test_aliases_and_merge_keys_work() -> None:
    text = b"base: &b {a: 1, b: 2}\none: *b\ntwo: {<<: *b, b: 3}\nthree: {<<: [{c: 1}, *b]}\n"
    value = parse_yaml(text, Limits())
    assert value["one"] == {"a": 1, "b": 2}
    assert value["two"] == {"a": 1, "b": 3}
    assert value["three"] == {"a": 1, "b": 2, "c": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "line"),
        ("a: 1\na: 2", "'a' appears twice at line 2, column 1"),
        ("a: *nothing", "alias|anchor"),
        ("a: .nan", "not a JSON number"),
        ("a: -.inf", "not a JSON number"),
        ("a: 1e999", "out of range"),
        ("a: !!python/object:os.system x", "tag"),
        ("a: !custom x", "tag"),
        ("a: !!python/object:os.system {}", "tag"),
        ("a: !!set [x]", "tag"),
        ("a: {<<: {b: 1}, <<: {c: 1}}", "appears twice"),
        ("? [1, 2]\n: x", "key must be text"),
        ("a: 1\n---\nb: 2", "second document"),
        ("a: {<<: 5}", "merges mappings"),
        ("- 1", "mapping"),
        ("a: &x [*x]", "anchor"),
        ("\tb: 1", "line 1"),
    ],
)
def test_what_is_not_a_document_is_rejected_with_the_place(text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        to_json(text, Limits(), "yaml")


def test_an_empty_yaml_document_has_no_flags_member() -> None:
    with pytest.raises(DocumentError, match="no `flags`"):
        load("# nothing yet\n")


def test_aliases_cannot_blow_up() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(DocumentError, match="once aliases are expanded"):
        load("\n".join([*lines, "flags: {}"]))
    text = f"s: &s {'x' * 100_000}\nl: [{', '.join(['*s'] * 1000)}]\nflags: {{}}"
    with pytest.raises(DocumentError, match="once aliases are expanded"):
        load(text)


def test_depth_is_limited() -> None:
    with pytest.raises(DocumentError, match="deep"):
        load("flags: " + "[" * 5000)


@given(values)
def test_what_is_written_is_read_back_by_readers_of_both_versions(value: Any) -> None:
    text = dump(value)
    assert parse_yaml(text.encode(), Limits()) == value
    assert yaml.safe_load(text) == value


@pytest.mark.parametrize(
    "text", ["on", "1e3", "0o7", "1_000", "null", "~", "2001-01-01", "1:30", ".inf", "a: b", "- a", "\t"]
)
def test_a_text_that_may_mean_something_else_is_quoted(text: str) -> None:
    assert parse_yaml(dump([text]).encode(), Limits()) == [text]
    assert yaml.safe_load(dump([text])) == [text]
