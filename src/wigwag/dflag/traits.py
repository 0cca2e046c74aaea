"""The options of a flag besides its kind and default: as a definer takes them, and as the flag keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Generic, TypedDict, TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


class FlagOptions(TypedDict, Generic[T], total=False):
    """What every definer takes."""

    dynamic: bool
    """Whether it may change while the program runs; the default is True."""
    aliases: Sequence[str]
    """More names for the same value."""
    validators: Sequence[Callable[[T], object]] | Callable[[T], object]
    """One or many. Each rejects a value by raising ValueError or returning False; the default must pass, too."""
    input_mutator: Callable[[str], str] | None
    """Changes a text before it is parsed. The default strips white space; None parses the text verbatim."""
    mutator: Callable[[T], T] | None
    """Changes a value before it is validated."""
    secret: bool
    """Whether its value is hidden in logs, errors, help and on the page."""
    path_flag: str | None
    """The default of a static flag `<name>_path` that names a file to read the value from; see `load_files`."""


class MapOptions(FlagOptions[T], Generic[T], total=False):
    """What the definer of maps takes."""

    quoted: bool
    """Whether an item may be in double quotes and contain a comma."""


class ListOptions(MapOptions[T], Generic[T], total=False):
    """What the definers of lists and sets take."""

    keep_empty: bool
    """Whether the text is split at commas only, and blanks and empty items are kept, as in the original."""


_OPTIONS = """
Options of every flag:
    validators     a function of the value, or a list of them; each rejects it by raising ValueError or returning False
    dynamic        False: it changes only before start()
    aliases        more names for it
    secret         True: its value is shown nowhere
    input_mutator  changes a text before it is parsed (default: strips white space); None: parse it verbatim
    mutator        changes a value before it is validated
    path_flag      a path: defines a flag <name>_path that names a file to read the value from
"""


def with_options(definer: F) -> F:
    """Append the description of the options to the docstring of a definer."""
    definer.__doc__ = f"{cleandoc(definer.__doc__ or '')}\n{_OPTIONS}"
    return definer


def one_or_many(validators: Sequence[Callable[[T], object]] | Callable[[T], object]) -> Sequence[Callable[[T], object]]:
    """Return validators as a sequence, also if one alone was given."""
    return (validators,) if callable(validators) else validators


@dataclass(frozen=True, slots=True)
class Traits(Generic[T]):
    """The options of one flag; `FlagOptions` describes them."""

    dynamic: bool = True
    aliases: Sequence[str] = ()
    validators: Sequence[Callable[[T], object]] = ()
    input_mutator: Callable[[str], str] | None = str.strip
    mutator: Callable[[T], T] | None = None
    secret: bool = False
    path_flag: str | None = None

    def __post_init__(self) -> None:
        """Make a sequence of a single validator or alias."""
        object.__setattr__(self, "validators", one_or_many(self.validators))
        if isinstance(self.aliases, str):
            object.__setattr__(self, "aliases", (self.aliases,))
