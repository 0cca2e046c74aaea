"""Flags as options of a command line: their spelling, their help text, and how their values are set.

A flag `my_flag` is the option `--my-flag`. Python programs use dashes in options and Go programs underscores, so both
are accepted; if two flags differ in nothing else, each keeps its own name.

The values are checked while a line is parsed, and set when all of them are good. So a line with a mistake changes
nothing, and the values of a good one take effect together, as one generation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from wigwag.dflag.naming import variable
from wigwag.dflag.origin import Origin, Slot
from wigwag.dflag.usage import shown_default, shown_wishes
from wigwag.dflag.values import kinds
from wigwag.dflag.values.numerals import format_bool, shown
from wigwag.errors import FlagError

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag, FlagOwner, Put
    from wigwag.dflag.flagset import FlagSet

COMMAND_LINE = Slot(Origin.COMMAND_LINE)
_WIDEST = 40


class FlagSpelling(NamedTuple):
    """A flag, and its options."""

    flag: DynFlag[Any]
    on: tuple[str, ...]
    """One option for each of its names."""
    off: tuple[str, ...]
    """Those that set a bool to false."""


def spelled(flags: FlagSet) -> list[FlagSpelling]:
    """Return the options of all flags, in the order of the flags.

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> _ = flags.bool("dry_run", False, aliases=["n"]), flags.int("db.pool_size", 4)
    >>> [(*each.on, *each.off) for each in spelled(flags)]
    [('--db.pool-size',), ('--dry-run', '-n', '--no-dry-run')]
    """
    on = {flag: tuple(_option(name, flags) for name in flag.names) for flag in flags}
    taken = {option for options in on.values() for option in options}
    spellings = []
    for flag, options in on.items():
        off = [f"--no-{option[2:]}" for option in options if option.startswith("--") and is_switch(flag)]
        spellings.append(FlagSpelling(flag, options, tuple(option for option in off if option not in taken)))
    return spellings


def _option(name: str, flags: FlagSet) -> str:
    dashed = name.replace("_", "-")
    wanted = name if dashed in flags else dashed
    return f"-{wanted}" if len(wanted) == 1 else f"--{wanted}"


def is_switch(flag: DynFlag[Any]) -> bool:
    """Tell whether a flag is a bool, which needs no value on a command line."""
    return flag.kind is kinds.BOOL


def other(option: str) -> str:
    """Return an option with underscores instead of dashes.

    >>> other("--db.pool-size")
    '--db.pool_size'
    """
    dashes = option[: len(option) - len(option.lstrip("-"))]
    return dashes + option.removeprefix(dashes).replace("-", "_")


def identifier(name: str, taken: Collection[str] = ()) -> str:
    """Return a name for a parameter of a function that is not taken.

    >>> identifier("db.pool-size"), identifier("2x"), identifier("a.b", ["a_b"])
    ('db_pool_size', 'flag_2x', 'a_b_')
    """
    result = re.sub(r"\W", "_", name.lower())
    result = result if result.isidentifier() else f"flag_{result}"
    while result in taken:
        result += "_"
    return result


def declared(flags: FlagSet, taken: Collection[str] = ()) -> dict[str, tuple[DynFlag[Any], list[str]]]:
    """Return each flag with the declarations of its option for click and typer, by a parameter name not `taken`.

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> _ = flags.bool("dry_run", False, aliases=["n"]), flags.int("rate", 1)
    >>> [(name, declarations) for name, (_, declarations) in declared(flags).items()]
    [('dry_run', ['--dry-run/--no-dry-run', '--dry_run/--no-dry_run', '-n']), ('rate', ['--rate'])]
    """
    options = spelled(flags)
    spellings = {each for option in options for each in (*option.on, *option.off)}
    parameters: dict[str, tuple[DynFlag[Any], list[str]]] = {}
    for option in options:
        name = identifier(option.flag.name, [*taken, *parameters])
        parameters[name] = option.flag, _declared(option, spellings)
    return parameters


def _declared(option: FlagSpelling, taken: set[str]) -> list[str]:
    declarations: list[str] = []
    for each in option.on:
        negated = f"--no-{each[2:]}" in option.off
        spellings = (each, *({other(each)} - taken))
        declarations += [f"{spelling}/--no-{spelling[2:]}" if negated else spelling for spelling in spellings]
    return declarations


def variables(flag: DynFlag[Any], prefix: str | None) -> list[str] | None:
    """Return the environment variables that are read for a flag, or None without a prefix."""
    return None if prefix is None else [variable(name, prefix) for name in flag.names]


def help_text(flag: DynFlag[Any], *, default: bool = True) -> str:
    """Return the usage of a flag, with its type, its constraints and its default.

    >>> from wigwag import dflag
    >>> help_text(dflag.new(int, 10, "requests per second", validators=[dflag.in_range(0, 100)]))
    'requests per second (int, from 0 to 100; default 10)'
    """
    takes = ", ".join([flag.kind.name, *shown_wishes(flag)])
    notes = [takes, f"default {shown_default(flag) or '(empty)'}"] if default else [takes]
    notes += [] if flag.dynamic else ["static"]
    return f"{flag.usage} ({'; '.join(notes)})".strip()


def placeholder(flag: DynFlag[Any]) -> str:
    """Return the placeholder of the value in a help text.

    >>> from wigwag import dflag
    >>> [placeholder(dflag.new(type, default)) for type, default in [(int, 1), (list[float], []), (dict[str, int], {})]]
    ['INT', 'FLOAT,…', 'KEY=INT,…']
    """
    if flag.kind.is_json:
        return "JSON"
    container, _, item = flag.kind.name.partition(" of ")
    if container == "one":
        choices = "{" + item.replace(", ", ",") + "}"
        return choices if len(choices) <= _WIDEST else "NAME"
    if container.startswith("map to "):
        return f"KEY={_word(container)},…"
    return f"{_word(item)},…" if item else _word(container)


def _word(name: str) -> str:
    return name.rsplit(" ", 1)[-1].upper()


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
