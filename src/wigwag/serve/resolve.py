"""How every surface evaluates: one flag of a selection, marked with its age where that is asked for, and counted.

There is one such way, so the same context and snapshot give the same result whatever protocol asks. An answer from a
source that is stale says so by its reason; what it says otherwise does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping

    from wigwag.flags.evaluate import Budget
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import FlagType, Resolution
    from wigwag.serve.management.metrics import Recorder
    from wigwag.serve.snapshot import Snapshot

SNAPSHOT, AGE = "wigwag.snapshot", "wigwag.age"
"""What evaluation metadata has of the snapshot, if asked for: the digest of the selected flags, and the seconds since
they were known to hold. Without a selector, the digest is the snapshot's id."""


class SourceFreshness(Protocol):
    """How current the sources are."""

    stale: frozenset[Hashable]
    """The origins whose flags are too old, or from an earlier life."""

    def age(self, origin: Hashable) -> float | None:
        """Return how long ago the flags of an origin were known to hold, in seconds."""
        ...


class AlwaysFresh:
    """For flags that have no age."""

    stale: frozenset[Hashable] = frozenset()

    def age(self, origin: Hashable) -> float | None:
        return None


class Resolver:
    """Evaluates. `metadata` adds the snapshot's id and age to what answers say."""

    def __init__(self, metrics: Recorder, freshness: SourceFreshness | None = None, *, metadata: bool = False) -> None:
        self._metrics, self._freshness, self._metadata = metrics, freshness or AlwaysFresh(), metadata
        self._evaluated = metrics.evaluated

    def resolve(
        self,
        snapshot: Snapshot,
        flags: FlagSet,
        key: str,
        type: FlagType | None,
        context: Mapping[str, Any],
        budget: Budget | None = None,
    ) -> Resolution:
        """Evaluate a flag of a selection of a snapshot, and tell of the snapshot if asked to."""
        found = self.judge(snapshot, flags, key, type, context, budget)
        return self._dated(snapshot, flags, key, found) if self._metadata else found

    def judge(
        self,
        snapshot: Snapshot,
        flags: FlagSet,
        key: str,
        type: FlagType | None,
        context: Mapping[str, Any],
        budget: Budget | None = None,
    ) -> Resolution:
        """Evaluate a flag of a selection of a snapshot; flags that one request asks for together share a budget."""
        found = flags.resolve(key, type, None, context, None, budget)
        if self._freshness.stale:
            found = self._marked(snapshot, flags, key, found)
        self._evaluated(key, found)
        return found

    def judge_all(
        self, snapshot: Snapshot, flags: FlagSet, keys: Collection[str], context: Mapping[str, Any], budget: Budget
    ) -> Iterator[tuple[str, Resolution]]:
        """Evaluate flags of a selection of a snapshot as one request, each when the one before has been used."""
        stale, answers = self._freshness.stale, []
        for key, found in zip(keys, flags.resolve_all(keys, context, budget), strict=True):
            answer = key, self._marked(snapshot, flags, key, found) if stale else found
            answers.append(answer)
            yield answer
        self._metrics.evaluated_all(answers)

    def _marked(self, snapshot: Snapshot, flags: FlagSet, key: str, found: Resolution) -> Resolution:
        """Return a resolution as a stale one if its source is."""
        stale = found.variant is not None and self._origin(snapshot, flags, key) in self._freshness.stale
        return snapshot.stale(found) if stale else found

    def told(self, snapshot: Snapshot, flags: FlagSet) -> dict[str, Any]:
        """Return what an answer about many flags tells of their snapshot: its id, and the age of the oldest part."""
        if not self._metadata:
            return {}
        ages = [age for origin in snapshot.origins(flags) if (age := self._freshness.age(origin)) is not None]
        return _told(snapshot, flags, max(ages, default=None))

    def encoded(self, snapshot: Snapshot, form: str, found: Resolution, encode: Callable[[Resolution], bytes]) -> bytes:
        """Return a resolution in a form, encoded once for as long as it stays the same."""
        return encode(found) if self._metadata else snapshot.encoded(form, found, encode)

    def _origin(self, snapshot: Snapshot, flags: FlagSet, key: str) -> Hashable:
        flag = flags.flag(key)
        return snapshot.origin(flag) if flag else None

    def _dated(self, snapshot: Snapshot, flags: FlagSet, key: str, found: Resolution) -> Resolution:
        told = _told(snapshot, flags, self._freshness.age(self._origin(snapshot, flags, key)))
        return replace(found, metadata={**found.metadata, **told})


def _told(snapshot: Snapshot, flags: FlagSet, age: float | None) -> dict[str, Any]:
    """Of the selected flags only: who may see them may not know when those of others change."""
    return {SNAPSHOT: snapshot.version_of(flags)} | ({} if age is None else {AGE: round(age, 3)})
