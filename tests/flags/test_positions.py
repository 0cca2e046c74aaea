"""A JSON path leads to a line and a column, in JSON and in YAML."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import wigwag
from wigwag.flags.checks.positions import locate, steps
from wigwag.flags.model import child

JSON = """{
  "flags": {
    "a": {"variants": {"on": 1}},
    "b.c": {
      "targeting": {"if": [
        {"==": [1, 2]},
        "é", "purple"
      ]}
    }
  },
  "$evaluators": {"\\u0065": []}
}"""
YAML = """\
flags:
  a: {variants: {on: 1}}
  b.c:
    targeting:
      if:
        - ==: [1, 2]
        - é
        - purple
$evaluators:
  e: []
"""
PATHS = [
    "$",
    "$.flags",
    "$.flags.a.variants.on",
    '$.flags["b.c"].targeting.if[0]["=="][1]',
    '$.flags["b.c"].targeting.if[2]',
    '$.flags["b.c"].state',
    "$.$evaluators.e",
]


def test_paths_of_json() -> None:
    found = locate(JSON, None, PATHS)
    assert list(found.values()) == [(1, 1), (2, 3), (3, 24), (6, 20), (7, 14), (4, 5), (11, 19)]


def test_paths_of_yaml() -> None:
    found = locate(YAML.encode(), None, PATHS)
    assert list(found.values()) == [(1, 1), (1, 1), (2, 18), (6, 19), (8, 11), (3, 3), (10, 3)]


def test_an_alias_and_a_merge_have_the_place_where_they_are_used() -> None:
    text = "a: &a {x: [1]}\nb: *a\nc:\n  <<: *a\n"
    assert locate(text, "yaml", ["$.a.x[0]", "$.b.x[0]", "$.c.x"]) == {
        "$.a.x[0]": (1, 12), "$.b.x[0]": (2, 1), "$.c.x": (3, 1),
    }  # fmt: skip


def test_of_a_member_that_appears_twice_the_last_counts() -> None:
    assert locate('{"a": 1,\n "a": 2}', None, ["$.a"]) == {"$.a": (2, 2)}


@pytest.mark.parametrize("text", ["", "{", '{"a', "]]]", '{"a": [}]', "a: [", "\ufeff{}", "- - - {", '"'])
def test_a_broken_text_has_the_positions_that_can_be_found(text: str) -> None:
    for form in ("json", "yaml"):
        assert locate(text, form, ["$.a[0].b"])["$.a[0].b"][0] >= 1


names = st.text(max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


def places(value: Any, path: str = "$") -> list[tuple[str, Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(path, value)] + [place for key, item in inner for place in places(item, child(path, key))]


@given(st.dictionaries(names, values, max_size=4), st.sampled_from([None, 0, 2]), st.booleans())
def test_at_the_position_of_an_element_its_text_begins(document: Any, indent: int | None, ascii: bool) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=ascii)
    lines = text.split("\n")
    every = dict(places(document))
    for path, (line, column) in locate(text, "json", every).items():
        rest = "\n".join([lines[line - 1][column - 1 :], *lines[line:]])
        found, _ = json.JSONDecoder().raw_decode(rest)
        last = (steps(path) or [0])[-1]
        assert found == (last if isinstance(last, str) else every[path])


@given(st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), values, min_size=1, max_size=4))
def test_at_the_position_of_a_member_of_yaml_its_name_stands(document: Any) -> None:
    text = yaml.safe_dump(document, allow_unicode=True)
    lines = re.split("\r\n|[\n\r\x85\u2028\u2029]", text)  # what YAML takes for the end of a line
    for path, (line, column) in locate(text, "yaml", [child("$", name) for name in document]).items():
        assert lines[line - 1][column - 1 :].lstrip("'\"").startswith(str(steps(path)[0]))


def test_every_finding_in_a_text_has_a_position() -> None:
    text = '{"flags": {"x": {"state": "?", "targeting": {"iff": 1}},\n "y": {"variants": 1}}, "$evaluators": {"e": 1}}'
    findings = wigwag.lint(text)
    assert len(findings) == 5
    assert all(each.line and each.column for each in findings)
    assert {each.code: (each.line, each.column) for each in findings}["flag-shape"] == (2, 8)
    assert all(not each.line for each in wigwag.lint(json.loads(text)))


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("{\n 5}", (2, 2)),
        ("flags:\n  x: [", (3, 1)),
        ("flags: {a: 1, a: 2}", (1, 15)),
        ("\n", (1, 1)),
        ("flag: {}", (1, 1)),
    ],
)
def test_a_document_that_cannot_be_read_has_the_position_of_the_fault(text: str, position: tuple[int, int]) -> None:
    (found,) = wigwag.lint(text)
    assert (found.code, (found.line, found.column)) == ("document-rejected", position)
    assert found.to_dict()["line"] == position[0]
