"""How a watch, and the pipeline as a whole, is doing: immutable records that may be read at any time.

    starting ──value──▶ live ──failure, end, unavailable──▶ failing ──value──▶ live        any ──▶ stopped

A restart alone does not change the state: a watch is failing until its next value. The last error stays readable after
recovery.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeAlias

from wigwag.pipeline.spec import S

State: TypeAlias = Literal["starting", "live", "failing", "stopped"]


@dataclass(frozen=True, slots=True)
class Status(Generic[S]):
    """How one watch is doing. Times are those of the pipeline's clock."""

    spec: S
    since: float
    """When the state was entered."""
    state: State = "starting"
    answered: float | None = None
    """When the last value came."""
    confirmed: float | None = None
    """When it was last known to hold."""
    values: int = 0
    restarts: int = 0
    error: str | None = None
    """The last error; in the state `live` it is over."""
    failed: float | None = None
    """When the last error came."""

    def age(self, now: float) -> float | None:
        """Return how long ago the last value was known to hold, in seconds."""
        return None if self.confirmed is None else now - self.confirmed

    @property
    def restored(self) -> bool:
        """Whether the value is one from before: the watch itself has not answered yet."""
        return self.confirmed is not None and not self.values

    def good(self, now: float) -> Status[S]:
        """A value came."""
        return replace(self._entered("live", now), answered=now, confirmed=now, values=self.values + 1)

    def same(self, now: float) -> Status[S]:
        """The last value still holds. Before there is one, that means nothing."""
        return replace(self._entered("live", now), confirmed=now) if self.values else self

    def bad(self, error: str, now: float) -> Status[S]:
        """It failed, ended, or has nothing to show."""
        return replace(self._entered("failing", now), error=error, failed=now)

    def again(self) -> Status[S]:
        """It was started again."""
        return replace(self, restarts=self.restarts + 1)

    def stopped(self, now: float) -> Status[S]:
        """It is no longer wanted, or the pipeline has stopped."""
        return self._entered("stopped", now)

    def _entered(self, state: State, now: float) -> Status[S]:
        return self if state == self.state else replace(self, state=state, since=now)


@dataclass(frozen=True, slots=True)
class Report(Generic[S]):
    """How the pipeline is doing."""

    complete: bool
    """Whether the bootstrap gate is open: all that is required has answered once."""
    waiting: tuple[S, ...]
    """What is wanted and has not answered yet."""
    error: str | None
    """Why the newest values made no snapshot; None: they did. The last good snapshot stays."""
    statuses: tuple[Status[S], ...]
    unsettled: str | None = None
    """Why what `derive` wants is not watched; None: it is."""
