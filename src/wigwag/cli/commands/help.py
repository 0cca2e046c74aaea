"""`wigwag help`: the help of wigwag, or of one of its commands."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from wigwag.cli.main import COMMANDS, command_parser, parser
from wigwag.options import positional

HELP = "show the help of wigwag or of a command"
DESCRIPTION = """\
Show the commands of wigwag, or the options of one of them. `wigwag COMMAND --help` shows the same.

  wigwag help
  wigwag help start
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `wigwag help`."""

    topic: str | None = positional("COMMAND", "a command of wigwag", nargs="?", default=None, choices=COMMANDS)


def run(options: Options) -> int:
    """Print the help."""
    with suppress(SystemExit):  # argparse exits after it has shown the help
        (command_parser(options.topic) if options.topic else parser()).parse_args(["--help"])
    return 0
