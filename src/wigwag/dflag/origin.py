"""Where a value comes from, and which of several values counts.

A flag keeps one value for each place that has given it one: its default, a file, a variable of the environment, each
mounted directory, the command line, the program, an override. Which of them counts is decided by precedence and not by
time, so a value that goes (a key removed from a ConfigMap, an override that runs out) uncovers the one beneath it.
The original has the last writer win; that order is to be had, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Origin(Enum):
    """The sort of place that a value comes from.

    >>> Origin.CONFIGMAP.value
    'ConfigMap'
    """

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    CONFIGMAP = "ConfigMap"
    COMMAND_LINE = "command line"
    PROGRAM = "program"
    HTTP = "HTTP override"
    TEST = "test override"


PRECEDENCE = (
    Origin.DEFAULT,
    Origin.FILE,
    Origin.ENVIRONMENT,
    Origin.CONFIGMAP,
    Origin.COMMAND_LINE,
    Origin.PROGRAM,
    Origin.HTTP,
    Origin.TEST,
)
"""From the weakest to the strongest."""
LAST_WRITER = (Origin.DEFAULT,)
"""As the original has it: whatever was set last counts, whoever set it. Tests still come last."""


class Slot(NamedTuple):
    """One place that may give a flag a value; it has at most one value for it."""

    origin: Origin
    place: str = ""
    """Which file, variable or directory."""
    position: int = 0
    """Among places of the same origin, the higher counts."""


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """A value, and where it comes from."""

    value: T
    slot: Slot
    generation: int
    """The generation of the flag set that brought it."""
    at: float
    """When it came, in seconds since 1970."""
    until: float | None = None
    """When it runs out, on the monotonic clock."""

    @property
    def origin(self) -> Origin:
        """The sort of place it comes from."""
        return self.slot.origin

    def __str__(self) -> str:
        return f"{self.origin.value} {self.slot.place}".rstrip()


def strongest(held: Iterable[Held[T]], precedence: Sequence[Origin]) -> Held[T]:
    """Return the value that counts; the one that came last, among those whose origin has no rank.

    >>> low, high = Held(1, Slot(Origin.DEFAULT), 0, 0.0), Held(2, Slot(Origin.FILE, "a"), 1, 0.0)
    >>> strongest([high, low], PRECEDENCE).value
    2
    """
    ranks = {origin: rank for rank, origin in enumerate(precedence)}
    unranked = len(ranks)

    def strength(one: Held[T]) -> tuple[int, int, int]:
        origin = one.slot.origin
        if origin is Origin.TEST:
            return unranked + 1, one.slot.position, one.generation
        if origin in ranks:
            return ranks[origin], one.slot.position, one.generation
        return unranked, one.generation, one.slot.position

    return max(held, key=strength)
