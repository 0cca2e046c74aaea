"""What click and typer have in common: how options are declared, and where a value comes from.

typer once used click and now keeps a copy of its own, so the classes of one are not those of the other; what they are
called is the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from wigwag.dflag.frontends.given import COMMAND_LINE
from wigwag.dflag.frontends.spelling import FlagSpelling, other
from wigwag.dflag.naming import variable
from wigwag.dflag.origin import Origin, Slot

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag


class Context(Protocol):
    """What is asked of a context."""

    auto_envvar_prefix: str | None

    def get_parameter_source(self, name: str, /) -> Any:
        """Return a member of an enumeration, or nothing."""
        ...


def declared(options: Sequence[FlagSpelling]) -> list[list[str]]:
    """Return the declarations of each option: both spellings, and what says no.

    >>> from wigwag import dflag
    >>> from wigwag.dflag.frontends.spelling import spelled
    >>> flags = dflag.FlagSet("example")
    >>> _ = flags.bool("dry_run", False, aliases=["n"]), flags.int("rate", 1)
    >>> declared(spelled(flags))
    [['--dry-run/--no-dry-run', '--dry_run/--no-dry_run', '-n'], ['--rate']]
    """
    taken = {each for option in options for each in (*option.on, *option.off)}
    return [_declared(option, taken) for option in options]


def _declared(option: FlagSpelling, taken: set[str]) -> list[str]:
    found: list[str] = []
    for each in option.on:
        for spelling in (each, *({other(each)} - taken)):
            no = f"--no-{spelling[2:]}"
            negated = f"--no-{each[2:]}" in option.off
            found.append(f"{spelling}/{no}" if negated else spelling)
    return found


def variables(flag: DynFlag[Any], prefix: str | None) -> list[str] | None:
    """Return the variables of the environment that are read for a flag, if any are."""
    return None if prefix is None else [variable(name, prefix) for name in flag.names]


def slot(context: Context, name: str, variables: Sequence[str] | None) -> Slot | None:
    """Return where the value of a parameter comes from; nothing, if it is no more than a default."""
    source = getattr(context.get_parameter_source(name), "name", "")
    if source in ("COMMANDLINE", "PROMPT"):
        return COMMAND_LINE
    if source == "ENVIRONMENT":
        found = (each for each in variables or () if os.environ.get(each))
        return Slot(Origin.ENVIRONMENT, next(found, f"{context.auto_envvar_prefix}_{name.upper()}"))
    return Slot(Origin.FILE, "default_map") if source == "DEFAULT_MAP" else None
