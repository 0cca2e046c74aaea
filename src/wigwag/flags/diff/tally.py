"""Who moves from which answer to which: contexts are counted, and the first of them named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from wigwag.flags.diff.comparison import Affected, Move, Shift

if TYPE_CHECKING:
    from wigwag.flags.model import Json, Resolution

MOST_LISTED = 1_000
"""Contexts that are told one by one; the moves count all of them."""
_EXAMPLES = 20


def text_of(value: Json) -> bytes:
    """Return what is the same for the same content: the order of members is none, and true is not 1."""
    return msgspec.json.encode(value, order="deterministic")


class _Count(Struct):
    """Contexts that make the same move."""

    shift: Shift
    count: int = 0
    examples: list[int] = []
    names: list[str] = []


class Tally:
    """Counts who moves from where to where."""

    def __init__(self) -> None:
        self.affected = 0
        self.listed: list[Affected] = []
        self._counts: dict[tuple[object, ...], _Count] = {}
        self._equal: dict[tuple[str, str], bool] = {}

    def alike(self, key: str, old: Resolution, new: Resolution) -> bool:
        """Tell whether two answers are the same to a client. A variant's value is compared once: it may be large."""
        if old.variant != new.variant or old.error != new.error:
            return False
        if old.variant is None:
            return True
        known = self._equal.get((key, old.variant))
        if known is None:
            known = self._equal[key, old.variant] = text_of(old.value) == text_of(new.value)
        return known

    def add(self, position: int, name: str, shifts: list[Shift]) -> None:
        if not shifts:
            return
        self.affected += any(shift.felt for shift in shifts)
        if len(self.listed) < MOST_LISTED:
            self.listed.append(Affected(position, name, tuple(shifts)))
        for shift in shifts:
            count = self._counts.setdefault(_identity(shift), _Count(shift))
            count.count += 1
            if len(count.examples) < _EXAMPLES:
                count.examples.append(position)
                count.names.append(name)

    def moves(self) -> tuple[Move, ...]:
        """Return all moves by key, the most frequent first."""
        ordered = sorted(self._counts.values(), key=lambda found: (found.shift.key, -found.count, str(found.shift)))
        return tuple(Move(c.shift, c.count, tuple(c.examples), tuple(c.names)) for c in ordered)


def _identity(shift: Shift) -> tuple[object, ...]:
    """Return what makes two shifts one move; of one side, a variant has one value."""
    return shift.key, *((side.variant, side.reason, side.error) for side in (shift.before, shift.after))
