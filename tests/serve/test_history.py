"""Snapshots that were published: which are kept, by what names, at what cost."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from typing import Any

import pytest

import wigwag
from wigwag.errors import UsageError
from wigwag.pipeline.broadcast import Broadcast
from wigwag.serve.management.history import SnapshotHistory
from wigwag.serve.snapshot import Snapshot
from wigwag.serve.streams import stopping

FLAG = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off"}
ON = {**FLAG, "defaultVariant": "on"}


class Published:
    """Publishes documents of one source, as an agent does."""

    def __init__(self, most: int = 10, **options: Any) -> None:
        self.history = SnapshotHistory(most, **options)
        self.snapshots: list[Snapshot] = []
        self._flags: wigwag.FlagSet | None = None

    def __call__(self, flags: dict[str, Any], **members: Any) -> Snapshot:
        self._flags = wigwag.load({"flags": flags, **members}, previous=self._flags, source="a")
        snapshot = Snapshot(self._flags, number=len(self.snapshots) + 1, published=100.0 + len(self.snapshots))
        self.snapshots.append(snapshot)
        self.history.add(snapshot)
        return snapshot

    def numbers(self) -> list[int]:
        return [entry.number for entry in self.history.entries()]


@pytest.fixture
def published() -> Published:
    """Three snapshots, the last with the flags of the first."""
    found = Published()
    for variant in (FLAG, ON, FLAG):
        found({"x": variant})
    return found


class TestNames:
    @pytest.mark.parametrize(("name", "number"), [("current", 3), ("previous", 2), ("1", 1), ("2", 2), ("3", 3)])
    def test_by_place_and_by_number(self, published: Published, name: str, number: int) -> None:
        assert published.history.find(name).number == number

    @pytest.mark.parametrize("length", [6, 12, 32])
    def test_by_id_or_enough_of_it_the_newest_is_meant(self, published: Published, length: int) -> None:
        first, second, third = published.snapshots
        assert first.id == third.id
        assert published.history.find(first.id[:length]).number == 3
        assert published.history.find(second.id[:length].upper()).number == 2

    @pytest.mark.parametrize(
        ("name", "message"), [("nope", "no snapshot 'nope' is kept"), ("", "is kept"), ("99", "'99'"), ("x" * 999, "x")]
    )
    def test_an_unknown_one_is_told_with_what_there_is(self, published: Published, name: str, message: str) -> None:
        with pytest.raises(UsageError, match=message) as caught:
            published.history.find(name)
        newest, older = (snapshot.id[:12] for snapshot in published.snapshots[:2])
        assert f"there is current, previous, {newest} (number 3), {older} (number 2)" in str(caught.value)
        assert len(str(caught.value)) < 300

    def test_too_little_of_an_id_is_refused(self, published: Published) -> None:
        short = [snapshot.id[:5] for snapshot in published.snapshots]
        name = next(name for name in short if not name.isdecimal())  # which may be a number
        with pytest.raises(UsageError, match="is too short: write at least 6 characters"):
            published.history.find(name)

    def test_what_several_ids_begin_with_is_refused(self) -> None:
        history = SnapshotHistory(3)
        for number, digest in enumerate(("abcdef01", "abcdef02"), 1):
            flags = wigwag.load({"flags": {"x": FLAG}})
            flags.__dict__["id"] = digest  # as if their digests began alike
            history.add(Snapshot(flags, number=number))
        with pytest.raises(UsageError, match="'abcdef' may mean several snapshots"):
            history.find("abcdef")
        assert history.find("abcdef01").number == 1

    def test_before_the_first_there_is_none(self) -> None:
        with pytest.raises(UsageError, match="no current snapshot is kept; there is none"):
            SnapshotHistory(3).find("current")
        only = Published(1)
        only({"x": FLAG})
        with pytest.raises(UsageError, match=r"no previous snapshot is kept; there is current, \w+ \(number 1\)"):
            only.history.find("previous")


class TestWhatIsKept:
    def test_no_more_than_asked_for(self) -> None:
        published = Published(3)
        for n in range(10):
            published({"x": FLAG, f"f{n}": FLAG})
        assert published.numbers() == [10, 9, 8]

    def test_an_old_one_is_as_it_was(self) -> None:
        published = Published()
        rule = {"if": [{"$ref": "vip"}, "on"]}
        sets = [{"key": "x", **FLAG, "metadata": {"flagSetId": name}} for name in ("red", "blue")]
        first = published([*sets, {"key": "y", **FLAG, "targeting": rule}], **{"$evaluators": {"vip": True}})  # type: ignore[arg-type]
        published({"z": FLAG})
        old = published.history.find("previous")
        assert (old.id, old.number, old.published) == (first.id, 1, 100.0)
        assert old.flags.flags() == first.flags.flags()
        assert old.flags.resolve("x") == first.flags.resolve("x")
        assert old.flags.resolve("y").variant == "on"
        assert old.select("flagSetId=red").resolve("x").metadata == {"flagSetId": "red"}
        assert old.flags.problems == first.flags.problems

    def test_what_is_wrong_with_a_flag_stays_known(self) -> None:
        published = Published()
        published({"x": FLAG})
        published({"x": {"variants": 5}})
        published({"x": FLAG})
        (problem,) = published.history.find("previous").flags.problems
        assert problem.code == "flag-shape"

    def test_the_current_one_is_the_very_same(self, published: Published) -> None:
        assert published.history.find("current") is published.snapshots[-1]

    def test_what_old_ones_remembered_is_let_go(self) -> None:
        published = Published()
        gone = weakref.ref(published({"x": FLAG}).flags)
        published({"x": ON})
        published({"x": FLAG})
        published.snapshots.clear()
        gc.collect()
        assert gone() is None
        assert published.numbers() == [3, 2, 1]

    def test_an_old_flag_does_not_keep_its_document(self) -> None:
        """A rule is a slice of a text: of the whole document, if nobody takes care."""
        published = Published()
        published({"x": FLAG})
        tracemalloc.start()
        try:
            for n in range(10):
                rule = {"if": [{"==": [{"var": "tier"}, n]}, "on"]}
                published({"x": {**FLAG, "targeting": rule}}, comment="x" * 1_000_000)
            published.snapshots.clear()
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < 3_000_000


class TestWeight:
    """Flags that change share nothing, so few snapshots of very many changing flags are kept."""

    def test_flags_that_stay_cost_nothing(self) -> None:
        published = Published(free=0)
        many = {f"f{n}": FLAG for n in range(500)}
        for n in range(10):
            published({**many, f"f{n}": ON})
        assert len(published.numbers()) == 10
        assert [entry.weight for entry in published.history.entries()] == [0] + [3] * 9

    def test_flags_that_all_change_are_kept_once(self) -> None:
        published = Published(free=0)
        for n in range(10):
            published({f"f{n}": FLAG for n in range(500)}, metadata={"v": n})
        assert published.numbers() == [10, 9]

    def test_some_are_free(self) -> None:
        published = Published(free=2000)
        for n in range(10):
            published({f"f{n}": FLAG for n in range(500)}, metadata={"v": n})
        assert len(published.numbers()) == 6

    def test_the_current_one_is_always_kept(self) -> None:
        published = Published(free=0)
        published({f"f{n}": FLAG for n in range(500)})
        published({})
        assert published.numbers() == [2]


class TestChanges:
    def test_each_knows_what_it_changed_even_if_the_one_before_is_gone(self) -> None:
        published = Published(2)
        published({"a": FLAG, "b": FLAG})
        published({"b": ON, "c": FLAG})
        published({"b": ON, "c": FLAG, "d": {"variants": 1}})
        newest, oldest = published.history.entries()
        assert (str(newest.changes), newest.changes.keys) == ("no flag changed", ())
        assert (str(oldest.changes), oldest.changes.keys) == ("1 added, 1 removed, 1 changed", ("a", "b", "c"))

    def test_the_first_adds_everything_and_only_some_keys_are_told(self) -> None:
        published = Published()
        published({f"f{n:02}": FLAG for n in range(50)})
        (entry,) = published.history.entries()
        assert (entry.changes.added, entry.changes.keys[-1], len(entry.changes.keys)) == (50, "f09", 10)

    def test_of_several_sources_what_is_in_force_counts(self) -> None:
        history = SnapshotHistory(5)
        low, high = wigwag.load({"flags": {"x": FLAG}}, source="low"), wigwag.load({"flags": {"x": ON}}, source="high")
        other = wigwag.load({"flags": {"x": {**FLAG, "state": "DISABLED"}}}, source="low")
        for number, sets in enumerate(([low, high], [other, high], [other]), 1):
            history.add(Snapshot(wigwag.merge(sets), number=number))
        assert [str(entry.changes) for entry in history.entries()] == ["1 changed", "no flag changed", "1 added"]


def test_a_history_has_what_is_published_until_the_end() -> None:
    history = SnapshotHistory(5)
    snapshots = Broadcast(Snapshot(wigwag.load({"flags": {}}), extent="none"))
    history.follow(snapshots)
    assert history.entries() == ()
    snapshots.publish(Snapshot(wigwag.load({"flags": {"x": FLAG}}), number=1))
    assert history.find("current") is snapshots.value
    snapshots.end(stopping())
    assert len(history.entries()) == 1
