"""`Objects`: what a watch publishes. All objects at one moment, immutable, and what has changed since another moment.

    ObjectStore ──change──▶ ChangeJournal: the keys of the last changes, in order ◀──shared── Objects, at edition n

Each change of a store has a number, its edition, and a mapping knows the edition that it was taken at. The keys that
changed between two mappings of one store are therefore the journal's entries between their editions, however many
mappings a slow reader has skipped. That costs what has changed, not what there is.

The journal holds keys only, so it keeps no old mapping alive, and only the last ones. The hard case is a mapping that
it does not reach back to, or one of another store (a watch that was opened again): these two are compared as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView

    from wigwag.kube.watch.decode import Key

T = TypeVar("T")
MOST_CHANGES = 10_000
"""How many changes a journal remembers."""


class ChangeJournal:
    """The keys of the last changes of a store."""

    __slots__ = ("_keys", "edition")

    def __init__(self, most: int = MOST_CHANGES) -> None:
        self._keys: deque[Key] = deque(maxlen=most)
        self.edition = 0
        """How many changes there have been."""

    def add(self, key: Key) -> None:
        """Note that an object was added, updated or deleted."""
        self._keys.append(key)
        self.edition += 1

    def between(self, one: int, other: int) -> set[Key] | None:
        """Return the keys that changed between two editions; None if the journal does not reach back so far."""
        first, last = sorted((one, other))
        if first < self.edition - len(self._keys):
            return None
        return set(islice(reversed(self._keys), self.edition - last, self.edition - first))


class Objects(Mapping["Key", T]):
    """The objects of a watch by namespace and name. Compares with other mappings as a dictionary does.

    >>> journal = ChangeJournal()
    >>> one = Objects({("a", "x"): 1}, journal)
    >>> journal.add(("a", "y"))
    >>> two = Objects({("a", "x"): 1, ("a", "y"): 2}, journal)
    >>> two.changed_since(one), two == {("a", "x"): 1, ("a", "y"): 2}
    ({('a', 'y')}, True)
    """

    __slots__ = ("_edition", "_journal", "_objects")

    def __init__(self, objects: Mapping[Key, T], journal: ChangeJournal | None = None) -> None:
        """`journal` is that of the store, which must not change between two mappings without an entry."""
        self._objects = dict(objects)
        self._journal = journal or ChangeJournal()
        self._edition = self._journal.edition

    def changed_since(self, before: Mapping[Key, T] | None) -> set[Key]:
        """Return the keys that were added, updated or deleted since an earlier mapping; all, if there was none."""
        if before is None:
            return set(self._objects)
        keys: Iterable[Key] | None = None
        if isinstance(before, Objects) and before._journal is self._journal:
            keys = self._journal.between(before._edition, self._edition)
        if keys is None:
            keys = self._objects.keys() | before.keys()
        now, then = self._objects.get, before.get
        return {key for key in keys if now(key) is not then(key) and now(key) != then(key)}

    def __getitem__(self, key: Key) -> T:
        return self._objects[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def __eq__(self, other: object) -> bool:
        return self._objects == (other._objects if isinstance(other, Objects) else other)

    __hash__ = None  # type: ignore[assignment]  # it compares by content, which need not be hashable

    def __repr__(self) -> str:
        return f"Objects({self._objects!r})"

    # Not by the methods of `Mapping`, which call `__getitem__` for every object:

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def get(self, key: Key, default: Any = None) -> Any:
        return self._objects.get(key, default)

    def keys(self) -> KeysView[Key]:
        return self._objects.keys()

    def values(self) -> ValuesView[T]:
        return self._objects.values()

    def items(self) -> ItemsView[Key, T]:
        return self._objects.items()
