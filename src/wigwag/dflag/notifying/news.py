"""What the log says of changes: a line for each flag whose value has become another, the first ten of a generation.

What somebody else has changed is told at INFO: the environment, a command line, a ConfigMap, an override that has run
out. What the program has changed itself is told at DEBUG, and so is what came over HTTP, which the page tells with who
it was. A secret is not told, only that it has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from wigwag.dflag.origin import Origin
from wigwag.dflag.values.numerals import shown

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.origin import Held
    from wigwag.dflag.store import Put

log = logging.getLogger("wigwag.dflag")
_SHOWN = 10
_OWN = (Origin.DEFAULT, Origin.PROGRAM, Origin.TEST, Origin.HTTP)


class ChangeLog(NamedTuple):
    """A flag, and what it held before and after."""

    flag: DynFlag[Any]
    old: Held[Any]
    new: Held[Any]
    level: int


def wanted() -> bool:
    """Tell whether anybody would read it."""
    return log.isEnabledFor(logging.INFO)


def level_of(puts: Iterable[Put]) -> dict[DynFlag[Any], int]:
    """Return at which level the change of each flag is told."""
    levels: dict[DynFlag[Any], int] = {}
    for put in puts:
        ran_out = put.drop and put.until is not None
        level = logging.DEBUG if put.slot.origin in _OWN and not ran_out else logging.INFO
        levels[put.flag] = max(level, levels.get(put.flag, level))
    return levels


def tell(news: Sequence[ChangeLog], broken: Sequence[str]) -> None:
    """Log what has changed, and which rules no longer hold."""
    for level in (logging.INFO, logging.DEBUG):
        mine = [each for each in news if each.level == level]
        for flag, old, new, _ in mine[:_SHOWN]:
            told = "" if flag.secret else f": {shown(flag.show(old.value))} -> {shown(flag.show(new.value))}"
            log.log(level, "flag %r has changed%s (%s)", flag.name, told, new)
        if len(mine) > _SHOWN:
            log.log(level, "and %d more flags have changed", len(mine) - _SHOWN)
    for fault in broken:
        log.error("a value has run out or an override has ended, and now a check is broken: %s", fault)
