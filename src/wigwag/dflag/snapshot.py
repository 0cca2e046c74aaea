"""All values of a flag set at one moment, and pinning one for the length of a request.

A flag set replaces its snapshot as a whole, so whoever holds one sees one generation, whatever happens meanwhile.
`flag.get()` is always the newest value, and two of them may be from two generations; `flag()` is the value as of the
snapshot that is pinned here, if one is. What is pinned is a matter of the context (`contextvars`): it goes with a task
and its children, and never leaks into another request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.origin import Held

T = TypeVar("T")


class Snapshot(Mapping[str, Any]):
    """The values of one generation, by name, or by flag for those who want the type. Aliases are found, too."""

    __slots__ = ("_aliases", "_held", "generation")

    def __init__(self, generation: int, held: Mapping[str, Held[Any]], aliases: Mapping[str, str]) -> None:
        self.generation = generation
        self._held, self._aliases = held, aliases

    @overload
    def __getitem__(self, key: DynFlag[T]) -> T: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        return self.held(key).value

    def held(self, key: DynFlag[T] | str) -> Held[T]:
        """Return a value with where it comes from."""
        name = key if isinstance(key, str) else key.name
        return self._held[self._aliases.get(name, name)]

    def find(self, name: str) -> Held[Any] | None:
        """Return the value of a flag by its first name, if the flag is in here."""
        return self._held.get(name)

    def replacing(self, generation: int, held: Mapping[str, Held[Any]]) -> Snapshot:
        """Return the next snapshot, with some other values."""
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
"""By the flag set itself and not its `id`: a context may outlive a set, and its number would go to another."""


def pinned_for(owner: object) -> Snapshot | None:
    """Return the snapshot of a flag set that is pinned here."""
    found = _pinned.get(None)
    return None if found is None else found.get(owner)


@contextmanager
def pinning(owner: object, snapshot: Snapshot) -> Iterator[Snapshot]:
    """Pin a snapshot of a flag set here."""
    token = _pinned.set({**_pinned.get({}), owner: snapshot})
    try:
        yield snapshot
    finally:
        _pinned.reset(token)
