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

from wigwag.errors import UsageError

T = TypeVar("T")
HIDDEN = "(secret)"


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


@dataclass(frozen=True, slots=True, repr=False)
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
    part: str = ""
    """Where in its place it stands, if that holds more than one value: `app.yaml#db.size`."""
    secret: bool = False
    """Whether it must not be shown."""

    @property
    def origin(self) -> Origin:
        """The sort of place it comes from."""
        return self.slot.origin

    @property
    def place(self) -> str:
        """Which file, variable or directory it comes from; of a value in a document of many, which one there.

        >>> Held(3, Slot(Origin.CONFIGMAP, "/etc/dflag"), 1, 0.0, part="app.yaml#db.size").place
        '/etc/dflag/app.yaml#db.size'
        """
        return f"{self.slot.place}/{self.part}" if self.part else self.slot.place

    def __str__(self) -> str:
        return f"{self.origin.value} {self.place}".rstrip()

    def __repr__(self) -> str:
        value = HIDDEN if self.secret else repr(self.value)
        ending = "" if self.until is None else f", until={self.until!r}"
        return f"<Held {value} from {self}, generation={self.generation}, at={self.at!r}{ending}>"


def ranked(precedence: Sequence[Origin]) -> tuple[Origin, ...]:
    """Return an order of origins, from the weakest to the strongest, if it is one.

    >>> ranked([Origin.FILE, Origin.FILE])
    Traceback (most recent call last):
    wigwag.errors.UsageError: precedence: 'file' is there twice
    """
    found = tuple(precedence)
    for place, origin in enumerate(found):
        if fault := _misplaced(origin, place, found):
            raise UsageError(f"precedence: {fault}")
    return found


def _misplaced(origin: object, place: int, order: Sequence[Origin]) -> str | None:
    if not isinstance(origin, Origin):
        return f"{origin!r} is no Origin"
    if origin in order[:place]:
        return f"{origin.value!r} is there twice"
    if origin is Origin.DEFAULT and place > 0:
        return f"{origin.value!r} counts less than anything: it is first, or left out"
    if origin is Origin.TEST and place < len(order) - 1:
        return f"{origin.value!r} counts more than anything: it is last, or left out"
    return None


def strongest(held: Iterable[Held[T]], precedence: Sequence[Origin]) -> Held[T]:
    """Return the value that counts; the one that came last, among those whose origin has no rank.

    A default counts least and what a test holds most, whether they have a rank or not.

    >>> low, high = Held(1, Slot(Origin.DEFAULT), 0, 0.0), Held(2, Slot(Origin.FILE, "a"), 1, 0.0)
    >>> strongest([high, low], PRECEDENCE).value
    2
    """
    ranks = {origin: rank for rank, origin in enumerate(precedence)}
    unranked = len(ranks)

    def strength(one: Held[T]) -> tuple[int, int, int]:
        origin = one.slot.origin
        if origin is Origin.DEFAULT:
            return -1, one.slot.position, one.generation
        if origin is Origin.TEST:
            return unranked + 1, one.slot.position, one.generation
        if origin in ranks:
            return ranks[origin], one.slot.position, one.generation
        return unranked, one.generation, one.slot.position

    return max(held, key=strength)
