"""Flags as options of `argparse`.

    dflag.add_to(parser, flags)
    parser.parse_args()

The values go into the flags, not into the namespace, which would keep those of the start for ever. They are set when
the whole line has been parsed, with its subcommands, so a mistake anywhere changes nothing.

argparse cannot do three things by itself: a second spelling breaks its abbreviations, an option without a value rejects
`--x=false`, and `-long` means several short options. So each word that is the exact name of a flag is replaced with its
canonical spelling, in the method in which a parser looks up the option of a word. Only there it is known which parser
the word belongs to: it may be from a file (`@file`), or of a subcommand, or of a command that gets the rest of the
line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn

from wigwag.dflag.flag import Put
from wigwag.dflag.frontends.options import (
    COMMAND_LINE,
    FlagSpelling,
    commit,
    help_text,
    is_switch,
    parsed,
    placeholder,
    spelled,
)
from wigwag.errors import FlagError, UsageError

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet

_VALUED = "--:"
"""Prefix of the hidden option that takes a value for a bool. Nobody types an option that begins like this."""
_RECOGNISING = "_parse_optional"
"""The method in which a parser finds the option of a word. It is private to argparse, but there is no other hook."""
_PARSING = ("parse_args", "parse_known_args", "parse_intermixed_args", "parse_known_intermixed_args")
_line: ContextVar[list[Put] | None] = ContextVar("wigwag.dflag.line", default=None)
"""The values of the line that is being parsed."""


def add_to(parser: argparse.ArgumentParser, flags: FlagSet) -> None:
    """Add an option for each flag to a parser; the origin of the values is the command line.

    Both `--my-flag` and `--my_flag` are accepted, and so are `-my_flag` and `-my_flag=3`, as in Go. A bool is
    `--x` or `--no-x`, or `--x=false`. Flags that are defined later have no option.

    >>> import argparse
    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> size, dry = flags.int("pool_size", 4), flags.bool("dry_run", False)
    >>> parser = argparse.ArgumentParser()
    >>> dflag.add_to(parser, flags)
    >>> _ = parser.parse_args(["--pool-size", "8", "--dry-run"])
    >>> size.get(), dry.get(), str(size.held), flags.generation
    (8, True, 'command line', 1)
    """
    options = spelled(flags)
    group = parser.add_argument_group(f"flags of {flags.name}" if flags.name else "flags")
    try:
        for option in options:
            _add(group, option)
    except argparse.ArgumentError as error:
        raise UsageError(f"the parser has an option of that name already: {error}") from error
    teach(parser, _words(options))
    for name in _PARSING:
        setattr(parser, name, _taking(getattr(parser, name), parser.error))


def teach(parser: argparse.ArgumentParser, words: Mapping[str, tuple[str, str]]) -> None:
    """Make a parser accept options in all spellings; see `respelled`."""
    recognise: Callable[[str], Any] = getattr(parser, _RECOGNISING)

    def recognise_all(word: str) -> Any:
        own = parser._option_string_actions.get(word.partition("=")[0])
        return recognise(word if own is not None and not isinstance(own, _Value) else respelled(word, words))

    setattr(parser, _RECOGNISING, recognise_all)


def _add(group: Any, option: FlagSpelling) -> None:
    text = help_text(option.flag).replace("%", "%%")
    common = {"dest": argparse.SUPPRESS, "default": argparse.SUPPRESS, "flag": option.flag}
    if not is_switch(option.flag):
        group.add_argument(*option.on, action=_Value, help=text, metavar=placeholder(option.flag), **common)
        return
    switch = group.add_argument(*option.on, *option.off, action=_Switch, nargs=0, help=text, off=option.off, **common)
    valued = _VALUED + option.flag.name
    group.add_argument(valued, action=_Value, help=argparse.SUPPRESS, shown=switch, **common)


class _Value(argparse.Action):
    """An option with a value for a flag; `shown` is the option that errors are about, if it is another."""

    def __init__(self, *names: Any, flag: DynFlag[Any], shown: argparse.Action | None = None, **options: Any) -> None:
        super().__init__(*names, **options)
        self.flag, self.shown = flag, shown or self

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        self.give(values)

    def give(self, text: str) -> None:
        try:
            given = Put(self.flag, COMMAND_LINE, parsed(self.flag, text))
        except FlagError as error:
            raise argparse.ArgumentError(self.shown, error.reason) from None
        line = _line.get()
        if line is None:  # the option was copied into another parser, by `parents=`
            commit([given])
        else:
            line.append(given)


class _Switch(_Value):
    """An option without a value, for a bool."""

    def __init__(self, *names: Any, off: Sequence[str], **options: Any) -> None:
        super().__init__(*names, **options)
        self._off = off

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        on = (each for each in self.option_strings if each not in self._off)
        meant_off = any(each.startswith(option or "") for each in self._off)
        self.give("false" if meant_off and not any(each.startswith(option or "") for each in on) else "true")

    def format_usage(self) -> str:
        return " | ".join(self.option_strings)


def _words(options: Sequence[FlagSpelling]) -> dict[str, tuple[str, str]]:
    """Return the spelling of each option, without and with a value, by how it may be written after its dashes."""
    words: dict[str, tuple[str, str]] = {}
    for flag, on, off in options:
        for name, option in zip(flag.names, on, strict=True):
            words[name] = words[option.lstrip("-")] = option, _VALUED + flag.name if is_switch(flag) else option
        words |= {option[2:]: (option, option) for option in off}
    return words


def respelled(word: str, words: Mapping[str, tuple[str, str]]) -> str:
    """Return the canonical spelling of a word that is the exact name of a flag; other words as they are.

    >>> words = {"my_flag": ("--my-flag", "--my-flag"), "dry": ("--dry", "--:dry")}
    >>> [respelled(word, words) for word in ("-my_flag", "3", "--dry=no", "--dry", "-d", "dry")]
    ['--my-flag', '3', '--:dry=no', '--dry', '-d', 'dry']
    """
    body = word.removeprefix("-").removeprefix("-")
    name, equals, value = body.partition("=")
    spelling = words.get(name) or words.get(name.replace("_", "-"))
    if spelling is None or body == word:
        return word
    return f"{spelling[1]}={value}" if equals else spelling[0]


def _taking(parse: Callable[..., Any], refuse: Callable[[str], NoReturn]) -> Callable[..., Any]:
    """Make a parser set the flags when it is done, unless another one, the outermost, does that."""

    @wraps(parse)
    def parsing(args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        if _line.get() is not None:
            return parse(args, namespace)
        line: list[Put] = []
        token = _line.set(line)
        try:
            result = parse(args, namespace)
        finally:
            _line.reset(token)
        try:
            commit(line)
        except FlagError as error:  # of a check over several flags
            refuse(str(error))
        return result

    return parsing
