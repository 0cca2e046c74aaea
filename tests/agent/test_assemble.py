"""Documents of sources become flags."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.pipeline.fakes import run
from wigwag.agent.assemble import LARGE, Loader
from wigwag.agent.state.lastgood import keys_of
from wigwag.pipeline.spec import Unavailable
from wigwag.sources.document import Document
from wigwag.sources.kinds import parse_sources
from wigwag.sources.source import Source, SourceSettings


def document(**sets: list[str]) -> Document:
    flags = [
        {"key": key, "variants": {"on": 1}, "metadata": {"flagSetId": name} if name != "none" else {}}
        for name, keys in sets.items()
        for key in keys
    ]
    return Document(json.dumps({"flags": flags}).encode(), "json")


def loaded(source: Source, *documents: Document) -> list[Any]:
    async def yielding(_: Source) -> Any:
        for each in documents:
            yield each

    async def main() -> list[Any]:
        return [item async for item in Loader("v2", strict=False).watcher(yielding, lambda *_: False)(source)]

    return run(main)


def test_an_incremental_document_is_about_the_flag_sets_that_it_names() -> None:
    source = Source("flags", "grpc", settings=SourceSettings(incremental=True))
    emptied = Document(b'{"metadata": {"flagSetId": "blue"}, "flags": {}}', "json")
    steps = [document(blue=["a", "b"], none=["x"]), document(red=["c"]), document(blue=["b"]), emptied, document()]
    found = loaded(source, *steps)
    assert [flags.keys() for flags in found] == [
        ("a", "b", "x"),
        ("a", "b", "c", "x"),
        ("b", "c", "x"),
        ("c", "x"),
        ("c", "x"),
    ]


def test_otherwise_a_document_is_all_there_is() -> None:
    found = loaded(Source("flags", "grpc"), document(blue=["a"]), document(red=["c"]))
    assert [flags.keys() for flags in found] == [("a",), ("c",)]


def test_the_same_document_again_is_the_same_flags() -> None:
    first, bad, again = loaded(Source("f", "file"), document(a=["a"]), Document(b"["), document(a=["a"]))
    assert isinstance(bad, Unavailable)
    assert again is first


def test_the_field_asks_for_it() -> None:
    (source,) = parse_sources((), '[{"uri": "localhost:1", "provider": "grpc", "incrementalUpdates": true}]')
    assert source.settings.incremental


def test_a_source_is_remembered_by_what_is_asked_for_and_not_by_its_place_or_password() -> None:
    def key(position: int = 0, **fields: Any) -> str:
        told = [{"uri": "http://h/flags", "provider": "http", **fields}]
        sources = parse_sources(("file:x",) * position, json.dumps(told))
        return keys_of(sources)[sources[position]]

    assert key() == key(1) == key(authHeader="Bearer secret")
    assert key(headers={"x-key": "old"}) == key(headers={"x-key": "new"}) != key()


def test_a_source_is_remembered_by_the_whole_query_but_for_what_surely_is_a_secret() -> None:
    def key(uri: str) -> str:
        sources = parse_sources((uri,), "")
        return keys_of(sources)[sources[0]]

    asked = "https://flags.example/a.json?team="
    assert key(f"{asked}blue&token=old") == key(f"{asked}blue&token=new")
    assert key(f"{asked}blue") != key(f"{asked}green")
    assert key("file:a#1.json") != key("file:a#2.json")


@pytest.mark.parametrize("name", ["authHeader", "headers"])
def test_sources_that_differ_only_in_a_password_are_not_mixed_up(name: str) -> None:
    def keys(*passwords: str) -> list[str]:
        values = [{"x-key": each} if name == "headers" else each for each in passwords]
        told = [{"uri": "http://h/flags", "provider": "http", name: value} for value in values]
        return list(keys_of(parse_sources((), json.dumps(told))).values())

    one, two = keys("Bearer one", "Bearer two")
    assert one != two
    assert keys("Bearer two", "Bearer one") == [two, one]


def test_what_an_earlier_life_said_is_not_updated_but_replaced() -> None:
    source = Source("flags", "grpc", settings=SourceSettings(incremental=True))
    loader = Loader("v2", strict=False)
    loader.flags[source] = loader.parse(source, document(gone=["a"], blue=["b"]))
    assert loader._load(source, document(blue=["b"])).keys() == ("b",)
    assert loader._load(source, document(red=["c"])).keys() == ("b", "c")


def test_a_large_rule_is_compiled_before_anybody_asks_for_it_and_a_small_one_is_not() -> None:
    conditions = [{"==": [{"var": "a"}, number]} for number in range(LARGE // 20)]
    flag = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off"}
    rules = {"large": {"if": [{"or": conditions}, "on"]}, "small": {"if": [{"var": "a"}, "on"]}}
    flags = {key: {**flag, "targeting": rule} for key, rule in rules.items()}
    (found,) = loaded(Source("flags", "file"), Document(json.dumps({"flags": flags}).encode(), "json"))
    assert [found.flag(key)._program is not None for key in ("large", "small")] == [True, False]
    assert found.resolve("large", None, None, {"a": 3}).variant == "on"
