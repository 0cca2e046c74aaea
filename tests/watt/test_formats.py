"""Formats: the shape of each document, and that it depends on nothing but the content."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.watt.snapshots import CONFIG_MAPS, SERVICES, compact, consul, kubernetes, services, snapshot
from wigwag.watt.snapshots.formats import CHUNK, FORMATS, MOST_DELTAS, Format, document, render_files
from wigwag.watt.snapshots.projection import Projection
from wigwag.watt.snapshots.snapshot import TableName, WatchPart, WattSnapshot, entry

WATT1 = """\
{
    "Consul": {
        "Endpoints": {
            "empty": {
                "Id": "dc1",
                "Service": "empty",
                "Endpoints": []
            },
            "web": {
                "Id": "dc1",
                "Service": "web",
                "Endpoints": [
                    {
                        "SystemID": "consul::n1",
                        "ID": "web-1",
                        "Service": "web",
                        "Address": "10.0.0.1",
                        "Port": 80,
                        "Tags": [
                            "v1"
                        ]
                    }
                ]
            }
        }
    },
    "Kubernetes": {
        "ConfigMap": [],
        "service": [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {
                    "name": "a",
                    "namespace": "shop"
                },
                "spec": {}
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {
                    "name": "b",
                    "namespace": "shop"
                },
                "spec": {}
            }
        ]
    }
}"""


def text(snapshot: WattSnapshot, format: Format = "watt1", projection: Projection | None = None) -> bytes:
    return b"".join(document(snapshot, format, projection or Projection()))


def read(snapshot: WattSnapshot, format: Format = "v2", projection: Projection | None = None) -> Any:
    return json.loads(text(snapshot, format, projection))


def test_watt1_is_what_the_original_writes() -> None:
    objects = services(("shop", "b"), ("shop", "a"), spelled="service", spec={})
    maps = kubernetes(CONFIG_MAPS, "ConfigMap", spelled="ConfigMap")
    assert text(snapshot(objects, maps, consul({("dc1", "web"): "10.0.0.1", ("dc1", "empty"): ""}))).decode() == WATT1


def test_watt1_has_both_members_when_there_is_nothing() -> None:
    assert json.loads(text(snapshot())) == {"Consul": {"Endpoints": {}}, "Kubernetes": {}}


def test_a_service_of_two_datacenters_is_there_twice() -> None:
    document = read(snapshot(consul({("dc1", "web"): "10.0.0.1", ("dc2", "web"): "10.0.0.2"})), "watt1")
    assert list(document["Consul"]["Endpoints"]) == ["web", "consul:8500|dc2|web"]


def test_what_the_original_cannot_watch_is_added() -> None:
    files = WatchPart.of(TableName("Files", "/etc/app"), {("", "a.txt"): entry("a", b'"text"')})
    uri = WatchPart.of(TableName("Documents", "https://example.org/x"), {("", ""): entry("x", b'{"y":[1]}')})
    kv = WatchPart.of(TableName("Consul", "KV"), {("consul:8500|dc1", "app/x"): entry("kv", b'"1"')})
    for form in FORMATS:
        document = read(snapshot(files, uri, kv), form)
        assert document["Files"] == {"/etc/app": {"a.txt": "text"}}
        assert document["Documents"] == {"https://example.org/x": {"y": [1]}}
        assert document["Consul"]["KV"] == {"app/x": "1"}


def test_v2_is_an_envelope_with_everything_that_is_known_of_endpoints() -> None:
    taken = snapshot(services(("shop", "a"), spelled="svc"), consul({("dc1", "web"): "10.0.0.1"}), waiting=("late",))
    numbered = taken.numbered(7, 1.5, None)
    states = {"services": {"state": "live", "age": 2.0, "error": None}}
    found = json.loads(b"".join(document(numbered, "v2", sources=states)))
    assert {name: found[name] for name in ("id", "created", "complete", "unresolved", "sources")} == {
        "id": 7,
        "created": "1970-01-01T00:00:01.500Z",
        "complete": False,
        "unresolved": ["late"],
        "sources": states,
    }
    assert [each["metadata"]["name"] for each in found["Kubernetes"]["services"]] == ["a"]
    assert found["Consul"]["Endpoints"][0]["Endpoints"][0]["Status"] == "passing"
    assert found["Deltas"][1] == {
        "section": "Kubernetes",
        "table": "services",
        "namespace": "shop",
        "name": "a",
        "type": "add",
        "kind": "Service",
        "apiVersion": "v1",
    }
    assert "deltas_truncated" not in found


def test_v2_is_compact() -> None:
    written = text(snapshot(services(("shop", "a"))), "v2")
    assert written == compact(json.loads(written))


def test_more_changes_than_a_document_shows_are_said_to_be_more() -> None:
    taken = snapshot(services(*(("shop", str(each)) for each in range(MOST_DELTAS + 1)))).numbered(1, 0.0, None)
    found = read(taken)
    assert len(found["Deltas"]) == MOST_DELTAS
    assert found["deltas_truncated"] is True


def test_changes_alone_are_without_objects() -> None:
    taken = snapshot(services(("shop", "a"))).numbered(1, 0.0, None)
    found = read(taken, projection=Projection(deltas_only=True))
    assert "Kubernetes" not in found
    assert len(found["Deltas"]) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_the_order_of_arrival_does_not_show(form: Format) -> None:
    keys = [("shop", "b"), ("shop", "a"), ("admin", "z")]
    maps = kubernetes(CONFIG_MAPS, "ConfigMap", ("shop", "c"))
    assert text(snapshot(services(*keys), maps), form) == text(snapshot(maps, services(*reversed(keys))), form)


@pytest.mark.parametrize("form", FORMATS)
def test_a_large_document_comes_in_chunks_that_make_up_the_whole(form: Format) -> None:
    keys = [("shop", f"s{each:04}") for each in range(2000)]
    taken = snapshot(services(*keys, data="x" * 1000))
    chunks = list(document(taken, form))
    assert len(chunks) > 5
    assert max(map(len, chunks)) < 2 * CHUNK
    found = json.loads(b"".join(chunks))["Kubernetes"]["services"]
    assert [each["metadata"]["name"] for each in found] == [name for _, name in keys]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.lists(st.dictionaries(st.text(), values, max_size=4), max_size=4))
def test_watt1_is_indented_as_any_json(objects: list[dict[str, Any]]) -> None:
    entries = {("n", f"{at:02}"): entry(at, compact(each)) for at, each in enumerate(objects)}
    written = text(snapshot(WatchPart.of(SERVICES, entries)))
    expected = {"Consul": {"Endpoints": {}}, "Kubernetes": {"services": objects}}
    assert written == json.dumps(expected, indent=4).encode()


def test_files_are_projections_and_do_not_change_with_the_number() -> None:
    taken = snapshot(services(("shop", "a"), ("admin", "b")), consul({("dc1", "web"): "10.0.0.1"}))
    wanted: dict[str, tuple[Projection, Format]] = {
        "shop.json": (Projection(namespaces=("shop",)), "watt1"),
        "web.json": (Projection(services=("web",)), "watt1"),
    }
    files = render_files(taken.numbered(1, 1.0, None), wanted)
    assert len(json.loads(files["shop.json"])["Kubernetes"]["services"]) == 1
    assert list(json.loads(files["web.json"])["Consul"]["Endpoints"]) == ["web"]
    assert files == render_files(taken.numbered(2, 2.0, taken), wanted)
