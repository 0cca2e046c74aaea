"""What watchers yield becomes parts of a snapshot: endpoints, keys, files and documents; by plug-ins, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sources.plugin_package import install
from tests.watt.process import WattProcess
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.endpoints import EndpointsWatch, ServiceEndpoint, ServiceEndpoints
from wigwag.sources.consul.keys import ConsulWatch
from wigwag.sources.document import Document
from wigwag.sources.kinds import read_source
from wigwag.watt.snapshots.formats import document
from wigwag.watt.snapshots.snapshot import TableName, WatchPart
from wigwag.watt.watches.specs import ConsulSpec, DirectorySpec, DocumentSpec, KeysSpec
from wigwag.watt.watches.watchers import document_part, endpoints_part, files_part, keys_part

from tests.watt.snapshots import snapshot  # isort: skip

ACCESS = ConsulAccess("consul:8500", datacenter="dc1")


def bodies(part: WatchPart) -> dict[tuple[str, str], Any]:
    return {key: json.loads(entry.body) for key, entry in part.entries.items()}


def shown(*parts: WatchPart) -> Any:
    return json.loads(b"".join(document(snapshot(*parts), "watt1")))


class TestEndpoints:
    SPEC = ConsulSpec(EndpointsWatch(ACCESS, "web", "v1"), "my id")
    ONE = ServiceEndpoint("web-1", "n1", "uuid", "web", "10.0.0.1", 80, ("v1",), "dc1", (("a", "b"),), (2, 1))

    def test_they_are_as_the_original_writes_them_and_more(self) -> None:
        part = endpoints_part(self.SPEC, ServiceEndpoints((self.ONE,)))
        assert part.table == TableName("Consul", "Endpoints")
        ((key, body),) = bodies(part).items()
        assert key == ("consul:8500|dc1|web|tag=v1", "web")
        assert (body["Id"], body["Datacenter"], body["Tag"]) == ("my id", "dc1", "v1")
        assert shown(part)["Consul"]["Endpoints"] == {
            "web": {
                "Id": "my id",
                "Service": "web",
                "Endpoints": [
                    {"SystemID": "consul::uuid", "ID": "web-1", "Service": "web", "Address": "10.0.0.1", "Port": 80,
                     "Tags": ["v1"]}
                ],
            }
        }  # fmt: skip

    def test_no_endpoints_are_a_value(self) -> None:
        assert shown(endpoints_part(self.SPEC, ServiceEndpoints()))["Consul"]["Endpoints"]["web"]["Endpoints"] == []


class TestKeys:
    def test_values_are_texts_and_what_is_none_is_base64(self) -> None:
        part = keys_part(KeysSpec(ConsulWatch(ACCESS, "a/")), {"a/b": b"text", "a/c": b"\xff"})
        assert bodies(part) == {("consul:8500|dc1", "a/b"): "text", ("consul:8500|dc1", "a/c"): {"base64": "/w=="}}
        assert shown(part)["Consul"]["KV"] == {"a/b": "text", "a/c": {"base64": "/w=="}}

    def test_a_key_of_two_namespaces_is_two(self) -> None:
        def part(namespace: str) -> WatchPart:
            access = ConsulAccess("consul:8500", namespace=namespace)
            return keys_part(KeysSpec(ConsulWatch(access, "a|b")), {"a|b": namespace.encode()})

        assert sorted(shown(part("one"), part("two"))["Consul"]["KV"].values()) == ["one", "two"]

    def test_two_watches_of_one_store_that_overlap_are_one(self) -> None:
        parts = [keys_part(KeysSpec(ConsulWatch(ACCESS, key)), {"a|b/c": b"1"}) for key in ("a|b/", "a|b/c")]
        assert shown(*parts)["Consul"]["KV"] == {"a|b/c": "1"}


class TestFiles:
    def test_each_directory_is_a_table(self) -> None:
        part = files_part(DirectorySpec("/etc/a"), {"x": b"1", "y": b"\0\xff"})
        assert shown(part)["Files"] == {"/etc/a": {"x": "1", "y": {"base64": "AP8="}}}


class TestDocuments:
    SPEC = DocumentSpec(read_source("file:/etc/a.json"))

    @pytest.mark.parametrize(
        ("content", "body"),
        [
            (b'{"a": [1, 2]}\n', b'{"a":[1,2]}'),
            (b"a: 1\n", b'"a: 1\\n"'),
            (b"", b'""'),
            (b'"\xff"', b'{"base64":"Iv8i"}'),
            (b"\xff", b'{"base64":"/w=="}'),
        ],
        ids=["JSON", "YAML", "empty", "JSON that is no text", "no text"],
    )
    def test_json_is_json_and_everything_else_is_text(self, content: bytes, body: bytes) -> None:
        part = document_part(self.SPEC, Document(content))
        assert [entry.body for entry in part.entries.values()] == [body]
        assert shown(part)["Documents"] == {"/etc/a.json": json.loads(body)}

    @pytest.mark.parametrize("depth", [500, 900, 100_000])
    def test_json_that_is_nested_deeply_cannot_break_a_snapshot(self, depth: int) -> None:
        text = "[" * depth + "]" * depth
        part = document_part(self.SPEC, Document(text.encode()))
        (entry,) = part.entries.values()
        assert entry.body in (text.encode(), json.dumps(text).encode())
        assert b"".join(document(snapshot(part), "watt1"))
        assert b"".join(document(snapshot(part), "v2"))


def test_a_plug_in_is_a_source_like_any_other(tmp_path: Path) -> None:
    site = install(tmp_path / "site", "memory = wigwag_memory:KIND\nmemorys = wigwag_memory:KIND")
    (tmp_path / "shop").write_text('{"open": true}')
    watches = json.dumps([{"source": "uri", "uri": "memory:shop?token=hush"}])
    environment = {"PYTHONPATH": str(site), "MEMORY_STORE": str(tmp_path)}
    with WattProcess("--watches", watches, **environment) as watt:
        first = watt.until(bool, "the first snapshot")
        assert first["Documents"] == {"memory:shop?token=***": {"open": True}}
        (tmp_path / "next").write_text('{"open": false}')
        (tmp_path / "next").rename(tmp_path / "shop")
        watt.until(lambda latest: latest["Documents"] == {"memory:shop?token=***": {"open": False}}, "the change")
        assert "hush" not in json.dumps(watt.debug())
        assert watt.stop() == 0
