"""Options as one frozen dataclass per command; the parser and its help text are derived from it, once."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")
_KEY = "cli"


def positional(metavar: str, help: str, *, nargs: str | None = None, default: Any = dataclasses.MISSING) -> Any:
    """Declare an argument that is known by its place."""
    keywords = {"metavar": metavar, "help": help, "nargs": nargs}
    return dataclasses.field(default=default, metadata={_KEY: ((), keywords)})


def option(
    default: Any, help: str, *, metavar: str | None = None, short: str = "", choices: Sequence[str] | None = None
) -> Any:
    """Declare an option; its long name is the field's. A default of False makes it a switch."""
    keywords: dict[str, Any] = {"help": help}
    if default is False:
        keywords["action"] = "store_true"
    else:
        keywords |= {"metavar": metavar, "choices": choices}
    return dataclasses.field(default=default, metadata={_KEY: ((short,) if short else ("",), keywords)})


def add_options(parser: argparse.ArgumentParser, record: type) -> None:
    """Give a parser the arguments that a record declares."""
    for field in dataclasses.fields(record):
        names, keywords = field.metadata[_KEY]
        keywords = {name: value for name, value in keywords.items() if value is not None}
        if not names:
            parser.add_argument(field.name, **keywords)
            continue
        flags = [*(name for name in names if name), f"--{field.name.replace('_', '-')}"]
        parser.add_argument(*flags, dest=field.name, default=field.default, **keywords)


def collect(record: type[T], arguments: argparse.Namespace) -> T:
    """Make the record from parsed arguments; what was not given keeps the record's default."""
    names = [field.name for field in dataclasses.fields(record)]  # type: ignore[arg-type]
    given = {name: getattr(arguments, name) for name in names}
    return record(**{name: value for name, value in given.items() if value is not None})
