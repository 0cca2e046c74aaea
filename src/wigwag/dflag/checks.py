"""Checks over several flags: a change that would break one is rejected as a whole.

A check gets the snapshot as it would be after the change. A check that is broken already rejects nothing: a value that
expires, or an override that ends, cannot be rejected, and the next change may have nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from wigwag.dflag.snapshot import Snapshot


class Check(NamedTuple):
    """A condition, and the message for when it does not hold."""

    holds: Callable[[Snapshot], object]
    wants: str

    def fault(self, snapshot: Snapshot) -> str | None:
        """Return what is wrong with a snapshot, or None. The text of an exception may contain a secret: leave it out.

        >>> from wigwag.dflag.snapshot import Snapshot
        >>> Check(lambda after: after["low"] <= after["high"], "low must be at most high").fault(Snapshot(0, {}, {}))
        'low must be at most high (the check raised KeyError)'
        """
        try:
            answer = self.holds(snapshot)
            broken = answer is not None and not answer
        except ValueError:
            return self.wants
        except Exception as error:  # noqa: BLE001 - the user's function; if it fails, the change does not pass
            return f"{self.wants} (the check raised {type(error).__name__})"
        return self.wants if broken else None


def newly_broken(checks: Iterable[Check], before: Snapshot, after: Snapshot) -> list[str]:
    """Return the faults that a change would cause."""
    faults = ((check, check.fault(after)) for check in checks)
    return [fault for check, fault in faults if fault is not None and check.fault(before) is None]
