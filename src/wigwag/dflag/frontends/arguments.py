"""Flags as options of `argparse`.

    dflag.add_to(parser, flags)
    parser.parse_args()

The values go into the flags and not into the namespace, which would keep those of the start for ever. They go there
when the whole line has been read, that of subcommands included, so a mistake anywhere changes nothing.

Three things argparse cannot do by itself: a second spelling breaks its abbreviations, an option without a value
refuses `--x=false`, and `-long` is a row of short options to it. So each word that is the exact name of a flag is
spelled anew, whichever way it was spelled, where a parser asks itself which of its options a word is. That is the only
place where it is known whose the word is: it may be from a file (`@file`), or one of a subcommand, or belong to a
command that the rest of the line is handed on to.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn

from wigwag.dflag.frontends.given import CheckedValue, judged, put, told
from wigwag.dflag.frontends.spelling import FlagSpelling, help_text, is_switch, placeholder, spelled
from wigwag.errors import FlagError, UsageError

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet

_VALUED = "--:"
"""Before the name of a truth: the option that takes a value for it. It begins like nothing that anybody types."""
_RECOGNISING = "_parse_optional"
"""What a parser calls to find its option for a word. It is argparse's own affair, but nothing else will do."""
_PARSING = ("parse_args", "parse_known_args", "parse_intermixed_args", "parse_known_intermixed_args")
_line: ContextVar[list[CheckedValue] | None] = ContextVar("wigwag.dflag.line", default=None)
"""What the line that is being read has given so far."""


def add_to(parser: argparse.ArgumentParser, flags: FlagSet) -> None:
    """Add an option for each flag to a parser; what is given there is of the command line.

    Both `--my-flag` and `--my_flag` are understood, and so are `-my_flag` and `-my_flag=3`, as Go has them. A truth is
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
    """Have a parser understand options however they are spelled; see `respelled`."""
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
            given = CheckedValue(self.flag, judged(self.flag, text))
        except FlagError as error:
            raise argparse.ArgumentError(self.shown, told(self.flag, text, error)) from None
        line = _line.get()
        if line is None:  # the option was copied into a parser that knows nothing of flags, by `parents=`
            put([given])
        else:
            line.append(given)


class _Switch(_Value):
    """An option without a value for a truth."""

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
    """Spell a word anew if it is the exact name of a flag.

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
    """Have a parser put in place what flags were given when it is done."""

    @wraps(parse)
    def parsing(args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        try:
            with _collecting():
                return parse(args, namespace)
        except FlagError as error:  # of a check over several flags
            refuse(str(error))

    return parsing


@contextmanager
def _collecting() -> Iterator[None]:
    """Collect what flags are given; a parser within another leaves it to the outer one to put it in place."""
    if _line.get() is not None:
        yield
        return
    line: list[CheckedValue] = []
    token = _line.set(line)
    try:
        yield
    finally:
        _line.reset(token)
    put(line)
