"""Conditions of an object's status. A condition that says the same keeps its time, so writing it again changes nothing.

`Accepted`: the object makes sense. `Resolved`: what it names exists and may be used. `Programmed`: what follows from it
has been done. `Granted`: everybody who names it may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from wigwag.kube.control.events import timestamp
from wigwag.operator.resources.kubernetes import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ACCEPTED, RESOLVED, PROGRAMMED, GRANTED = "Accepted", "Resolved", "Programmed", "Granted"
LONGEST = 4000
"""The most characters of a message."""
MOST_ITEMS = 10
"""The most objects that a message names."""


class ConditionState(NamedTuple):
    """What a condition says, without the time since when."""

    type: str
    is_true: bool
    reason: str
    message: str = ""


def updated_conditions(
    before: Iterable[Condition], states: Iterable[ConditionState], generation: int, now: float
) -> list[Condition]:
    """Return the conditions for a status. What has another value than before has it since `now`, in Unix seconds."""
    since = {(each.type, each.status): each.last_transition_time for each in before}
    return [
        Condition(
            type=state.type,
            status=(status := str(state.is_true)),
            reason=state.reason,
            message=state.message[:LONGEST],
            last_transition_time=since.get((state.type, status)) or timestamp(now),
            observed_generation=generation,
        )
        for state in states
    ]


def listed(items: Sequence[str]) -> str:
    """Return items for a message, the first of them if there are many.

    >>> listed(["a", "b"]), listed([str(each) for each in range(12)])
    ('a; b', '0; 1; 2; 3; 4; 5; 6; 7; 8; 9; and 2 more')
    """
    more = len(items) - MOST_ITEMS
    return "; ".join([*items[:MOST_ITEMS], *([f"and {more} more"] if more > 0 else [])])
