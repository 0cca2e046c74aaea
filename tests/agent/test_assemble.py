"""Documents of sources become flags."""

from __future__ import annotations

import json
from typing import Any

from tests.pipeline.fakes import run
from wigwag.agent.assemble import Loader
from wigwag.agent.state.lastgood import key_of
from wigwag.pipeline.spec import Trouble
from wigwag.sources.document import Document
from wigwag.sources.source import Settings, Source, parse_sources


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
        return [item async for item in Loader("v2", strict=False).watcher(yielding)(source)]

    return run(main)


def test_an_incremental_document_is_about_the_flag_sets_that_it_names() -> None:
    source = Source("flags", "grpc", settings=Settings(incremental=True))
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
    assert isinstance(bad, Trouble)
    assert again is first


def test_the_field_asks_for_it() -> None:
    (source,) = parse_sources((), '[{"uri": "localhost:1", "provider": "grpc", "incrementalUpdates": true}]')
    assert source.settings.incremental


def test_a_source_is_remembered_by_what_is_asked_for_and_not_by_its_place_or_password() -> None:
    def key(position: int = 0, **fields: Any) -> str:
        told = [{"uri": "http://h/flags", "provider": "http", **fields}]
        return key_of(parse_sources(("file:x",) * position, json.dumps(told))[position])

    assert key() == key(1) == key(authHeader="Bearer secret")
    assert key() != key(headers={"x-team": "red"}) != key(headers={"x-team": "blue"})
