"""The `wigwag` command: parses the command line, runs a sub-command, turns an error into one line and an exit code."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from wigwag.cli.config import read_config
from wigwag.cli.terminal import abandon_output, complain, prepare_streams, remark
from wigwag.errors import UsageError, WigwagError
from wigwag.options import (
    add_options,
    collect,
    declared,
    double_dashes,
    long_name,
    plain_booleans,
    unknown_keys,
)
from wigwag.suggest import closest, suggest
from wigwag.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_BROKEN_PIPE = 141
_FORMATTER = argparse.RawDescriptionHelpFormatter
COMMANDS = (
    *("start", "check-config", "eval", "lint", "diff", "proxy", "operator", "rollout", "sidecars"),
    *("migrate", "watt", "console"),
    *("help", "completion", "version"),
)
DESCRIPTION = """\
wigwag: feature flags for the cloud.

Start here:
  wigwag start         serve the flags that come with wigwag, as flagd would
  wigwag eval demo     evaluate them at a prompt
  wigwag help start    the options of a command
"""


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    prepare_streams()
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except WigwagError as error:
        complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        abandon_output()  # the reader is gone: exit without a message
        return _BROKEN_PIPE
    except OSError as error:
        abandon_output()
        complain((error.strerror or str(error)).lower())
        return 1
    return code


def _run(arguments: Sequence[str]) -> int:
    try:
        given = _rewritten(arguments) or ["--help"]
        _check_command(given[0])
        if given[0] not in COMMANDS:
            parser().parse_args(given)  # --help or --version, or an error
        parsed, extra = command_parser(given[0]).parse_known_args(given[1:])
    except SystemExit as stop:  # help was shown
        return int(stop.code or 0)
    command = module_of(given[0])
    if extra:
        raise _unknown(extra, command.Options, given[0])
    code: int = command.run(_options(command, parsed))
    return code


def _rewritten(arguments: Sequence[str]) -> list[str]:
    """Let `--switch=false` mean what it means to Go programs, and old names what they meant, for this command."""
    if arguments and arguments[0] in COMMANDS:
        command = module_of(arguments[0])
        given = renamed(arguments, getattr(command, "ALIASES", {}))
        if getattr(command, "GO_FLAGS", False):
            given = double_dashes(given, command.Options)
        return plain_booleans(given, command.Options)
    return list(arguments)


def _check_command(name: str) -> None:
    """Raise `UsageError` if the first argument is not a command."""
    if not name.startswith("-") and name not in COMMANDS:
        meant = closest(name, COMMANDS)
        hint = f"did you mean `wigwag {meant}`?" if meant else f"the commands are {', '.join(COMMANDS)}"
        raise UsageError(f"unknown command {name!r}; {hint}")


def _unknown(extra: Sequence[str], record: type, command: str) -> UsageError:
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


def _options(command: Any, parsed: argparse.Namespace) -> Any:
    """Make the command's options; some commands also look at the environment and at a config file."""
    prefix = getattr(command, "ENVIRONMENT", "")
    config = {}
    if getattr(command, "CONFIG", False):
        named = os.environ.get(f"{prefix}CONFIG", "") if prefix else ""
        config = read_config(parsed.config or named)
        for key in unknown_keys(command.Options, config):
            hint = suggest(key, [long_name(each.name) for each in declared(command.Options)])
            message = f"the config file has {key!r}, which is not an option{'; ' * bool(hint)}{hint}"
            if getattr(command, "STRICT_CONFIG", False):
                raise UsageError(message)
            remark(f"wigwag: {message}")
    return collect(command.Options, parsed, os.environ, prefix, config)


@contextmanager
def without_gc() -> Iterator[None]:
    """Pause the garbage collector while modules are imported: they stay, and to search them only delays the start.

    >>> with without_gc():
    ...     gc.isenabled()
    False
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def module_of(command: str) -> Any:
    """Return the module of a command."""
    return import_module(f"wigwag.cli.commands.{command.replace('-', '_')}")


def parser() -> argparse.ArgumentParser:
    """Return the top-level parser; its help lists all commands, so it imports them all."""
    top = CommandParser(prog="wigwag", description=DESCRIPTION)
    top.add_argument("--version", action="version", version=f"wigwag {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        commands.add_parser(name, help=module_of(name).HELP)
    return top


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of one command; it imports no other."""
    module = module_of(name)
    made = CommandParser(
        prog=f"wigwag {name}",
        usage=usage(name, module.Options),
        description=module.DESCRIPTION,
        allow_abbrev=False,
    )
    add_options(made, module.Options, getattr(module, "ENVIRONMENT", ""))
    return made


def usage(command: str, record: type) -> str:
    """Return the first line of a command's help: its arguments, and that there are options.

    >>> from wigwag.cli.commands.eval import Options
    >>> usage("eval", Options)
    'wigwag eval [OPTION]... SOURCE [KEY]'
    """
    shapes = {None: "{0}", "?": "[{0}]", "+": "{0} [{0} ...]"}
    each = list(declared(record))
    arguments = [shapes[one.nargs].format(one.metavar) for one in each if one.positional]
    options = ["[OPTION]..."] * any(not one.positional for one in each)
    return " ".join(["wigwag", command, *options, *arguments])
