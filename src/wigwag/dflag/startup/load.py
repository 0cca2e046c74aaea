"""Values from elsewhere than a ConfigMap: texts by name, the environment, and files that flags name.

Each call is one generation. What is refused does not keep the rest from being taken; at the end, one `FlagError` tells
of all that was refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wigwag.dflag.flag import Put
from wigwag.dflag.naming import path_name, variable
from wigwag.dflag.origin import Origin, Slot
from wigwag.dflag.startup.environment import strangers, told
from wigwag.dflag.updating.policy import CHOICES, check_choice
from wigwag.errors import FlagError, UsageError

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.updating.policy import Unknown

log = logging.getLogger("wigwag.dflag")
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
        raise UsageError(flags.without(unknown[0]))
    _load(flags, [(flags[name], Slot(origin, place), _given(text)) for name, text in texts.items()])


def load_environment(
    flags: FlagSet, environment: Mapping[str, str], prefix: str = "", *, unknown: Unknown = "warn"
) -> None:
    """Set flags from variables such as `PREFIX_DB_POOL_SIZE` for the flag `db.pool-size`.

    `unknown` says what a variable is that has the prefix and means no flag, if the prefix has three characters or more:
    worth a warning, an error when all others were taken, or nothing ("ignore").

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> rate = flags.int("rate", 10)
    >>> load_environment(flags, {"APP_RATE": "20"}, "APP_"); rate.get(), str(rate.held)
    (20, 'environment APP_RATE')
    """
    check_choice("unknown", unknown, CHOICES["unknown"])
    known, wanted = _owners(flags, prefix), []
    for flag in flags:
        there = [name for name in (variable(name, prefix) for name in flag.names) if name in environment]
        for name in there[:1]:
            content = _given(environment[name]) if len(known[name]) == 1 else _shared(flag, name, known[name])
            wanted.append((flag, Slot(Origin.ENVIRONMENT, name), content))
    strange = told(strangers(environment, prefix, known), prefix, known, flags.name)
    if unknown == "warn":
        for line in strange:
            log.warning("%s", line)
    _load(flags, wanted)
    if unknown == "error" and strange:
        raise UsageError("; ".join(strange))


def load_files(flags: FlagSet) -> None:
    """Read the flags that have a `path_flag` from the files that those name; an empty path names none."""
    wanted = []
    for flag in flags:
        companion = flags.find(path_name(flag.name)) if flag.traits.path_flag is not None else None
        if companion is not None and companion.get():
            path = companion.get()
            wanted.append((flag, Slot(Origin.FILE, path), _content(flag, path)))
    _load(flags, wanted)


def _owners(flags: FlagSet, prefix: str) -> dict[str, list[str]]:
    """Return which flags each variable means; of `pool-size` and `pool_size` it is the same."""
    owners: dict[str, list[str]] = {}
    for flag in flags:
        for name in {variable(name, prefix) for name in flag.names}:
            owners.setdefault(name, []).append(flag.name)
    return owners


def _shared(flag: DynFlag[Any], name: str, owners: Sequence[str]) -> Callable[[], str]:
    def refuse() -> str:
        several = " or ".join(map(repr, owners))
        raise FlagError(flag.name, f"{name} could mean {several}: rename one, or give it an alias")

    return refuse


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


def _placed(error: FlagError, slot: Slot) -> FlagError:
    """Say which variable or file it was."""
    named = not slot.place or slot.place in error.reason
    return error if named else type(error)(error.flag, f"{slot.place}: {error.reason}")


def _load(flags: FlagSet, wanted: Sequence[tuple[DynFlag[Any], Slot, Callable[[], str | bytes]]]) -> None:
    refused: list[FlagError] = []

    def decide() -> list[Put]:
        puts = []
        for flag, slot, content in wanted:
            try:
                flag.refuse_if_static()
                puts.append(Put(flag, slot, flag.parse(content())))
            except FlagError as error:
                refused.append(_placed(error, slot))
        return puts

    try:
        flags.commit(decide)
    except FlagError as error:  # a check over several flags
        refused.append(error)
    if len(refused) == 1:
        raise refused[0]
    if refused:
        names = ", ".join(error.flag for error in refused[:_SHOWN])
        raise FlagError(names, "; ".join(map(str, refused[:_SHOWN])))
