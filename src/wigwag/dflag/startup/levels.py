"""Log levels as flags: of the root logger, of one logger, and of any loggers.

    loglevel(flags)                      loglevel: debug                           the root logger
    loglevel(flags, logger="shop.db")    loglevel.shop.db: debug                   one logger, with a default and a help
    loglevels(flags)                     loglevels: sqlalchemy=info,urllib3=debug  any logger, known beforehand or not

There are two forms because they serve two needs. A flag for each logger is listed, described and set by itself, but the
program must define it. The map is for debugging a library: it may contain any logger, and one that is removed from it
gets its previous level back.

The names are those of the original and those of Python, in upper or lower case. Python has no verbose: here it is
between debug and info. A level changes before `set` returns, so the next log call uses the new one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wigwag.dflag.values.containers import mapping_kind
from wigwag.dflag.values.kinds import ValueKind, wrong
from wigwag.dflag.values.numerals import shown
from wigwag.dflag.values.validators import length

if TYPE_CHECKING:
    from typing import Any

    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet

VERBOSE = 15
"""Between `logging.DEBUG` and `logging.INFO`."""
_LEVELS = {
    "debug": logging.DEBUG,
    "verbose": VERBOSE,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "fatal": logging.FATAL,
}
_NAMES = {level: name for name, level in reversed(_LEVELS.items())}
_MOST = 100
_FORMAT = "%(levelname)s %(name)s: %(message)s"
_USAGE = f"what is logged: one of {', '.join(_LEVELS)}"


def level_of(name: str) -> int:
    """Return the level of a name, also those of Python, and those that the program has added.

    >>> level_of(" Verbose\\n"), level_of("WARN"), level_of("35")
    (15, 30, 35)
    """
    word = name.strip().lower()
    known = {each.lower(): level for each, level in logging.getLevelNamesMapping().items()} | _LEVELS
    if word in known:
        return known[word]
    if word.isdecimal() and len(word) <= 3:
        return int(word)
    raise ValueError(f"{shown(name)} is not a log level; write one of {', '.join(_LEVELS)}")


def name_of(level: int) -> str:
    """Return the name of a level, or its number if it has none.

    >>> name_of(20), name_of(15), name_of(0), name_of(33)
    ('info', 'verbose', 'notset', '33')
    """
    named = {known: each.lower() for each, known in logging.getLevelNamesMapping().items()} | _NAMES
    return named.get(level, str(level))


def _parse(text: str) -> str:
    level_of(text)
    return text.strip().lower()


def _take(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(value, "the name of a log level")
    return _parse(value)


@dataclass(frozen=True, slots=True)
class _LevelKind(ValueKind[str]):
    """The level of a logger."""

    logger: logging.Logger | None = None


_LEVELS_KIND = mapping_kind(ValueKind("level", _parse, str, _take))


def loglevel(
    flags: FlagSet, *names: str, logger: str | logging.Logger = "", default: str | None = None
) -> DynFlag[str]:
    """Define a flag that is the level of a logger; the default is the current level.

    Its name is `loglevel`, or `loglevel.<logger>`, or what you pass; several names are aliases. A second call for the
    same logger returns the same flag, with more names.

    >>> import logging
    >>> from wigwag import dflag
    >>> flags, logger = dflag.FlagSet("example"), logging.getLogger("example.db")
    >>> level = dflag.loglevel(flags, logger=logger, default="info")
    >>> level.name, logger.level == logging.INFO
    ('loglevel.example.db', True)
    >>> level.set("  DEBUG\\n"); level.get(), logger.level == logging.DEBUG
    ('debug', True)
    """
    target = logging.getLogger(logger) if isinstance(logger, str) else logger
    wanted = names or (("loglevel",) if target.parent is None else (f"loglevel.{target.name}",))
    known = next((flag for flag in flags if isinstance(flag.kind, _LevelKind) and flag.kind.logger is target), None)
    if known is None:
        return _defined(flags, target, wanted, default)
    for name in wanted:
        if flags.find(name) is not known:
            flags.bind(name, known)
    if default is not None:
        known.set_default(default)
    return known


def _defined(flags: FlagSet, logger: logging.Logger, names: tuple[str, ...], default: str | None) -> DynFlag[str]:
    kind = _LevelKind("level", _parse, str, _take, logger=logger)
    first = name_of(logger.level) if default is None else default
    flag = flags.define(names[0], kind, first, _USAGE, {"aliases": names[1:]})
    flag.on_change(lambda old, new: logger.setLevel(level_of(new)), "sync")
    logger.setLevel(level_of(flag.get()))
    return flag


def loglevels(flags: FlagSet, name: str = "loglevels") -> DynFlag[Mapping[str, str]]:
    """Define a flag that is a map from loggers to levels. A logger that is removed gets its previous level back.

    >>> import logging
    >>> from wigwag import dflag
    >>> levels = dflag.loglevels(dflag.FlagSet("example"))
    >>> levels.set("example.http=debug, example.sql=Error")
    >>> logging.getLogger("example.http").level, logging.getLogger("example.sql").level
    (10, 40)
    >>> levels.set(""); logging.getLogger("example.http").level
    0
    """
    known = flags.find(name)
    if known is not None and known.kind is _LEVELS_KIND:
        return known
    usage = "levels of loggers, as in sqlalchemy.engine=info,urllib3=debug"
    flag = flags.define(name, _LEVELS_KIND, {}, usage, {"validators": [length(0, _MOST)]})
    before: dict[str, int] = {}

    def apply(old: Mapping[str, str], new: Mapping[str, str]) -> None:
        for logger in old.keys() - new.keys():
            logging.getLogger(logger).setLevel(before.pop(logger, logging.NOTSET))
        for logger, level in new.items():
            before.setdefault(logger, logging.getLogger(logger).level)
            logging.getLogger(logger).setLevel(level_of(level))

    flag.on_change(apply, "sync")
    return flag


@contextmanager
def show_log() -> Iterator[None]:
    """Write to stderr all log records that no handler gets; Python by itself writes warnings only.

    Otherwise a program without a handler could set `loglevel` to debug and would see nothing. A handler of ours would
    be in the way of a program that configures logging later, so Python's `lastResort` is changed: any handler wins.
    """
    last = logging.lastResort
    if last is None:  # the program has disabled it
        yield
        return
    before = last.level, last.formatter
    last.setLevel(logging.NOTSET)
    last.setFormatter(logging.Formatter(_FORMAT))
    try:
        yield
    finally:
        last.setLevel(before[0])
        last.setFormatter(before[1])
