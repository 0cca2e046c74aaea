"""How places are read and followed: what a program may choose.

A word that is not among the choices would otherwise count as one of them, and nobody would hear of it before the day
on which it matters. So they are checked where they are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal, TypeAlias

from wigwag.errors import UsageError

Unknown: TypeAlias = Literal["warn", "error", "ignore"]
CHOICES: Mapping[str, tuple[object, ...]] = {
    "on_missing": ("default", "keep", "error"),
    "unknown": ("warn", "error", "ignore"),
    "atomic": ("per_key", "all"),
    "tolerant": (False, True),
    "inotify": (False, True),
}
_SECONDS = ("poll", "poll_blind", "settle")


@dataclass(frozen=True, slots=True)
class Policy:
    """How places are read and followed.

    >>> Policy(on_missing="keep").unknown
    'warn'
    >>> Policy(atomic="none")
    Traceback (most recent call last):
    wigwag.errors.UsageError: the policy's atomic must be 'per_key' or 'all', got 'none'
    """

    on_missing: Literal["default", "keep", "error"] = "default"
    """What a key that is gone means: the flag falls back to what else there is for it, keeps its value, or keeps it and
    that is an error."""
    unknown: Unknown = "warn"
    """What a key that names no flag is."""
    atomic: Literal["per_key", "all"] = "per_key"
    """Whether a bad key spoils itself only, or all that came with it."""
    tolerant: bool = False
    """Whether to start though something is wrong; what it is can be seen in `Updater.problems`."""
    inotify: bool = True
    """Whether to be told by the kernel, or only to look."""
    poll: float = 5.0
    """How often to look though the kernel told nothing, in seconds."""
    poll_blind: float = 1.0
    """The same, where the kernel is known to tell nothing."""
    settle: float = 0.02
    """How long a file in a plain directory must be left alone if its writer does not say that it is done."""

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            check_choice(f"the policy's {name}", getattr(self, name), choices)
        for name in _SECONDS:
            given = getattr(self, name)
            wanted = "0 or more" if name == "settle" else "more than 0"
            if not _is_number(given) or given < 0 or (given == 0 and name != "settle"):
                raise UsageError(f"the policy's {name} must be a number of seconds, {wanted}; got {given!r}")


def check_choice(name: str, given: object, choices: Sequence[object]) -> None:
    """Refuse what is none of the choices; the number 1 is not True."""
    if not any(given == choice and isinstance(given, type(choice)) for choice in choices):
        *others, last = map(repr, choices)
        raise UsageError(f"{name} must be {', '.join(others)} or {last}, got {given!r}")


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and isfinite(given)
