"""Which documents are passed on, and that others are not shown to anybody."""

from __future__ import annotations

import json

import pytest

from wigwag.errors import DocumentError
from wigwag.proxy.documents import check
from wigwag.sources.document import Document
from wigwag.sources.source import Source, SourceSettings

SOURCE = Source("a.json", "file")


def passed(content: bytes, format: str | None = None) -> str:
    return check(SOURCE, Document(content, format)).text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        '{"flags": {}}',
        '{ "flags" : {"x": {"a": 1.50}},\n "$evaluators": {"y": {}}, "unknown": [1, 2]}\n',
        '{"flags": {"grün": {"$ref": "é"}}, "flags2": null}',
        '{"flags": [{"key": "x"}]}',
        '{"flags": "whatever a client makes of it"}',
    ],
)
def test_a_flag_document_is_passed_on_unchanged(text: str) -> None:
    assert passed(text.encode()) == text
    assert passed(text.encode(), "json") == text


def test_yaml_becomes_json() -> None:
    assert json.loads(passed(b"flags:\n  x: {state: ENABLED}\n", "yaml")) == {"flags": {"x": {"state": "ENABLED"}}}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"eyJhbGciOiJSUzI1NiJ9.hush.hush",
        b"-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n",
        b"hush:x:0:0:root:/root:/bin/sh\n",
        b'{"auths": {"registry": {"auth": "hush"}}}',
        b"apiVersion: v1\nusers: [{user: {token: hush}}]\n",
        b'{"flags": {"x": "hush',
        b'{"flags": {}} hush',
        b'["hush"]',
        b"hush: [1\n  - {",
        b"\xff\xfehush",
        b'{"flags": {"x": "\xff"}}',
        b'{"flags": ' + b"[" * 10_000,
    ],
)
def test_what_is_no_flag_document_is_not_shown(content: bytes) -> None:
    with pytest.raises(DocumentError, match="it is no flag document") as caught:
        passed(content)
    assert "hush" not in str(caught.value)


def test_a_document_has_a_limit() -> None:
    small = Source("a.json", "file", settings=SourceSettings(most=20))
    with pytest.raises(DocumentError):
        check(small, Document(b'{"flags": {}, "more": "than that"}'))


def test_one_that_comes_again_is_another_one() -> None:
    document = Document(b'{"flags": {}}')
    assert check(SOURCE, document) != check(SOURCE, document)
