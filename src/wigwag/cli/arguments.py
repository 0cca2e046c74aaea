"""Parsing a command line: old names of options, and errors of one line with a suggestion."""

from __future__ import annotations

import argparse
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from wigwag.errors import UsageError
from wigwag.options import long_name
from wigwag.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


_FORMATTER = argparse.RawDescriptionHelpFormatter


class CommandParser(argparse.ArgumentParser):
    """A parser that raises `UsageError` with one line, where argparse would print the usage and exit.

    argparse makes a formatter for each argument that is added, to check it. Only the one that writes the help asks for
    the width of the terminal, because that imports modules that a server does not need otherwise.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=partial(_FORMATTER, width=80), **options)

    def format_help(self) -> str:
        """Return the help, as wide as the terminal."""
        self.formatter_class = _FORMATTER
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise the error, with where to read more."""
        raise UsageError(f"{message}; see `{self.prog} --help`")


def check_command(arguments: Sequence[str], commands: Collection[str]) -> None:
    """Raise `UsageError` if the first argument is not a command."""
    name = arguments[0]
    if not name.startswith("-") and name not in commands:
        meant = closest(name, commands)
        hint = f"did you mean `wigwag {meant}`?" if meant else f"the commands are {', '.join(commands)}"
        raise UsageError(f"unknown command {name!r}; {hint}")


def unknown(extra: Sequence[str], record: type, command: str) -> UsageError:
    """Return the error for arguments that a command does not take."""
    name = extra[0].partition("=")[0]
    if not name.startswith("-"):
        return UsageError(f"{command}: unexpected argument {extra[0]!r}; see `wigwag {command} --help`")
    meant = closest(name, [f"--{long_name(field.name)}" for field in fields(record)])
    hint = f"did you mean {meant}?" if meant else f"see `wigwag {command} --help`"
    return UsageError(f"{command}: unknown option {name}; {hint}")


def renamed(arguments: Sequence[str], aliases: Mapping[str, str]) -> list[str]:
    """Replace old names of options, up to `--`.

    >>> renamed(["lint", "--json", "a", "--", "--json"], {"--json": "--output=json"})
    ['lint', '--output=json', 'a', '--', '--json']
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [aliases.get(argument, argument) for argument in arguments[:end]] + list(arguments[end:])
