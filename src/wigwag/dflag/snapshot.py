"""All values of a flag set at one moment, and pinning one for the length of a request.

A flag set replaces its snapshot as a whole, so a snapshot has one generation. `flag.get()` is the newest value,
and two calls may return values of two generations; `flag()` is the value in the pinned snapshot, if there is one. The
pin is a context variable: tasks inherit it, and other requests do not see it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from wigwag.dflag.origin import Held

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class SnapshotKey(Protocol[T_co]):
    """A flag, as a key of a snapshot: it gives the name and the type of the value."""

    @property
    def name(self) -> str: ...
    def get(self) -> T_co: ...


class Snapshot(Mapping[str, Any]):
    """The values of one generation, by name or alias, or by flag, which keeps the type."""

    __slots__ = ("_aliases", "_held", "generation")

    def __init__(self, generation: int, held: Mapping[str, Held[Any]], aliases: Mapping[str, str]) -> None:
        self.generation = generation
        self._held, self._aliases = held, aliases

    @overload
    def __getitem__(self, key: SnapshotKey[T]) -> T: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        return self.held(key).value

    def held(self, key: SnapshotKey[T] | str) -> Held[T]:
        """Return a value with its origin."""
        name = key if isinstance(key, str) else key.name
        return self._held[self._aliases.get(name, name)]

    def find(self, name: str) -> Held[Any] | None:
        """Return the value of a flag by its first name, or None if the snapshot does not have it."""
        return self._held.get(name)

    def replacing(self, generation: int, held: Mapping[str, Held[Any]]) -> Snapshot:
        """Return the next snapshot, with some values replaced."""
        return Snapshot(generation, {**self._held, **held}, self._aliases)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in order, without aliases."""
        return iter(sorted(self._held))

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: object) -> bool:
        name = key if isinstance(key, str) else getattr(key, "name", "")
        return self._aliases.get(name, name) in self._held

    def __repr__(self) -> str:
        return f"<Snapshot of generation {self.generation}: {len(self)} flags>"


_pinned: ContextVar[Mapping[object, Snapshot]] = ContextVar("wigwag.dflag.pinned")
"""By the flag set itself, not its `id`: a context may outlive the set, and the id would be reused."""


def pinned_for(owner: object) -> Snapshot | None:
    """Return the snapshot of a flag set that is pinned in this context."""
    pinned = _pinned.get(None)
    return None if pinned is None else pinned.get(owner)


@contextmanager
def pinning(owner: object, snapshot: Snapshot) -> Iterator[Snapshot]:
    """Pin a snapshot of a flag set in this context."""
    token = _pinned.set({**_pinned.get({}), owner: snapshot})
    try:
        yield snapshot
    finally:
        _pinned.reset(token)
