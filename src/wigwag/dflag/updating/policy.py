"""How places are read and followed: the options of a program, which are checked when they are set."""

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
    """What happens when a key is gone: the flag falls back to its next value, keeps its value, or keeps it and there is
    an error."""
    unknown: Unknown = "warn"
    """What happens if a key names no flag."""
    atomic: Literal["per_key", "all"] = "per_key"
    """Whether a bad key is rejected alone, or with all that was read together with it."""
    tolerant: bool = False
    """Whether to start in spite of errors, which are in `Updater.problems`."""
    inotify: bool = True
    """Whether to use inotify, or only to poll."""
    poll: float = 5.0
    """Seconds between polls with inotify."""
    poll_blind: float = 1.0
    """Seconds between polls where inotify does not work."""
    settle: float = 0.02
    """Seconds without a write after which a file in a plain directory is read, if its writer does not close it."""

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            check_choice(f"the policy's {name}", getattr(self, name), choices)
        for name in _SECONDS:
            given = getattr(self, name)
            wanted = "0 or more" if name == "settle" else "more than 0"
            number = isinstance(given, int | float) and not isinstance(given, bool) and isfinite(given)
            if not number or given < 0 or (given == 0 and name != "settle"):
                raise UsageError(f"the policy's {name} must be a number of seconds, {wanted}; got {given!r}")


def check_choice(name: str, given: object, choices: Sequence[object]) -> None:
    """Raise if a value is none of the choices; the number 1 is not True."""
    if not any(given == choice and isinstance(given, type(choice)) for choice in choices):
        *others, last = map(repr, choices)
        raise UsageError(f"{name} must be {', '.join(others)} or {last}, got {given!r}")
