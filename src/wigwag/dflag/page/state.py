"""A snapshot of all flags: their values as text, and the digests that tell two snapshots apart.

A snapshot is taken under the lock of the flags, so it is of one generation; the texts are made later, once for each
generation. Nothing here that leaves the process depends on the value of a secret flag: its value is not in the
checksums, and its tag (for `If-Match`) is made from its generation. A digest of a short secret, or one that confirms a
guess, would give the secret away.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.dflag.checksum import checksum, digest
from wigwag.dflag.origin import Held, Origin

if TYPE_CHECKING:
    from wigwag.dflag.flag import AnyFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.snapshot import Snapshot
    from wigwag.dflag.values.kinds import ValueKind


@dataclass(frozen=True)
class FlagState:
    """A flag in a snapshot."""

    flag: AnyFlag
    held: Held[Any]
    default: Any
    overridden: bool
    """Whether it has an override that was set over HTTP, in force or not."""

    @cached_property
    def text(self) -> str:
        """The value; for a secret flag, a placeholder."""
        return self.flag.show(self.held.value)

    @cached_property
    def default_text(self) -> str:
        """The default; for a secret flag, a placeholder."""
        return self.flag.show(self.default)

    @property
    def changed(self) -> bool:
        """Whether it differs from its default; for a secret flag, whether it was set at all."""
        if self.flag.secret:
            return self.held.origin is not Origin.DEFAULT
        return self.text != self.default_text or _size(self.held.value) != _size(self.default)

    @cached_property
    def tag(self) -> str:
        """The entity tag of the value."""
        parts = [str(self.held.generation)] if self.flag.secret else [self.text, _size(self.held.value)]
        return _tag(self.flag.name, *parts)


@dataclass(frozen=True)
class PageState:
    """A snapshot of all flags, ordered by name."""

    snapshot: Snapshot
    entries: tuple[FlagState, ...]

    @cached_property
    def texts(self) -> list[tuple[AnyFlag, str]]:
        """The flags with their values, of which checksums are made; none depends on the value of a secret flag."""
        return [(entry.flag, entry.text) for entry in self.entries]

    @cached_property
    def checksum(self) -> str:
        """Our checksum, of all flags."""
        return checksum(self.texts)

    @cached_property
    def checksum_dynamic(self) -> str:
        """The original's checksum of the dynamic flags; with secret flags it differs from that of a Go program."""
        return checksum(self.texts, "dynamic", legacy=True)

    @cached_property
    def checksum_static(self) -> str:
        """The original's checksum of the static flags."""
        return checksum(self.texts, "static", legacy=True)

    @cached_property
    def tag(self) -> str:
        """The entity tag of all flags; it changes with any value."""
        return _tag(*(part for entry in self.entries for part in (entry.flag.name, entry.tag)))

    def find(self, flag: AnyFlag) -> FlagState:
        """Return the state of a flag."""
        return next(entry for entry in self.entries if entry.flag is flag)


class PageStateCache:
    """Takes snapshots of a flag set; the last one is reused until the flags change."""

    def __init__(self, flags: FlagSet) -> None:
        self._flags = flags
        self._last: PageState | None = None

    def state(self) -> PageState:
        """Return the current snapshot."""
        last = self._last
        if last is not None and last.snapshot is self._flags.snapshot():
            return last
        states: list[PageState] = []

        def take() -> tuple[()]:
            states.append(PageState(self._flags.snapshot(), tuple(map(flag_state, self._flags))))
            return ()

        self._flags.commit(take)  # under the lock; changes nothing
        self._last = states[0]
        return states[0]


def flag_state(flag: AnyFlag) -> FlagState:
    """Return the current state of one flag."""
    overridden = any(slot.origin is Origin.HTTP for slot in flag.layers)
    return FlagState(flag, flag.held, flag.default, overridden)


def pretty(kind: ValueKind[Any], text: str) -> str:
    """Return a text for people: JSON with indentation.

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
        return text  # a placeholder, or the text of a user's formatter


def _size(value: Any) -> str:
    """Return the number of items: the original's format is the same for no item and for one that is empty."""
    return str(len(value)) if isinstance(value, list | frozenset) else ""


def _tag(*parts: str) -> str:
    return digest(part.encode(errors="surrogatepass") for part in parts)[:32]
