"""Which objects have changed between two mappings of a watch: always exactly those that a comparison finds."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.kube.watch.decode import Key, ObjectRecord
from wigwag.kube.watch.objects import ChangeJournal, Objects
from wigwag.kube.watch.store import ObjectStore

NAMES, VALUES = st.sampled_from("abcde"), st.integers(0, 2)
CHANGES = st.one_of(
    st.tuples(st.just("put"), NAMES, VALUES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("replace"), st.dictionaries(NAMES, st.one_of(st.none(), VALUES))),
    st.tuples(st.just("snapshot")),
)


def compared(before: Mapping[Key, object], after: Mapping[Key, object]) -> set[Key]:
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


class Driven(ObjectStore[object]):
    """A store whose versions count up."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._journal, self.version = ChangeJournal(most), 0

    def record(self, name: str, value: object = None) -> ObjectRecord[object]:
        self.version += 1
        return ObjectRecord(("ns", name), str(self.version), value)

    def change(self, name: str, value: object) -> None:
        self.put(self.record(name, value))

    def drop(self, name: str) -> None:
        self.remove(self.record(name))

    def list(self, values: Mapping[str, object]) -> None:
        self.replace([self.record(*item) for item in values.items()])


@given(st.lists(CHANGES, max_size=30), st.sampled_from([1, 3, 1000]))
def test_the_journal_says_what_a_comparison_says_between_any_two_mappings(changes: list[tuple], most: int) -> None:  # type: ignore[type-arg]
    store = Driven(most)
    taken = [store.snapshot()]
    contents: list[dict[Key, object]] = [{}]
    act: dict[str, Callable[..., None]] = {"put": store.change, "remove": store.drop, "replace": store.list}
    for how, *details in changes:
        if how == "snapshot":
            taken.append(store.snapshot())
            contents.append(dict(taken[-1]))
        else:
            act[how](*details)
    taken.append(store.snapshot())
    contents.append(dict(taken[-1]))
    assert taken == contents, "what was taken does not change"
    for before in taken:
        for after in taken:
            assert after.changed_since(before) == compared(before, after)


def test_the_journal_is_asked_and_not_all_objects() -> None:
    journal = ChangeJournal()
    before = Objects({("ns", "a"): 1}, journal)
    journal.add(("ns", "b"))
    after = Objects({("ns", "a"): "not in the journal", ("ns", "b"): 2}, journal)
    assert after.changed_since(before) == {("ns", "b")}


@pytest.mark.parametrize("before", [{("ns", "a"): 1}, Objects({("ns", "a"): 1}), None])
def test_with_anything_else_it_is_compared(before: Mapping[Key, object] | None) -> None:
    store = Driven(1000)
    store.list({"a": 1, "b": 2})
    changed = store.snapshot().changed_since(before)
    assert changed == ({("ns", "b")} if before is not None else {("ns", "a"), ("ns", "b")})


def test_an_object_that_a_list_has_as_it_was_stays_the_same_object() -> None:
    store = Driven(1000)
    store.list({"a": [1], "b": [2]})
    before = store.snapshot()
    store.list({"a": [1], "b": [3]})
    after = store.snapshot()
    assert after[("ns", "a")] is before[("ns", "a")]
    assert after.changed_since(before) == {("ns", "b")}


def test_a_store_keeps_no_old_mapping_alive() -> None:
    class Value:
        pass

    store, value = Driven(1000), Value()
    store.change("a", value)
    old, seen = store.snapshot(), weakref.ref(value)
    store.change("a", 2)
    assert store.snapshot().changed_since(old) == {("ns", "a")}
    del old, value
    gc.collect()
    assert seen() is None


def test_it_is_a_mapping_that_cannot_be_changed() -> None:
    content: dict[Key, object] = {("ns", "a"): 1}
    objects = Objects(content)
    assert objects == content
    assert content == objects
    assert objects != {}
    assert objects == Objects(content)
    assert (list(objects.items()), list(objects.values()), list(objects.keys())) == (
        [(("ns", "a"), 1)],
        [1],
        [*objects],
    )
    assert (objects.get(("ns", "b")), ("ns", "a") in objects, len(objects)) == (None, True, 1)
    assert repr(objects) == "Objects({('ns', 'a'): 1})"
    assert not hasattr(objects, "__setitem__")
    with pytest.raises(TypeError):
        hash(objects)
