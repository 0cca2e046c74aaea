"""Snapshots: one entry per object, cheap to assemble, and a digest that tells content apart."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.watt import snapshots as made
from wigwag.pipeline.aggregate import Values
from wigwag.watt.snapshots.snapshot import Assembler, Delta, TableName, WatchPart, WattSnapshot, entry

SERVICES, PODS = TableName("Kubernetes", "services"), TableName("Kubernetes", "pods")


def part(table: TableName, /, **objects: str) -> WatchPart:
    return after(None, table, objects)


def after(before: WatchPart | None, table: TableName, objects: dict[str, str]) -> WatchPart:
    entries = {("", name): entry((table.name, name), text.encode()) for name, text in objects.items()}
    return WatchPart.of(table, entries, before=before)


def snapshot(*parts: WatchPart, waiting: tuple[Any, ...] = (), assembler: Assembler | None = None) -> WattSnapshot:
    return (assembler or Assembler())(Values(dict(enumerate(parts)), waiting))


def test_an_object_that_two_watches_match_is_one_entry_and_counts_once() -> None:
    both = snapshot(part(SERVICES, a="1", b="2"), part(SERVICES, b="2", c="3"))
    assert set(both.tables[SERVICES].entries) == {("", "a"), ("", "b"), ("", "c")}
    assert both.digest == snapshot(part(SERVICES, a="1", b="2", c="3")).digest
    assert both.size == 3


def test_a_table_whose_watches_did_not_change_is_the_same_object() -> None:
    assembler, services = Assembler(), part(SERVICES, a="1")
    first = snapshot(services, part(PODS, p="1"), assembler=assembler)
    second = snapshot(services, part(PODS, p="2"), assembler=assembler)
    assert second.tables[SERVICES] is first.tables[SERVICES]
    assert second.tables[PODS] is not first.tables[PODS]


def test_a_table_goes_with_its_last_watch() -> None:
    assembler = Assembler()
    snapshot(part(SERVICES, a="1"), part(PODS, p="1"), assembler=assembler)
    assert set(snapshot(part(PODS, p="1"), assembler=assembler).tables) == {PODS}


def test_missing_answers_are_named_and_change_the_digest() -> None:
    complete, waiting = snapshot(part(PODS)), snapshot(part(PODS), waiting=("consul web",))
    assert (complete.complete, waiting.complete, waiting.unresolved) == (True, False, ("consul web",))
    assert complete.digest != waiting.digest


def test_deltas_are_what_changed_since_the_snapshot_before() -> None:
    first = snapshot(part(SERVICES, a="1", b="1"), part(PODS, p="1")).numbered(1, 0.0, None)
    second = snapshot(part(SERVICES, a="2", c="1")).numbered(2, 0.0, first)
    assert {(delta.type, delta.key[1]) for delta in first.deltas} == {("add", "a"), ("add", "b"), ("add", "p")}
    assert second.deltas == (
        Delta(PODS, ("", "p"), "delete"),
        Delta(SERVICES, ("", "a"), "update"),
        Delta(SERVICES, ("", "b"), "delete"),
        Delta(SERVICES, ("", "c"), "add"),
    )


texts = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("123"), max_size=6)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8))
def test_digest_size_and_deltas_are_those_of_the_content_however_it_came_about(steps: list[tuple[Any, Any]]) -> None:
    assembler, one, other = Assembler(), None, None
    content: dict[str, str] = {}
    last: WattSnapshot | None = None
    for first, second in steps:
        second = second | {name: first[name] for name in second if name in first}  # an object has one content
        one, other = after(one, SERVICES, first), after(other, SERVICES, second)
        now = snapshot(one, other, assembler=assembler).numbered(1, 0.0, last)
        before, content, last = content, first | second, now
        fresh = snapshot(part(SERVICES, **content))
        assert (now.digest, now.size) == (fresh.digest, sum(map(len, content.values())))
        changed = {name for name in before.keys() | content.keys() if before.get(name) != content.get(name)}
        assert {delta.key[1] for delta in now.deltas} == changed


def test_objects_are_found_by_every_name_of_their_kind_and_nothing_else_is() -> None:
    parts = made.services(("shop", "a"), spelled="svc"), made.services(("shop", "b"), spelled="Service")
    found = made.snapshot(*parts, made.consul({("dc1", "web"): "10.0.0.1"}))
    for name in ("services", "svc", "Service"):
        assert [each["metadata"]["name"] for each in found.objects(name)] == ["a", "b"]
    assert found.objects("Endpoints") == found.objects("pods") == []
    assert [each["Address"] for each in found.endpoints("web")] == ["10.0.0.1"]
