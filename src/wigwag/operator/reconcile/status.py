"""Conditions of an object, and the Events about them.

A condition keeps its time while its status stays the same. So an unchanged state is an unchanged status, and nothing is
written. An Event is recorded when a condition changes, not each time that it is found. The conditions are in the
object, so a restarted operator repeats no Event.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from wigwag.kube.control.events import timestamp
from wigwag.operator.resources.kubernetes import Condition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ACCEPTED, RESOLVED, PROGRAMMED, GRANTED = "Accepted", "Resolved", "Programmed", "Granted"
"""The object makes sense; what it names exists and may be used; what follows is done; all who name it may."""
PROPAGATED = "Propagated"
"""All agents have the flags; `propagation.progress` has it."""
MOST_ITEMS = 10
"""The most objects that a message names."""
WARNINGS = "Warnings"
"""The reason of an accepted object about which there is something to say."""
UNRESOLVED, PROGRESSING, ROLLING_OUT = "Unresolved", "Progressing", "RollingOut"
"""Reasons that are no Event: another condition says why, or it will pass."""
_LONGEST = 32_768
"""Characters of a message that the schema allows."""


class ConditionState(NamedTuple):
    """What a condition says; the rest of it is bookkeeping."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


class ConditionEvent(NamedTuple):
    """An Event to record about the object."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class LiveMeta(Struct, frozen=True, kw_only=True, rename="camel"):
    """The metadata of a Deployment."""

    generation: int = 0
    creation_timestamp: datetime | None = None


class DeploymentCondition(Struct, frozen=True, kw_only=True):
    """A condition of a Deployment."""

    type: str
    status: str
    message: str = ""


class DeploymentStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """How far the controller of Deployments is."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    conditions: list[DeploymentCondition] = []


class LiveDeployment(Struct, frozen=True, kw_only=True):
    """A Deployment as the API server has it, as far as it counts here."""

    metadata: LiveMeta = LiveMeta()
    status: DeploymentStatus = DeploymentStatus()

    @classmethod
    def read(cls, live: Any) -> LiveDeployment:
        """Read a Deployment."""
        return msgspec.convert(live, cls)

    def rollout(self, replicas: int) -> ConditionState:
        """Return whether the pods that are wanted are ready, and what the controller of Deployments says if not."""
        status = self.status
        current = status.observed_generation >= self.metadata.generation
        updated = min(status.updated_replicas, status.ready_replicas) if current else 0
        message = f"{updated} of {replicas} replicas are ready"
        if current and updated >= replicas:
            return ConditionState("True", "Ready", message)
        failures = [each.message for each in status.conditions if _is_failure(each) and each.message]
        return ConditionState("False", "Failing" if failures else PROGRESSING, "; ".join([message, *failures]))


def _is_failure(condition: DeploymentCondition) -> bool:
    return (condition.type, condition.status) in (("ReplicaFailure", "True"), ("Progressing", "False"))


def conditions(
    previous: Sequence[Condition], states: Mapping[str, ConditionState], generation: int, now: float
) -> list[Condition]:
    """Return the conditions of an object of this generation; `previous` are those that it has."""
    before = {each.type: each for each in previous}
    return [
        Condition(
            type=name,
            status=state.status,
            reason=state.reason,
            message=state.message[:_LONGEST],
            last_transition_time=before[name].last_transition_time
            if name in before and before[name].status == state.status
            else timestamp(now),
            observed_generation=generation,
        )
        for name, state in states.items()
    ]


def listed(items: Sequence[str]) -> str:
    """Return items for a message, the first of them if there are many.

    >>> listed(["a", "b"]), listed([str(each) for each in range(12)])
    ('a; b', '0; 1; 2; 3; 4; 5; 6; 7; 8; 9; and 2 more')
    """
    more = len(items) - MOST_ITEMS
    return "; ".join([*items[:MOST_ITEMS], *([f"and {more} more"] if more > 0 else [])])


def events(previous: Sequence[Condition], current: Sequence[Condition]) -> list[ConditionEvent]:
    """Return the Events about what has changed. What holds from the start on is not worth one."""
    before = {each.type: each for each in previous}
    return [event for each in current if (event := _event(before.get(each.type), each)) is not None]


def _event(before: Condition | None, now: Condition) -> ConditionEvent | None:
    is_warning = now.status == "False" or now.reason == WARNINGS
    if now.status == "Unknown" or now.reason in (UNRESOLVED, PROGRESSING, ROLLING_OUT):
        return None
    if is_warning and (before is None or (before.reason, before.message) != (now.reason, now.message)):
        return ConditionEvent("Warning", now.reason if now.status == "False" else now.type, now.message)
    if now.status == "True" and before is not None and before.status != "True" and not is_warning:
        return ConditionEvent("Normal", now.type, now.message)
    return None
