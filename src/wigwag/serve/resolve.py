"""Evaluation for every protocol: one flag of a selection, with its age in the metadata if you want that, and counted.

All protocols evaluate here, so the same context and snapshot give the same result in each of them. The reason of an
answer from a stale source is STALE; its value stays the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from wigwag.flags.evaluate import Budget
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import FlagType, Resolution
    from wigwag.serve.management.metrics import Recorder
    from wigwag.serve.snapshot import Snapshot

SNAPSHOT, AGE = "wigwag.snapshot", "wigwag.age"
"""Keys of the metadata of evaluations (`--response-metadata`): the digest of the selected flags, and the seconds since
they were known to hold. Without a selector, the digest is the snapshot's id."""


class SourceFreshness(Protocol):
    """How current the sources are."""

    stale: frozenset[Hashable]
    """The origins whose flags are too old, or were restored from a file."""

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
        """Evaluate a flag of a selection of a snapshot; flags that one request asks for together share a budget."""
        result = flags.resolve(key, type, None, context, None, budget)
        if self._freshness.stale:
            result = self._marked(snapshot, flags, key, result)
        self._evaluated(key, result, snapshot.tallies)
        return self._dated(snapshot, flags, key, result) if self._metadata else result

    def resolve_all(
        self, snapshot: Snapshot, flags: FlagSet, keys: tuple[str, ...], context: Mapping[str, Any], budget: Budget
    ) -> list[Resolution]:
        """Evaluate flags as one request."""
        results = flags.resolve_all(keys, context, budget)
        if self._freshness.stale:
            pairs = zip(keys, results, strict=True)
            results = [self._marked(snapshot, flags, key, result) for key, result in pairs]
        self._metrics.evaluated_all(keys, results, snapshot.tallies)
        return results

    def _marked(self, snapshot: Snapshot, flags: FlagSet, key: str, result: Resolution) -> Resolution:
        """Return a resolution as a stale one if its source is."""
        stale = result.variant is not None and self._origin(snapshot, flags, key) in self._freshness.stale
        return snapshot.stale(result) if stale else result

    def snapshot_metadata(self, snapshot: Snapshot, flags: FlagSet) -> dict[str, Any]:
        """Return the metadata of an answer about many flags: the snapshot's id, and the age of the oldest part."""
        if not self._metadata:
            return {}
        ages = [age for origin in snapshot.origins(flags) if (age := self._freshness.age(origin)) is not None]
        return _metadata_of(snapshot, flags, max(ages, default=None))

    def encoded(
        self, snapshot: Snapshot, form: str, result: Resolution, encode: Callable[[Resolution], bytes]
    ) -> bytes:
        """Return a resolution in a form, encoded once for as long as it stays the same."""
        return encode(result) if self._metadata else snapshot.encoded(form, result, encode)

    def _origin(self, snapshot: Snapshot, flags: FlagSet, key: str) -> Hashable:
        flag = flags.flag(key)
        return snapshot.origin(flag) if flag else None

    def _dated(self, snapshot: Snapshot, flags: FlagSet, key: str, result: Resolution) -> Resolution:
        metadata = _metadata_of(snapshot, flags, self._freshness.age(self._origin(snapshot, flags, key)))
        return replace(result, metadata={**result.metadata, **metadata})


def _metadata_of(snapshot: Snapshot, flags: FlagSet, age: float | None) -> dict[str, Any]:
    """Only of the selected flags: a client that may see them must not learn when others change."""
    return {SNAPSHOT: snapshot.version_of(flags)} | ({} if age is None else {AGE: round(age, 3)})
