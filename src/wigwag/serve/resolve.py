"""How every surface evaluates: one flag of a selection, marked with its age where that is asked for, and counted.

There is one such way, so the same context and snapshot give the same result whatever protocol asks. An answer from a
source that is stale says so by its reason; what it says otherwise does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Resolution
    from wigwag.serve.metrics import Recorder
    from wigwag.serve.snapshot import Snapshot

SNAPSHOT, AGE = "wigwag.snapshot", "wigwag.age"
"""What evaluation metadata has of the snapshot, if asked for: its id, and the seconds since it was known to hold."""


class Freshness(Protocol):
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

    def __init__(self, metrics: Recorder, freshness: Freshness | None = None, *, metadata: bool = False) -> None:
        self._evaluated, self._freshness, self._metadata = metrics.evaluated, freshness or AlwaysFresh(), metadata

    def resolve(
        self, snapshot: Snapshot, flags: FlagSet, key: str, type: str | None, context: Mapping[str, Any]
    ) -> Resolution:
        """Evaluate a flag of a selection of a snapshot."""
        found = flags.resolve(key, type, None, context)
        if self._freshness.stale or self._metadata:
            found = self._marked(snapshot, flags, key, found)
        self._evaluated(key, found)
        return found

    def encoded(self, snapshot: Snapshot, form: str, found: Resolution, encode: Callable[[Resolution], bytes]) -> bytes:
        """Return a resolution in a form, encoded once for as long as it stays the same."""
        return encode(found) if self._metadata else snapshot.encoded(form, found, encode)

    def _marked(self, snapshot: Snapshot, flags: FlagSet, key: str, found: Resolution) -> Resolution:
        flag = flags.flag(key)
        origin = snapshot.origin(flag) if flag else None
        if origin in self._freshness.stale and found.variant is not None:
            found = snapshot.stale(found)
        if not self._metadata:
            return found
        age = self._freshness.age(origin)
        told = {SNAPSHOT: snapshot.id} | ({} if age is None else {AGE: round(age, 3)})
        return replace(found, metadata={**found.metadata, **told})
