"""The log lines about changes: one for each flag whose value is a different one now, at most ten for a generation.

Changes from outside are logged at INFO: environment, command line, ConfigMap, a value that expired. Changes that the
program makes itself are logged at DEBUG, and so are those over HTTP, because the page logs them with their author. The
value of a secret flag is never logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from wigwag.dflag.origin import Origin
from wigwag.dflag.values.numerals import shown

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag, Put
    from wigwag.dflag.origin import Held
    from wigwag.dflag.snapshot import Snapshot

log = logging.getLogger("wigwag.dflag")
_SHOWN = 10
_OWN = (Origin.DEFAULT, Origin.PROGRAM, Origin.TEST, Origin.HTTP)


def log_changes(puts: Iterable[Put], before: Snapshot, after: Mapping[DynFlag[Any], Held[Any]]) -> None:
    """Log the flags whose value has changed; `before` has the old values, `after` the new ones."""
    if not log.isEnabledFor(logging.INFO):
        return
    levels = _levels(puts)
    for level in (logging.INFO, logging.DEBUG):
        of_level = [(flag, before.held(flag).value, new) for flag, new in after.items() if levels[flag] == level]
        changes = [(flag, old, new) for flag, old, new in of_level if not flag.same(old, new.value)]
        for flag, old, new in changes[:_SHOWN]:
            values = "" if flag.secret else f": {shown(flag.show(old))} -> {shown(flag.show(new.value))}"
            log.log(level, "flag %r has changed%s (%s)", flag.name, values, new)
        if len(changes) > _SHOWN:
            log.log(level, "and %d more flags have changed", len(changes) - _SHOWN)


def _levels(puts: Iterable[Put]) -> dict[DynFlag[Any], int]:
    levels: dict[DynFlag[Any], int] = {}
    for put in puts:
        expired = put.drop and put.until is not None
        level = logging.DEBUG if put.slot.origin in _OWN and not expired else logging.INFO
        levels[put.flag] = max(level, levels.get(put.flag, level))
    return levels


def log_broken(faults: Iterable[str]) -> None:
    """Log the checks that no longer hold."""
    for fault in faults:
        log.error("a value has expired or an override has ended, and now a check is broken: %s", fault)
