"""Specs, and what a watcher of one yields.

A spec is a frozen record and is its own key: equal specs are one watch, and when a spec goes, its state goes. A watcher
is an async generator of *whole* values, so a late, repeated or missing value is not wrong, only older. It may raise or
end at any time: the pipeline restarts it.

The hard case is a watcher that has nothing to show but must not be restarted, because it is what will notice the
recovery: a file that does not exist yet. It yields `Unavailable`. That changes nothing but the status; it is never
taken for an empty value. A watcher that has checked and seen the same as before yields `UNCHANGED`: its value is then
as fresh as if it had come again, and need not be compared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

S = TypeVar("S", bound=Hashable)
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Wanted(Generic[S]):
    """A spec, and how long the first snapshot waits for it.

    >>> Wanted("a") == Wanted("a", required=True, grace=None)
    True
    """

    spec: S
    required: bool = True
    """Whether the first snapshot waits for this watch to answer."""
    grace: float | None = None
    """Seconds after which the first snapshot waits no longer; None: it waits for ever."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Instead of a value: why there is none at present, while the watcher goes on looking."""

    reason: str

    @classmethod
    def of(cls, error: BaseException) -> Unavailable:
        """Return the reason of an error."""
        return cls(describe(error))


@dataclass(frozen=True, slots=True)
class Restored(Generic[V_co]):
    """A value from before this process, to go on with until its watch answers."""

    value: V_co
    age: float
    """Seconds since it was last known to hold."""


@dataclass(frozen=True, slots=True)
class Urgent(Generic[V_co]):
    """A value that must not wait: the pipeline publishes a snapshot with it at once, whatever its limiter says."""

    value: V_co


class Unchanged(Enum):
    """Instead of a value: the watcher has just seen that the one before still holds."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED


def describe(error: BaseException) -> str:
    """Return one line about an error.

    >>> describe(FileNotFoundError(2, "No such file or directory", "/flags.json"))
    'FileNotFoundError: /flags.json: No such file or directory'
    >>> describe(ValueError("bad"))
    'ValueError: bad'
    """
    name = type(error).__name__
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{name}: {error.filename}: {error.strerror}"
    return f"{name}: {error}".removesuffix(": ")


Watcher: TypeAlias = Callable[[S], AsyncIterator[V | Unavailable | Unchanged]]


def cause(error: BaseException) -> BaseException:
    """Return what went wrong first, out of the groups that tasks wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
