"""The values that a command line gives to flags: checked while it is parsed, and set when all of them are good.

So a line with a mistake changes nothing, and the values of a good one take effect together, as one generation.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from wigwag.dflag.origin import Origin, Slot
from wigwag.dflag.values.numerals import format_bool, shown
from wigwag.errors import FlagError

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag, FlagOwner, Put

COMMAND_LINE = Slot(Origin.COMMAND_LINE)


def parsed(flag: DynFlag[Any], text: str | bool) -> Any:
    """Parse a text, or the truth of a switch. The reason of a `FlagError` has one line, with the text unless secret.

    >>> from wigwag import dflag
    >>> even = dflag.FlagSet("example").int("even", 0, validators=[lambda number: number % 2 == 0])
    >>> parsed(even, "3")
    Traceback (most recent call last):
    wigwag.errors.FlagError: flag 'even': '3': refused by <lambda>
    """
    text = format_bool(text) if isinstance(text, bool) else text
    try:
        flag.refuse_if_static()
        return flag.parse(text)
    except FlagError as error:
        reason = " ".join(error.reason.split())
        reason = reason if flag.secret or text in reason else f"{shown(text)}: {reason}"
        raise FlagError(flag.name, reason) from None


def commit(puts: Iterable[Put]) -> None:
    """Set flags, all of a flag set under one generation; the last value for a flag wins."""
    by_owner: dict[FlagOwner, list[Put]] = {}
    for put in puts:
        by_owner.setdefault(put.flag.owner, []).append(put)
    for owner, own in by_owner.items():
        owner.commit(own.copy)


class Context(Protocol):
    """A context of click, or of typer, which has a copy of click's classes."""

    auto_envvar_prefix: str | None

    def get_parameter_source(self, name: str, /) -> Any:
        """Return a member of an enumeration, or nothing."""
        ...


def slot(context: Context, name: str, variables: Sequence[str] | None) -> Slot | None:
    """Return where click or typer has the value of a parameter from; None if it is the default."""
    source = getattr(context.get_parameter_source(name), "name", "")
    if source in ("COMMANDLINE", "PROMPT"):
        return COMMAND_LINE
    if source == "ENVIRONMENT":
        used = (each for each in variables or () if os.environ.get(each))
        return Slot(Origin.ENVIRONMENT, next(used, f"{context.auto_envvar_prefix}_{name.upper()}"))
    return Slot(Origin.FILE, "default_map") if source == "DEFAULT_MAP" else None


def needs(package: str, extra: str) -> ModuleNotFoundError:
    """Return the error for a package that is not installed.

    >>> print(needs("click", "click"))
    flags as options of click need the package 'click': install wigwag[click]
    """
    message = f"flags as options of {extra} need the package {package!r}: install wigwag[{extra}]"
    return ModuleNotFoundError(message, name=package)
