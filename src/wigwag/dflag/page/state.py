"""All flags at one moment: what each holds, as text, and the digests by which one moment is told from another.

Whoever lists flags sees one generation, for all is taken under the lock; it is written as text after that, and once for
each generation. Nothing here that leaves the process depends on the value of a secret flag: such a value is not in the
checksums, and a tag (for `If-Match`) has the generation of it instead. A digest of a short secret, or one that tells
whether a guess was right, would be as good as the secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.dflag.checksum import checksum
from wigwag.dflag.origin import HIDDEN, Held, Origin

if TYPE_CHECKING:
    from wigwag.dflag.flag import AnyFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.snapshot import Snapshot
    from wigwag.dflag.values.kinds import ValueKind


@dataclass(frozen=True)
class FlagState:
    """A flag at one moment."""

    flag: AnyFlag
    names: tuple[str, ...]
    held: Held[Any]
    default: Any
    overridden: bool
    """Whether there is a value that came over HTTP, whether it counts or not."""

    @property
    def name(self) -> str:
        """Its first name."""
        return self.names[0]

    @property
    def kind(self) -> ValueKind[Any]:
        """What it can hold."""
        return self.flag.kind

    @property
    def dynamic(self) -> bool:
        """Whether it may change while the program runs."""
        return self.flag.dynamic

    @property
    def secret(self) -> bool:
        """Whether its value must not be shown."""
        return self.flag.secret

    @cached_property
    def text(self) -> str:
        """The value; of a secret flag, that it is secret."""
        return written(self.flag, self.held.value)

    @cached_property
    def default_text(self) -> str:
        """The default, in the same way."""
        return written(self.flag, self.default)

    @property
    def changed(self) -> bool:
        """Whether it differs from its default; of a secret flag, whether anything was set."""
        if self.secret:
            return self.held.origin is not Origin.DEFAULT
        return self.text != self.default_text or _size(self.held.value) != _size(self.default)

    @cached_property
    def tag(self) -> str:
        """A digest of the value, by which to say which one a change is meant to replace."""
        shown = [str(self.held.generation)] if self.secret else [self.text, _size(self.held.value)]
        return _digest([self.name, *shown])


@dataclass(frozen=True)
class PageState:
    """All flags at one moment, in the order of their names."""

    snapshot: Snapshot
    entries: tuple[FlagState, ...]

    @property
    def generation(self) -> int:
        """How many changes came before."""
        return self.snapshot.generation

    @cached_property
    def checksum(self) -> str:
        """Ours, of all flags; the values of secret ones are left out, so that it tells nothing about them."""
        return checksum(self.entries)

    @cached_property
    def checksum_dynamic(self) -> str:
        """The original's, of the dynamic flags. With secret ones among them it is not what a Go program has."""
        return checksum(self.entries, "dynamic", legacy=True)

    @cached_property
    def checksum_static(self) -> str:
        """The original's, of the static flags."""
        return checksum(self.entries, "static", legacy=True)

    @cached_property
    def tag(self) -> str:
        """A digest that changes with any value."""
        return _digest(part for entry in self.entries for part in (entry.name, entry.tag))

    def find(self, flag: AnyFlag) -> FlagState:
        """Return what a flag was."""
        return next(entry for entry in self.entries if entry.flag is flag)


class PageStateCache:
    """Takes the states of a set of flags; the last one is kept while it is still true."""

    def __init__(self, flags: FlagSet) -> None:
        self._flags = flags
        self._last: PageState | None = None

    def state(self) -> PageState:
        """Return how things are."""
        last = self._last
        if last is None or last.snapshot is not self._flags.snapshot():
            self._last = last = taken(self._flags)
        return last


def taken(flags: FlagSet) -> PageState:
    """Take the state of a set of flags, while nobody changes anything."""
    found: list[PageState] = []

    def decide() -> tuple[()]:
        found.append(PageState(flags.snapshot(), tuple(map(entry, flags))))
        return ()

    flags.commit(decide)
    return found[0]


def entry(flag: AnyFlag) -> FlagState:
    """Take the state of one flag."""
    overridden = any(slot.origin is Origin.HTTP for slot in flag.layers)
    return FlagState(flag, flag.names, flag.held, flag.default, overridden)


def written(flag: AnyFlag, value: Any) -> str:
    """Return a value as text for people; of a secret flag, that it is secret."""
    if flag.secret:
        return HIDDEN
    try:
        return flag.kind.format(value)
    except Exception as error:  # noqa: BLE001 - a value's own code; one flag must not take the page down
        return f"(cannot be shown: {type(error).__name__})"


def pretty(kind: ValueKind[Any], text: str) -> str:
    """Return a text as people read it: JSON on several lines.

    >>> from wigwag.dflag.values.structured import json_kind
    >>> print(pretty(json_kind(), '{"a":1}'))
    {
      "a": 1
    }
    """
    if not kind.is_json:
        return text
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.MsgspecError, RecursionError):
        return text  # (secret), or written by somebody's own code


def _size(value: Any) -> str:
    """Return how many items there are: as the original writes them, no item and one without text are the same text."""
    return str(len(value)) if isinstance(value, list | frozenset) else ""


def _digest(parts: Iterable[str]) -> str:
    digest = sha256()
    for part in parts:
        encoded = part.encode(errors="surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()[:32]
