"""From bytes to records."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from msgspec import Raw

from wigwag.kube.errors import ApiStatus
from wigwag.kube.watch import decode
from wigwag.kube.watch.decode import (
    LAST_APPLIED,
    Bookmark,
    Lines,
    MalformedObjectError,
    ObjectEvent,
    ObjectRecord,
    plain,
    read_event,
    read_page,
)
from wigwag.sources.kubernetes.objects import decode_flag

OBJECT = {"metadata": {"name": "a"}}


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def test_what_is_of_use_to_the_server_alone_is_left_out() -> None:
    about = {"name": "a", "managedFields": [1], "annotations": {LAST_APPLIED: "{}", "mine": "1"}}
    assert plain(raw({"metadata": about})) == {"metadata": {"name": "a", "annotations": {"mine": "1"}}}
    assert plain(raw({"metadata": None})) == {"metadata": None}


def test_a_page_has_its_version_the_next_one_and_its_objects() -> None:
    item = {"metadata": {"namespace": "n", "name": "a", "resourceVersion": "7"}, "data": {}}
    page = read_page(
        json.dumps({"metadata": {"resourceVersion": "9", "continue": "t"}, "items": [item]}).encode(), plain
    )
    assert (page.version, page.token, page.records) == ("9", "t", (ObjectRecord(("n", "a"), "7", item),))
    assert read_page(b'{"metadata":{},"items":null}', plain).records == ()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"items":[]}', b'{"metadata":{},"items":[1]}', b"[" * 100_000])
def test_what_is_no_page_is_an_error(body: bytes) -> None:
    with pytest.raises(MalformedObjectError, match="the list cannot be decoded"):
        read_page(body, plain)


def test_an_object_that_does_not_fit_is_told_with_its_place_and_its_neighbours_are_read() -> None:
    items = [{"metadata": {"name": "bad"}, "spec": 5}, {"metadata": {"name": "good"}, "spec": {"flagSpec": {"a": 1}}}]
    bad, good = read_page(json.dumps({"metadata": {}, "items": items}).encode(), decode_flag).records
    assert (bad.key, bad.value, bad.problem) == (("", "bad"), None, "Expected `object | null`, got `int` - at `$.spec`")
    assert good.value == {"": b'{"a": 1}'}


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ({"type": "ADDED", "object": OBJECT}, ObjectEvent(ObjectRecord(("", "a"), "", OBJECT))),
        ({"type": "DELETED", "object": OBJECT}, ObjectEvent(ObjectRecord(("", "a"), "", OBJECT), gone=True)),
        ({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}, Bookmark("7")),
        ({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}, ApiStatus(410, "Expired")),
        ({"type": "SURPRISE", "object": 5}, None),
    ],
)
def test_each_event_is_read(line: Any, event: Any) -> None:
    assert read_event(json.dumps(line).encode(), plain) == event


def test_events_are_put_together_from_pieces_up_to_what_cannot_be_read() -> None:
    text = b'\n{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}\n'
    lines = Lines(plain)
    found = []
    for byte in text % 1 + text % 2:
        events, problem = lines.feed(bytes([byte]))
        assert problem is None
        found += events
    assert found == [Bookmark("1"), Bookmark("2")]
    assert not lines.broken
    events, problem = lines.feed(text % 3 + b"{]\n" + text % 4)
    assert events == [Bookmark("3")]
    assert isinstance(problem, MalformedObjectError)
    lines = Lines(plain)
    lines.feed(b'{"type":')
    assert lines.broken


def test_an_event_has_a_length_that_is_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "LONGEST", 100)
    lines = Lines(plain)
    assert lines.feed(b"x" * 100)[1] is None
    assert "more than 100 bytes" in str(lines.feed(b"x")[1])


def test_a_document_does_not_keep_its_page_alive() -> None:
    page = b'{"metadata":{"name":"a"},"spec":{"flagSpec":{"a":1}},"padding":"' + b"x" * 100_000 + b'"}'
    held = sys.getrefcount(page)
    found = decode_flag(Raw(page))
    assert found == {"": b'{"a":1}'}
    assert sys.getrefcount(page) == held
    assert decode_flag(Raw(b'{"metadata":{}}')) == decode_flag(Raw(b'{"metadata":{},"spec":{}}')) == {"": b""}
