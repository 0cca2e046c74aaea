"""Values from other origins than a ConfigMap: texts by name, the environment, and files that flags name.

Each call is one generation. Good values are set also if others are rejected; at the end, one `FlagError` has all that
were rejected.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from wigwag.dflag.flag import Put
from wigwag.dflag.naming import path_name, variable
from wigwag.dflag.origin import Origin, Slot
from wigwag.dflag.updating.policy import CHOICES, check_choice
from wigwag.errors import FlagError, UsageError
from wigwag.suggest import closest

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.updating.policy import Unknown

    _Given: TypeAlias = tuple[DynFlag[Any], Slot, str | bytes | FlagError]

log = logging.getLogger("wigwag.dflag")
_MOST = 16 << 20
_SHOWN = 10
_SHORTEST_PREFIX = 3
_SERVICE = re.compile(r".*_(?:SERVICE_HOST|SERVICE_PORT(?:_.+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)")
_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://")


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
    _load(flags, [(flags[name], Slot(origin, place), text) for name, text in texts.items()])


def load_environment(
    flags: FlagSet, environment: Mapping[str, str], prefix: str = "", *, unknown: Unknown = "warn"
) -> None:
    """Set flags from variables such as `PREFIX_DB_POOL_SIZE` for the flag `db.pool-size`.

    `unknown` is what happens if a variable has the prefix and sets no flag, if the prefix has three characters or more:
    a warning, an error after all others were set, or nothing ("ignore").

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> rate = flags.int("rate", 10)
    >>> load_environment(flags, {"APP_RATE": "20"}, "APP_"); rate.get(), str(rate.held)
    (20, 'environment APP_RATE')
    """
    check_choice("unknown", unknown, CHOICES["unknown"])
    known = _owners(flags, prefix)
    wanted: list[_Given] = []
    for flag in flags:
        given = [name for name in (variable(name, prefix) for name in flag.names) if name in environment]
        for name in given[:1]:
            several = f"{name} could mean {' or '.join(map(repr, known[name]))}: rename one, or give it an alias"
            content = environment[name] if len(known[name]) == 1 else FlagError(flag.name, several)
            wanted.append((flag, Slot(Origin.ENVIRONMENT, name), content))
    messages = _messages(_unknown(environment, prefix, known), prefix, known, flags.name)
    if unknown == "warn":
        for line in messages:
            log.warning("%s", line)
    _load(flags, wanted)
    if unknown == "error" and messages:
        raise UsageError("; ".join(messages))


def _unknown(environment: Mapping[str, str], prefix: str, known: Collection[str]) -> list[str]:
    """Return the variables that have the prefix and set no flag; none if the prefix is too short to be one.

    Kubernetes sets variables about the services of the namespace in every container: these are not meant for us.

    >>> shop = {"SHOP_RATE": "1", "SHOP_RATEE": "2", "SHOP_SERVICE_HOST": "10.0.0.1", "HOME": "/"}
    >>> _unknown(shop, "SHOP_", {"SHOP_RATE"})
    ['SHOP_RATEE']
    """
    start = variable("", prefix)
    if len(start) < _SHORTEST_PREFIX:
        return []
    ours = {name: value for name, value in environment.items() if name.startswith(start) and name not in known}
    addresses = {name for name, value in ours.items() if name.endswith("_PORT") and _ADDRESS.match(value)}
    return sorted(name for name in ours if name not in addresses and not _SERVICE.fullmatch(name))


def _messages(unknown: list[str], prefix: str, known: Collection[str], flags: str) -> list[str]:
    """Return a message for each unknown variable, and one for the rest of many."""
    lines, cut = [], len(prefix)
    for name in unknown[:_SHOWN]:
        close = closest(name[cut:], [each[cut:] for each in known])  # with the prefix, all names would be alike
        hint = f"; did you mean {name[:cut]}{close}?" if close else ""
        lines.append(f"{name} names no flag of the set {flags!r}{hint}")
    more = len(unknown) - _SHOWN
    return [*lines, f"and {more} more variables name none"] if more > 0 else lines


def load_files(flags: FlagSet) -> None:
    """Read the flags that have a `path_flag` from the files that those name; an empty path names none."""
    wanted: list[_Given] = []
    for flag in flags:
        companion = flags.find(path_name(flag.name)) if flag.traits.path_flag is not None else None
        if companion is not None and companion.get():
            path = companion.get()
            wanted.append((flag, Slot(Origin.FILE, path), _content(flag, path)))
    _load(flags, wanted)


def _owners(flags: FlagSet, prefix: str) -> dict[str, list[str]]:
    """Return the flags that each variable sets; `pool-size` and `pool_size` have the same variable."""
    owners: dict[str, list[str]] = {}
    for flag in flags:
        for name in {variable(name, prefix) for name in flag.names}:
            owners.setdefault(name, []).append(flag.name)
    return owners


def _content(flag: DynFlag[Any], path: str) -> bytes | FlagError:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST + 1)
    except OSError as error:
        return FlagError(flag.name, f"{path}: {error.strerror}")
    return content if len(content) <= _MOST else FlagError(flag.name, f"{path}: larger than the limit of {_MOST} bytes")


def _placed(error: FlagError, slot: Slot) -> FlagError:
    """Return the error with the variable or file in it."""
    named = not slot.place or slot.place in error.reason
    return error if named else type(error)(error.flag, f"{slot.place}: {error.reason}")


def _load(flags: FlagSet, wanted: Sequence[_Given]) -> None:
    rejected: list[FlagError] = []

    def decide() -> list[Put]:
        puts = []
        for flag, slot, content in wanted:
            try:
                flag.refuse_if_static()
                if isinstance(content, FlagError):
                    raise content
                puts.append(Put(flag, slot, flag.parse(content)))
            except FlagError as error:
                rejected.append(_placed(error, slot))
        return puts

    try:
        flags.commit(decide)
    except FlagError as error:  # a check over several flags
        rejected.append(error)
    if len(rejected) == 1:
        raise rejected[0]
    if rejected:
        names = ", ".join(error.flag for error in rejected[:_SHOWN])
        raise FlagError(names, "; ".join(map(str, rejected[:_SHOWN])))
