"""One published state of all flags, with a number and an id.

A request reads the current snapshot once and works on that alone, so no answer ever mixes two configurations. What is
costly to make from a snapshot (a selection, an encoded document) is made once and kept with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Resolution

T = TypeVar("T")
MOST_KEPT = 4096


class Snapshot:
    """Immutable, but for what it remembers of its own content."""

    __slots__ = ("_encoded", "_kept", "flags", "number", "published")

    def __init__(self, flags: FlagSet, *, number: int = 0, published: float = 0.0) -> None:
        self.flags, self.number, self.published = flags, number, published
        self._kept: dict[Hashable, Any] = {}
        self._encoded: dict[tuple[str, int], tuple[Resolution, bytes]] = {}

    @property
    def id(self) -> str:
        """The digest of the flags."""
        return self.flags.id

    def select(self, selector: str) -> FlagSet:
        """Return the flags that a selector names; raises `SelectorError`."""
        if not selector:
            return self.flags
        return self.keep(("select", selector), lambda: self.flags.select(selector))

    def encoded(self, form: str, found: Resolution, encode: Callable[[Resolution], bytes]) -> bytes:
        """Return a resolution in a form, encoded once if it has a variant: those are prepared, and few."""
        if found.variant is None:
            return encode(found)
        key = form, id(found)
        kept = self._encoded.get(key)
        if kept is None:
            kept = self._encoded[key] = found, encode(found)  # with the resolution itself, so that its id stays its own
        return kept[1]

    def keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what was made before under this key, or make it now. Clients that choose keys cannot fill memory."""
        found = self._kept.get(key)
        if found is None:
            found = make()
            if len(self._kept) < MOST_KEPT:
                self._kept[key] = found
        return found
