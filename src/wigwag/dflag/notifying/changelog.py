"""The log lines about changes: one for each flag whose value is a different one now, at most ten for a generation.

Changes from outside are logged at INFO: environment, command line, ConfigMap, a value that expired. Changes that the
program makes itself are logged at DEBUG, and so are those over HTTP, because the page logs them with their author. The
value of a secret flag is never logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from wigwag.dflag.origin import Origin
from wigwag.dflag.values.numerals import shown

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag, Put
    from wigwag.dflag.origin import Held

log = logging.getLogger("wigwag.dflag")
_SHOWN = 10
_OWN = (Origin.DEFAULT, Origin.PROGRAM, Origin.TEST, Origin.HTTP)


class LoggedChange(NamedTuple):
    """A flag, and its values before and after."""

    flag: DynFlag[Any]
    old: Held[Any]
    new: Held[Any]
    level: int


def enabled() -> bool:
    """Tell whether changes are logged at all."""
    return log.isEnabledFor(logging.INFO)


def levels_of(puts: Iterable[Put]) -> dict[DynFlag[Any], int]:
    """Return the level at which the change of each flag is logged."""
    levels: dict[DynFlag[Any], int] = {}
    for put in puts:
        expired = put.drop and put.until is not None
        level = logging.DEBUG if put.slot.origin in _OWN and not expired else logging.INFO
        levels[put.flag] = max(level, levels.get(put.flag, level))
    return levels


def log_changes(changes: Sequence[LoggedChange], broken: Sequence[str]) -> None:
    """Log what has changed, and which checks no longer hold."""
    for level in (logging.INFO, logging.DEBUG):
        of_level = [change for change in changes if change.level == level]
        for flag, old, new, _ in of_level[:_SHOWN]:
            values = "" if flag.secret else f": {shown(flag.show(old.value))} -> {shown(flag.show(new.value))}"
            log.log(level, "flag %r has changed%s (%s)", flag.name, values, new)
        if len(of_level) > _SHOWN:
            log.log(level, "and %d more flags have changed", len(of_level) - _SHOWN)
    for fault in broken:
        log.error("a value has expired or an override has ended, and now a check is broken: %s", fault)
