"""How agents are upgraded: the mode, the image that they should have, how many at once, and when one has failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from wigwag.operator.settings import OperatorSettings

UpgradeMode: TypeAlias = Literal["off", "in-place", "restart"]


@dataclass(frozen=True)
class UpgradePolicy:
    """What the settings say about upgrades."""

    mode: UpgradeMode
    image: str
    """The one that all agents should have."""
    budget: str
    """How many may be upgraded at once: a number, or a percentage of all."""
    timeout: float
    """Seconds that an upgraded agent may take to be ready."""
    rate: float
    """Patches in a second."""

    @classmethod
    def of(cls, settings: OperatorSettings) -> UpgradePolicy:
        """Return the policy of an operator."""
        given = settings.options
        mode: UpgradeMode = given.sidecar_upgrade  # type: ignore[assignment]  # one of the option's choices
        budget, timeout = given.sidecar_upgrade_budget, given.sidecar_upgrade_timeout
        return cls(mode, settings.sidecar.reference, budget, timeout, float(given.rollout_rate))

    def at_once(self, total: int) -> int:
        """Return how many of so many may be upgraded at once; never none, or nothing would ever happen.

        >>> policy = UpgradePolicy("in-place", "wigwag:2", "10%", 300.0, 100.0)
        >>> policy.at_once(100), policy.at_once(19), policy.at_once(3)
        (10, 1, 1)
        """
        if self.budget.endswith("%"):
            return max(1, total * int(self.budget[:-1]) // 100)
        return int(self.budget)
