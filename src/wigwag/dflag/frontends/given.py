"""What a command line gives to flags: judged while it is read, and put in place when all of it is good.

So a line with a mistake in it changes nothing, and the others take effect together, as one generation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from wigwag.dflag.flag import Put
from wigwag.dflag.origin import Origin, Slot
from wigwag.dflag.values.numerals import shown

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag, FlagOwner
    from wigwag.errors import FlagError

COMMAND_LINE = Slot(Origin.COMMAND_LINE)


class CheckedValue(NamedTuple):
    """A value that was judged, for a flag."""

    flag: DynFlag[Any]
    value: Any
    slot: Slot = COMMAND_LINE


def judged(flag: DynFlag[Any], text: str) -> Any:
    """Return the value that a text means for a flag; `FlagError` if it is refused."""
    flag.refuse_if_static()
    return flag.parse(text)


def told(flag: DynFlag[Any], text: str, error: FlagError) -> str:
    """Return in one line why a text was refused; the text is in it, unless it is secret.

    >>> from wigwag import dflag
    >>> even = dflag.FlagSet("example").int("even", 0, validators=[lambda number: number % 2 == 0])
    >>> told(even, "3", dflag.FlagError("even", "must be even"))
    "'3': must be even"
    """
    reason = " ".join(error.reason.split())
    return reason if flag.secret or text in reason else f"{shown(text)}: {reason}"


def put(given: Iterable[CheckedValue]) -> None:
    """Give the flags their values, all of a set under one generation; of several for one flag, the last."""
    chosen: dict[FlagOwner, dict[tuple[DynFlag[Any], Slot], Put]] = {}
    for flag, value, slot in given:
        chosen.setdefault(flag.owner, {})[flag, slot] = Put(flag, slot, value)
    for flags, puts in chosen.items():
        flags.commit(puts.values)


def needs(package: str, extra: str) -> ModuleNotFoundError:
    """Return the error for a package that is not there.

    >>> print(needs("click", "click"))
    flags as options of click need the package 'click': install wigwag[click]
    """
    message = f"flags as options of {extra} need the package {package!r}: install wigwag[{extra}]"
    return ModuleNotFoundError(message, name=package)
