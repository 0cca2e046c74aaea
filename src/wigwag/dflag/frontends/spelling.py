"""The options of a flag on a command line, and its help text.

A flag `my_flag` is the option `--my-flag`. Python programs use dashes in options and Go programs underscores, so both
are accepted; if two flags differ in nothing else, each keeps its own name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from wigwag.dflag.naming import variable
from wigwag.dflag.usage import shown_default, shown_wishes
from wigwag.dflag.values import kinds

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet

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
    names = {name: _option(name, flags) for flag in flags for name in flag.names}
    return [_spelled(flag, names) for flag in flags]


def _option(name: str, flags: FlagSet) -> str:
    dashed = name.replace("_", "-")
    wanted = name if dashed in flags else dashed
    return f"-{wanted}" if len(wanted) == 1 else f"--{wanted}"


def _spelled(flag: DynFlag[Any], names: Mapping[str, str]) -> FlagSpelling:
    on = tuple(names[name] for name in flag.names)
    taken = set(names.values())
    off = tuple(f"--no-{option[2:]}" for option in on if option.startswith("--")) if is_switch(flag) else ()
    return FlagSpelling(flag, on, tuple(option for option in off if option not in taken))


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
