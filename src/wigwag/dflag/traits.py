"""What a flag is besides its kind and default; `define.FlagOptions` is the same for those who define one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


def stripped(text: str) -> str:
    """Return a text without the white space around it: a file ends with a newline, a number does not."""
    return text.strip()


def one_or_many(validators: Sequence[Callable[[T], object]] | Callable[[T], object]) -> Sequence[Callable[[T], object]]:
    """Return validators as a list, though it is one that was given."""
    return (validators,) if callable(validators) else validators


@dataclass(frozen=True, slots=True)
class Traits(Generic[T]):
    """What a flag is besides its kind and default."""

    dynamic: bool = True
    """Whether it may change while the program runs."""
    aliases: Sequence[str] = ()
    """More names for the same value."""
    validators: Sequence[Callable[[T], object]] = ()
    """Each may refuse a value, by raising ValueError or returning False."""
    input_mutator: Callable[[str], str] | None = stripped
    """Changes a text before it is read; None takes it verbatim."""
    mutator: Callable[[T], T] | None = None
    """Changes a value before it is judged."""
    secret: bool = False
    """Whether its value must not be shown."""
    path_flag: str | None = None
    """The default of a companion flag `<name>_path` that names a file to read the value from."""

    def __post_init__(self) -> None:
        """Take one validator, or one alias, for a list of one: a text would be taken for a list of letters."""
        object.__setattr__(self, "validators", one_or_many(self.validators))
        if isinstance(self.aliases, str):
            object.__setattr__(self, "aliases", (self.aliases,))
