"""Kubernetes objects as entries: what is left out, what is hidden, and what counts as a change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from wigwag.kube.kinds import Kind
from wigwag.kube.watch.decode import LAST_APPLIED, read_object, read_page
from wigwag.watt.snapshots.snapshot import Entry
from wigwag.watt.watches.objects import decoder

SERVICE = Kind("", "v1", "services", kind="Service")
SECRET = Kind("", "v1", "secrets", kind="Secret")
MAPPING = Kind("getambassador.io", "v2", "mappings", kind="Mapping")
METADATA = {"name": "web", "namespace": "shop"}


def entry(value: dict[str, Any], kind: Kind = SERVICE, *ignore: str, secrets: bool = False) -> Entry:
    return decoder(kind, ignore, secrets=secrets)(Raw(json.dumps({"metadata": METADATA, **value}).encode()))


def body(value: dict[str, Any], kind: Kind = SERVICE, *ignore: str, secrets: bool = False) -> Any:
    return json.loads(entry(value, kind, *ignore, secrets=secrets).body)


def changed(**metadata: Any) -> dict[str, Any]:
    return {"metadata": METADATA | metadata}


class TestBody:
    def test_objects_of_lists_get_their_kind_first(self) -> None:
        assert list(body({"spec": {}}, MAPPING).items())[:2] == [
            ("apiVersion", "getambassador.io/v2"),
            ("kind", "Mapping"),
        ]

    def test_metadata_alone_have_the_kind_of_the_object(self) -> None:
        partial = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
        assert body(partial) == {"apiVersion": "v1", "kind": "Service", "metadata": METADATA}
        assert entry(partial) == entry({}), "whether it comes in a list or as an event is no difference"

    def test_what_only_the_server_needs_is_left_out(self) -> None:
        noise = changed(managedFields=[{"manager": "kubectl"}], annotations={LAST_APPLIED: "{}", "mine": "yes"})
        assert body(noise)["metadata"] == METADATA | {"annotations": {"mine": "yes"}}
        assert entry(noise) == entry(changed(annotations={"mine": "yes"}))

    def test_versions_are_shown(self) -> None:
        assert body(changed(resourceVersion="7", generation=2))["metadata"] == METADATA | {
            "resourceVersion": "7", "generation": 2
        }  # fmt: skip


class TestDigest:
    def test_versions_do_not_count(self) -> None:
        assert entry(changed(resourceVersion="7", generation=2)) == entry(changed(resourceVersion="8", generation=3))

    @pytest.mark.parametrize("change", [changed(labels={"a": "b"}), changed(name="other"), {"spec": {"port": 1}}])
    def test_everything_else_does(self, change: dict[str, Any]) -> None:
        assert entry(change) != entry({})

    def test_equal_objects_of_two_kinds_differ(self) -> None:
        assert entry({}, SERVICE).digest != entry({}, MAPPING).digest


class TestIgnore:
    def test_a_change_of_an_ignored_field_is_none(self) -> None:
        ignore = ("status", "metadata.labels.build")
        one = {"status": {"ready": 1}, **changed(labels={"build": "1", "app": "web"})}
        other = {"status": {"ready": 2}, **changed(labels={"build": "2", "app": "web"})}
        assert entry(one, SERVICE, *ignore) == entry(other, SERVICE, *ignore)
        assert body(one, SERVICE, *ignore) == body(other, SERVICE, *ignore)
        assert body(one, SERVICE, *ignore)["metadata"]["labels"] == {"app": "web"}

    @pytest.mark.parametrize("path", ["nothing", "spec.nothing", "spec.list.name", "spec.text.name", "spec.null.name"])
    def test_a_field_that_is_not_there_is_no_error(self, path: str) -> None:
        value = {"spec": {"list": [{"name": 1}], "text": "name", "null": None}}
        assert body(value, SERVICE, path) == body(value)

    def test_all_metadata_can_be_ignored(self) -> None:
        ignored = entry({"spec": {}}, SERVICE, "metadata")
        assert json.loads(ignored.body) == {"apiVersion": "v1", "kind": "Service", "spec": {}}
        assert ignored != entry({"spec": {}, **changed(name="other")}, SERVICE, "metadata"), "it is another object"


VALUES = {"type": "Opaque", "data": {"password": "aHVzaA=="}, "stringData": {"token": "hush"}}


class TestSecrets:
    def test_values_are_hidden_and_names_are_not(self) -> None:
        found = body(VALUES, SECRET)
        assert (found["data"], found["stringData"], found["type"]) == ({"password": ""}, {"token": ""}, "Opaque")

    def test_a_change_of_a_value_shows_in_the_digest(self) -> None:
        other = VALUES | {"data": {"password": "b3RoZXI="}}
        assert body(VALUES, SECRET) == body(other, SECRET)
        assert entry(VALUES, SECRET) != entry(other, SECRET)

    def test_who_asks_gets_them(self) -> None:
        assert body(VALUES, SECRET, secrets=True)["data"] == VALUES["data"]
        assert entry(VALUES, SECRET, secrets=True) == entry(VALUES, SECRET)

    def test_what_kubectl_applied_is_hidden_too(self) -> None:
        assert b"hush" not in entry(changed(annotations={LAST_APPLIED: '{"stringData": "hush"}'}), SECRET).body

    @pytest.mark.parametrize("value", [{}, {"data": None}, {"data": []}])
    def test_a_secret_without_values(self, value: dict[str, Any]) -> None:
        assert body(value, SECRET) == {"apiVersion": "v1", "kind": "Secret", "metadata": METADATA, **value}

    def test_only_secrets_of_the_core_group_are_secrets(self) -> None:
        own = Kind("example.com", "v1", "secrets", kind="Secret")
        assert body(VALUES, own)["data"] == VALUES["data"]


def test_equal_watches_share_one_decoder() -> None:
    assert decoder(SERVICE, ("status",)) is decoder(SERVICE, ("status",))
    assert decoder(SERVICE, ("status",)) is not decoder(SERVICE)


def test_an_object_that_is_nested_too_deeply_is_a_problem_of_its_own() -> None:
    deep = '{"metadata": {"name": "deep"}, "spec": %s}' % ('{"a":' * 900 + "1" + "}" * 900)
    plain = '{"metadata": {"name": "plain"}, "spec": %s}' % ('{"a":' * 300 + "1" + "}" * 300)
    record = read_object(deep.encode(), decoder(SERVICE))
    assert (record.key, record.value, record.problem) == (("", "deep"), None, "RecursionError")
    page = read_page(f'{{"metadata": {{}}, "items": [{deep}, {plain}]}}'.encode(), decoder(SERVICE))
    assert [each.problem for each in page.records] == ["RecursionError", ""]
