"""The `wigwag` command: picks a command, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from wigwag.cli.options import add_options, collect
from wigwag.cli.terminal import complain
from wigwag.errors import WigwagError
from wigwag.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = ("eval", "lint")
DESCRIPTION = """\
wigwag: feature flags for the cloud.

Start here:
  wigwag eval demo     play with the flags that come with wigwag
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parsed = parser().parse_args(arguments or ["--help"])
    command = parsed.command
    try:
        code: int = command.run(collect(command.Options, parsed))
        sys.stdout.flush()
    except WigwagError as error:
        complain(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away; so do we, without a word
        return 0
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    formatter: Any = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(prog="wigwag", description=DESCRIPTION, formatter_class=formatter)
    top.add_argument("--version", action="version", version=f"wigwag {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = import_module(f"wigwag.cli.{name}")
        sub = commands.add_parser(
            name, help=module.HELP, description=module.DESCRIPTION, formatter_class=formatter, allow_abbrev=False
        )
        add_options(sub, module.Options)
        sub.set_defaults(command=module)
    return top
