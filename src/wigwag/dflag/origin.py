"""Where a value comes from, and which of several values applies.

A flag keeps one value for each slot that was set: its default, a file, an environment variable, each mounted directory,
the command line, the program, an override. Precedence decides which of them applies, not time. So when a value goes (a
key is removed from a ConfigMap, an override expires), the next one applies again. In the original the last writer wins;
that order is available, too.
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
    """Where a value can come from, from the weakest to the strongest.

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


PRECEDENCE = tuple(Origin)
"""From the weakest to the strongest."""
LAST_WRITER = (Origin.DEFAULT,)
"""As in the original: the value that was set last applies. Overrides of tests are still the strongest."""


class Slot(NamedTuple):
    """A source of values: a flag has at most one value for each."""

    origin: Origin
    place: str = ""
    """Which file, variable or directory."""
    position: int = 0
    """Among slots of the same origin, the highest wins."""


@dataclass(frozen=True, slots=True, repr=False)
class Held(Generic[T]):
    """A value, and its origin."""

    value: T
    slot: Slot
    generation: int
    """The generation of the flag set in which it was set."""
    at: float
    """When it was set, in seconds since 1970."""
    until: float | None = None
    """When it expires, on the monotonic clock."""
    part: str = ""
    """Which value it is, in a place with more than one: `app.yaml#db.size`."""
    secret: bool = False
    """Whether it is hidden."""

    @property
    def origin(self) -> Origin:
        """Where it comes from."""
        return self.slot.origin

    @property
    def place(self) -> str:
        """The file, variable or directory it comes from, with the key in a document of many values.

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
    """Return an order of origins, from the weakest to the strongest; `UsageError` if it is not one.

    >>> ranked([Origin.FILE, Origin.FILE])
    Traceback (most recent call last):
    wigwag.errors.UsageError: precedence: 'file' is there twice
    """
    order = tuple(precedence)
    for position, origin in enumerate(order):
        if not isinstance(origin, Origin):
            raise UsageError(f"precedence: {origin!r} is no Origin")
        if origin in order[:position]:
            raise UsageError(f"precedence: {origin.value!r} is there twice")
    for origin, wanted, rank in ((Origin.DEFAULT, 0, "first"), (Origin.TEST, len(order) - 1, "last")):
        if origin in order and order.index(origin) != wanted:
            raise UsageError(f"precedence: {origin.value!r} always is {rank}: put it there, or leave it out")
    return order


def strongest(held: Iterable[Held[T]], precedence: Sequence[Origin]) -> Held[T]:
    """Return the value that applies; the last one, among those whose origin has no rank.

    A default is the weakest and the override of a test the strongest, whether they have a rank or not.

    >>> low, high = Held(1, Slot(Origin.DEFAULT), 0, 0.0), Held(2, Slot(Origin.FILE, "a"), 1, 0.0)
    >>> strongest([high, low], PRECEDENCE).value
    2
    """
    unranked = len(precedence)
    ranks = {origin: rank for rank, origin in enumerate(precedence)} | {Origin.DEFAULT: -1, Origin.TEST: unranked + 1}

    def strength(one: Held[T]) -> tuple[int, int, int]:
        rank, position, generation = ranks.get(one.slot.origin, unranked), one.slot.position, one.generation
        return (unranked, generation, position) if rank == unranked else (rank, position, generation)

    return max(held, key=strength)
