"""One published state of all flags, and of the facts that rules see beside the context, with a number and an id.

A request reads the current snapshot once and works on that alone, so no answer ever mixes two configurations. What is
costly to make from a snapshot (a selection, an encoded document) is made once and kept with it.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from wigwag.errors import SelectorError
from wigwag.flags.model import STALE
from wigwag.flags.selector import FLAG_SET, Selector

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from wigwag.flags.flag import Flag
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Resolution
    from wigwag.flags.parse import Layer
    from wigwag.serve.management.metrics import Tallies

T = TypeVar("T")
Extent: TypeAlias = Literal["none", "part", "whole"]
"""How much of what is wanted is known: nothing yet, the flags of some sources, or those of all that are required."""
_NOTHING: dict[str, Any] = {}
LONGEST_SELECTOR = 1024


class Snapshot:
    """Immutable, but for what it remembers of its own content."""

    __slots__ = (
        "_kept",
        "_origins",
        "_stale",
        "extent",
        "facts",
        "flags",
        "forms",
        "number",
        "published",
        "tallies",
    )

    def __init__(
        self,
        flags: FlagSet,
        *,
        number: int = 0,
        published: float = 0.0,
        origins: tuple[Hashable, ...] = (),
        facts: Mapping[str, Any] | None = None,
        extent: Extent = "whole",
    ) -> None:
        """`origins` has where each layer of the flags came from; `facts` are attributes laid over every context."""
        self.flags, self.number, self.published, self._origins = flags, number, published, origins
        self.facts, self.extent = facts or _NOTHING, extent
        self._kept: dict[tuple[str, Hashable], Any] = {}
        self.forms: defaultdict[str, dict[int, tuple[Resolution, bytes]]] = defaultdict(dict)
        """The resolutions that are encoded so far, by form and by their id."""
        self._stale: dict[int, tuple[Resolution, Resolution]] = {}
        self.tallies: Tallies = {}
        """Where its resolutions are counted: filled by the one recorder of the process."""

    @property
    def id(self) -> str:
        """The digest of the flags, and of the facts if there are any."""
        return self.version("")

    def version(self, selector: str) -> str:
        """Return what tells whether answers about a selection may differ: the digest of its flags and of the facts."""
        return self.version_of(self.select(selector))

    def version_of(self, flags: FlagSet) -> str:
        """Return the same for flags that were selected already."""
        return self.keep("", ("version", flags.id), lambda: _digest([flags.id, self.facts])) if self.facts else flags.id

    def select(self, selector: str) -> FlagSet:
        """Return the flags that a selector names; raises `SelectorError`."""
        return self.keep(selector, "select", lambda: self._selected(selector)) if selector else self.flags

    def _selected(self, selector: str) -> FlagSet:
        return self.flags.select(selector) if self._matches(selector) else self.flags.nothing(selector)

    def _matches(self, selector: str) -> bool:
        """Return whether a selector names anything that exists; others are made up by clients, and not cached."""
        if len(selector) > LONGEST_SELECTOR:
            raise SelectorError(f"a selector has at most {LONGEST_SELECTOR} characters")
        wanted = Selector.parse(selector)
        sets, sources = self.keep("", "names", lambda: _names(self.flags))
        return wanted.value in (sets if wanted.key == FLAG_SET else sources)

    def origin(self, flag: Flag) -> Hashable:
        """Return where a flag came from."""
        origins = [origin for origin, layer in self.layers() if layer.flag(flag.set_id, flag.key) is not None]
        return origins[-1] if origins else None

    def origins(self, flags: FlagSet) -> frozenset[Hashable]:
        """Return where the flags of a selection came from."""
        if flags is self.flags:
            return frozenset(origin for origin, _ in self.layers())
        return self.keep("", ("origins", flags.id), lambda: frozenset(map(self.origin, flags.flags())))

    def layers(self) -> Iterator[tuple[Hashable, Layer]]:
        """Return each layer of the flags with where it came from; two may have the same name."""
        return zip(self._origins, self.flags.layers, strict=False)

    def stale(self, result: Resolution) -> Resolution:
        """Return a resolution that has a variant as one from a stale source: the same object each time."""
        kept = self._stale.get(id(result))
        if kept is None:
            kept = self._stale[id(result)] = result, replace(result, reason=STALE)
        return kept[1]

    def encoded(self, form: str, result: Resolution, encode: Callable[[Resolution], bytes]) -> bytes:
        """Return a resolution in a form, encoded once if it has a variant: those are prepared, and few."""
        if result.variant is None:
            return encode(result)
        encoded = self.forms[form]
        kept = encoded.get(id(result))
        if kept is None:
            # With the resolution itself, so that no other object can have its id.
            kept = encoded[id(result)] = result, encode(result)
        return kept[1]

    def keep(self, selector: str, form: Hashable, make: Callable[[], T]) -> T:
        """Return what was made of a selection before, or make it now, and keep it unless the selector is made up."""
        key = selector, form
        value = self._kept.get(key)
        if value is None:
            value = make()
            if not selector or self._matches(selector):
                self._kept[key] = value
        return value


def _digest(value: Any) -> str:
    return blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=16).hexdigest()


def _names(flags: FlagSet) -> tuple[frozenset[str], frozenset[str]]:
    """Return the flag sets and the sources that there are."""
    sets = frozenset(set_id for set_id, members in flags.sets.items() if members)
    return sets, frozenset(layer.setting.source for layer in flags.layers)
