"""Values from elsewhere than a ConfigMap: texts by name, the environment, and files that flags name.

Each call is one generation. What is refused does not keep the rest from being taken; at the end, one `FlagError` tells
of all that was refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wigwag.dflag.naming import path_name, variable
from wigwag.dflag.origin import Origin, Slot
from wigwag.dflag.store import Put
from wigwag.errors import FlagError, UsageError

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet

_MOST = 16 << 20
_SHOWN = 10


def load_texts(flags: FlagSet, texts: Mapping[str, str], origin: Origin, place: str = "") -> None:
    """Set flags by name, as given on a command line or in a file.

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> rate = flags.int("rate", 10)
    >>> load_texts(flags, {"rate": "20"}, Origin.COMMAND_LINE); rate.get(), str(rate.held)
    (20, 'command line')
    """
    unknown = [name for name in texts if name not in flags]
    if unknown:
        raise UsageError(f"the set {flags.name!r} has no flag {unknown[0]!r}")
    _load(flags, [(flags[name], Slot(origin, place), _given(text)) for name, text in texts.items()])


def load_environment(flags: FlagSet, environment: Mapping[str, str], prefix: str = "") -> None:
    """Set flags from variables such as `PREFIX_DB_POOL_SIZE` for the flag `db.pool-size`.

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> rate = flags.int("rate", 10)
    >>> load_environment(flags, {"APP_RATE": "20"}, "APP_"); rate.get(), str(rate.held)
    (20, 'environment APP_RATE')
    """
    wanted = []
    for flag in flags:
        names = [name for name in (variable(name, prefix) for name in flag.names) if name in environment]
        wanted += [(flag, Slot(Origin.ENVIRONMENT, name), _given(environment[name])) for name in names[:1]]
    _load(flags, wanted)


def load_files(flags: FlagSet) -> None:
    """Read the flags that have a `path_flag` from the files that those name; an empty path names none."""
    wanted = []
    for flag in flags:
        companion = flags.find(path_name(flag.name)) if flag.traits.path_flag is not None else None
        if companion is not None and companion.get():
            path = companion.get()
            wanted.append((flag, Slot(Origin.FILE, path), _content(flag, path)))
    _load(flags, wanted)


def _given(text: str) -> Callable[[], str]:
    return lambda: text


def _content(flag: DynFlag[Any], path: str) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with Path(path).open("rb") as file:
                content = file.read(_MOST + 1)
        except OSError as error:
            raise FlagError(flag.name, f"{path}: {error.strerror}") from error
        if len(content) > _MOST:
            raise FlagError(flag.name, f"{path}: larger than the limit of {_MOST} bytes")
        return content

    return read


def _load(flags: FlagSet, wanted: Sequence[tuple[DynFlag[Any], Slot, Callable[[], str | bytes]]]) -> None:
    refused: list[FlagError] = []

    def decide() -> list[Put]:
        puts = []
        for flag, slot, content in wanted:
            try:
                flag.refuse_if_static(flags.frozen)
                puts.append(Put(flag, slot, flag.parse(content())))
            except FlagError as error:
                refused.append(error)
        return puts

    flags.commit(decide)
    if len(refused) == 1:
        raise refused[0]
    if refused:
        names = ", ".join(error.flag for error in refused[:_SHOWN])
        raise FlagError(names, "; ".join(map(str, refused[:_SHOWN])))
