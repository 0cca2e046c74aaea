"""The last snapshots that were published, to look at, to evaluate on and to compare.

A snapshot that is no longer current is kept as little more than a row of references: flags that did not change are the
same objects in all of them, so a hundred thousand flags cost a few megabytes per snapshot, not fifty. What it
remembered of itself (tables, encoded answers, documents) goes. It is made whole again when somebody asks for it.

The hard case is a change of every flag, which shares nothing. So old flags that nothing else needs are counted, and
there are hardly ever more of them than flags in force: all of the past costs about as much as the present.

An id may come back (A, B, A): a name means the newest snapshot that has it.
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wigwag.errors import UsageError
from wigwag.flags.digests import changed
from wigwag.flags.document import read
from wigwag.flags.flagset import FlagSet
from wigwag.flags.model import Limits, few
from wigwag.flags.parse import Layer
from wigwag.serve.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from wigwag.flags.digests import Pairs
    from wigwag.flags.flag import DocumentDefaults, Flag
    from wigwag.flags.model import Finding
    from wigwag.pipeline.broadcast import Broadcast

SHORTEST = 6
"""Characters of an id that are enough, if no other id begins with them."""
FREE = 10_000
"""Old flags that may be kept however few are in force: some twenty megabytes."""
_REFERENCES = 256
"""How many references to flags weigh as much as a flag."""
_FIRST = 10


class SnapshotChanges(Struct, frozen=True):
    """What a snapshot has changed: how many flags, and the keys of the first."""

    added: int
    removed: int
    changed: int
    keys: tuple[str, ...]

    def __str__(self) -> str:
        counts = ((self.added, "added"), (self.removed, "removed"), (self.changed, "changed"))
        return ", ".join(f"{count} {what}" for count, what in counts if count) or "no flag changed"


class Row:
    """The flags of each layer, in a row, and what they need to be a layer again."""

    __slots__ = ("_clock", "_layers")

    def __init__(self, flags: FlagSet) -> None:
        self._clock: Callable[[], float] = flags.clock
        self._layers: tuple[tuple[DocumentDefaults, tuple[Finding, ...], tuple[Flag, ...]], ...] = tuple(
            (layer.setting, layer.problems, tuple(layer.flags())) for layer in flags.layers
        )

    def __len__(self) -> int:
        return sum(len(flags) for _, _, flags in self._layers)

    def flags(self, id: str) -> FlagSet:
        """Make them whole. The documents are gone, and with them what only they can tell, such as repeated members."""
        nothing = read(b'{"flags":{}}', Limits())
        layers = [Layer(setting, _sets(flags), problems, nothing) for setting, problems, flags in self._layers]
        flag_set = FlagSet(layers, self._clock)
        flag_set.id = id  # known already, and not cheap
        return flag_set


class HistoryEntry(Struct, eq=False):
    """A snapshot that was published."""

    number: int
    id: str
    published: float
    size: int
    changes: SnapshotChanges
    """Against the one before it, whether that is still kept or not."""
    row: Row
    weight: int = 0
    """How many flags are kept for this one alone."""
    facts: Mapping[str, Any] = {}
    flags_id: str = ""
    touched: frozenset[tuple[str, str]] = frozenset()
    """Flag set and key of all that it changed; nothing for the first, in which all are new."""


class SnapshotHistory:
    """At most so many snapshots, the newest first."""

    def __init__(self, most: int, free: int = FREE) -> None:
        self.most, self._free = most, free
        self._entries: deque[HistoryEntry] = deque()
        self._current: Snapshot | None = None

    def follow(self, snapshots: Broadcast[Snapshot]) -> None:
        """Add each snapshot that is published from now on, before later subscribers see it."""

        def add() -> None:
            if snapshots.error is None:
                self.add(snapshots.value)

        snapshots.subscribe(add)

    def add(self, snapshot: Snapshot) -> None:
        """Remember a snapshot that has just become the current one."""
        row, before = Row(snapshot.flags), self._current
        pairs = changed(before.flags.sets if before else {}, snapshot.flags.sets)
        changes = _changes(pairs)
        for flag, _ in pairs:
            if flag is not None:
                flag.forget()
        if before:
            last = self._entries[0]
            last.weight = _gone(before.flags, snapshot.flags, pairs) + len(last.row) // _REFERENCES
        self._entries.appendleft(
            HistoryEntry(
                snapshot.number,
                snapshot.id,
                snapshot.published,
                len(snapshot.flags),
                changes,
                row,
                facts=snapshot.facts,
                flags_id=snapshot.flags.id,
                touched=_touched(pairs) if before else frozenset(),
            )
        )
        self._current = snapshot
        while len(self._entries) > self.most or self._too_heavy():
            self._entries.pop()

    def _too_heavy(self) -> bool:
        size = len(self._entries[0].row)
        kept = sum(entry.weight for entry in self._entries)
        return len(self._entries) > 1 and kept > self._free + size + size // 4

    def entries(self) -> tuple[HistoryEntry, ...]:
        """Return all that are kept, the newest first."""
        return tuple(self._entries)

    def find(self, name: str) -> Snapshot:
        """Return a snapshot by its id, the first characters of it, its number, or as `current` or `previous`."""
        entry = self._named(name)
        if isinstance(entry, str):
            raise UsageError(f"{entry}; there is {self._listed()}")
        if self._current is not None and entry is self._entries[0]:
            return self._current
        flags = entry.row.flags(entry.flags_id)
        return Snapshot(flags, number=entry.number, published=entry.published, facts=entry.facts)

    def _named(self, name: str) -> HistoryEntry | str:
        """Return the entry that is meant, or why there is none."""
        if name in ("current", "previous"):
            place = ("current", "previous").index(name)
            return self._entries[place] if place < len(self._entries) else f"no {name} snapshot is kept"
        if name.isdecimal():
            for entry in self._entries:
                if str(entry.number) == name:
                    return entry
        starting = {entry.id: entry for entry in reversed(self._entries) if entry.id.startswith(name.lower())}
        if not starting or not name:
            return f"no snapshot {name[:64]!r} is kept"
        if len(name) < SHORTEST:
            return f"{name!r} is too short: write at least {SHORTEST} characters of an id"
        return next(iter(starting.values())) if len(starting) == 1 else f"{name!r} may mean several snapshots"

    def _listed(self) -> str:
        """Return the names of what is kept."""
        named = [f"{entry.id[:12]} (number {entry.number})" for entry in self._entries]
        return few(["current", "previous"][: len(named)] + named, 20)


def _gone(old: FlagSet, new: FlagSet, pairs: Pairs) -> int:
    """Count the flags that only the old one has, in any of its layers; `pairs`: how those in force differ."""
    if len(old.layers) == len(new.layers) == 1:
        return sum(before is not None for before, _ in pairs)  # what is in force is all there is
    there = {name: layer.sets for name, layer in _named(new)}
    gone = chain.from_iterable(changed(layer.sets, there.get(name, {})) for name, layer in _named(old))
    return sum(before is not None for before, _ in gone)


def _named(flags: FlagSet) -> Iterator[tuple[tuple[str, int], Layer]]:
    """Return the layers, each by its source, and which of that name it is: a source may be there twice."""
    seen: Counter[str] = Counter()
    for layer in flags.layers:
        seen[layer.setting.source] += 1
        yield (layer.setting.source, seen[layer.setting.source]), layer


def _changes(pairs: Pairs) -> SnapshotChanges:
    """Count what differs among the flags in force."""
    added = [now for before, now in pairs if before is None and now is not None]
    removed = [before for before, now in pairs if now is None and before is not None]
    other = [now for old, now in pairs if old is not None and now is not None and old.digest != now.digest]
    first = nsmallest(_FIRST, [(flag.set_id, flag.key) for flag in chain(added, removed, other)])
    return SnapshotChanges(len(added), len(removed), len(other), tuple(key for _, key in first))


def _touched(pairs: Pairs) -> frozenset[tuple[str, str]]:
    """Return which flags differ in content."""
    differing = (new or old for old, new in pairs if old is None or new is None or old.digest != new.digest)
    return frozenset((flag.set_id, flag.key) for flag in differing if flag is not None)


def _sets(flags: tuple[Flag, ...]) -> dict[str, dict[str, Flag]]:
    """Return flags by flag set and key, in the order in which the sets were."""
    sets: dict[str, dict[str, Flag]] = {}
    for flag in flags:
        sets.setdefault(flag.set_id, {})[flag.key] = flag
    return sets
