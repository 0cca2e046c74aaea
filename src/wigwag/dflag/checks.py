"""Rules over several flags: what must hold after every change, or else nothing of it is made.

A rule looks at the snapshot that there would be. One that is broken already refuses nothing: a value that runs out, or
an override that ends, cannot be refused, and what is changed after that may have nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from wigwag.errors import FlagError

if TYPE_CHECKING:
    from wigwag.dflag.snapshot import Snapshot

_SHOWN = 10


class Check(NamedTuple):
    """A rule, and the words for it."""

    holds: Callable[[Snapshot], object]
    wants: str

    def fault(self, snapshot: Snapshot) -> str | None:
        """Return what is wrong with a snapshot, if anything is. What a rule raises may hold a secret, and is not told.

        >>> from wigwag.dflag.snapshot import Snapshot
        >>> Check(lambda found: found["low"] <= found["high"], "low must be at most high").fault(Snapshot(0, {}, {}))
        'low must be at most high (the check raised KeyError)'
        """
        try:
            answer = self.holds(snapshot)
            broken = answer is not None and not answer
        except ValueError:
            return self.wants
        except Exception as error:  # noqa: BLE001 - the user's function; what it cannot judge does not pass
            return f"{self.wants} (the check raised {type(error).__name__})"
        return self.wants if broken else None


def newly_broken(checks: Iterable[Check], before: Snapshot, after: Snapshot) -> list[str]:
    """Return what a change would break."""
    found = ((check, check.fault(after)) for check in checks)
    return [fault for check, fault in found if fault is not None and check.fault(before) is None]


def refusal(names: Iterable[str], faults: Iterable[str]) -> FlagError:
    """Return the error for a change of these flags."""
    return FlagError(", ".join(sorted(names)[:_SHOWN]), "; ".join(faults))
