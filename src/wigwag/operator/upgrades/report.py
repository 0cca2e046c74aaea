"""How far an upgrade is, for people: the table of `wigwag sidecars`, the ConfigMap, and metrics.

The ConfigMap `open-feature-operator-sidecars` in the operator's namespace holds all of it, so `kubectl` shows it, too.
It has a bounded number of lines: those that need attention go first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wigwag.observe import Counter, Gauge
from wigwag.operator.upgrades.plan import STATES, UpgradePlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from wigwag.observe import Instrument
    from wigwag.operator.upgrades.plan import UpgradeState, WorkloadUpgrade
    from wigwag.operator.upgrades.policy import UpgradePolicy

REPORT = "open-feature-operator-sidecars"
"""The ConfigMap."""
MOST_LINES = 500
LONGEST_REASON = 200
LONGEST_TROUBLE = 500
HEADINGS = ("NAMESPACE", "WORKLOAD", "STATE", "PODS ON", "REASON")
_URGENCY = {state: at for at, state in enumerate(("failed", "upgrading", "behind", "excluded", "current"))}


class SidecarMetrics:
    """What the leader counts about agents that run."""

    def __init__(self) -> None:
        self.states: Mapping[UpgradeState, int] = {}
        """Pods by the state of their agent, when it was last looked."""
        self.paused = False
        self.missed = 0
        """Pods that should have an agent, and have none."""
        self.upgrades = Counter(
            "wigwag_sidecar_upgrades", "Agents (in-place) or workloads (restart) that were upgraded.", ("mode",)
        )
        self.evictions = Counter(
            "wigwag_watchdog_evictions", "Pods without an agent, by result: evicted, blocked, refused.", ("result",)
        )

    @property
    def instruments(self) -> tuple[Instrument, ...]:
        """What a registry shows."""
        return (
            Gauge(
                "wigwag_sidecar_agents",
                "Injected agents by state: current, upgrading, failed, behind, excluded.",
                lambda: [((state,), self.states.get(state, 0)) for state in STATES],
                ("state",),
            ),
            Gauge(
                "wigwag_sidecar_upgrade_paused",
                "Whether upgrades pause because an upgraded agent has failed.",
                lambda: [((), self.paused)],
            ),
            Gauge("wigwag_watchdog_pods", "Pods that ask for an agent and have none.", lambda: [((), self.missed)]),
            self.upgrades,
            self.evictions,
        )


def headline(policy: UpgradePolicy, plan: UpgradePlan, trouble: str = "") -> str:
    """Return how far everything is, in one line; `trouble` is what the API server said against a change.

    >>> from wigwag.operator.upgrades.policy import UpgradePolicy
    >>> policy = UpgradePolicy("in-place", "wigwag:2", "1", 300.0, 100.0)
    >>> headline(policy, UpgradePlan(states={"current": 3, "behind": 1}))
    '3 of 4 agents have the image wigwag:2; 1 behind'
    >>> headline(policy, UpgradePlan(states={"behind": 1}), "403: you may not patch pods")
    '0 of 1 agents have the image wigwag:2; 1 behind; a change failed, and is tried again: 403: you may not patch pods'
    """
    states = {state: number for state in STATES if (number := plan.states.get(state, 0))}
    others = [f"{number} {state}" for state, number in states.items() if state != "current"]
    total = f"{states.get('current', 0)} of {sum(states.values())} agents have the image {policy.image}"
    paused = [f"paused: {plan.paused}"] * bool(plan.paused)
    failed = [f"a change failed, and is tried again: {trouble[:LONGEST_TROUBLE]}"] * bool(trouble)
    return "; ".join([total, *([", ".join(others)] if others else []), *paused, *failed])


def table(lines: Iterable[WorkloadUpgrade]) -> list[tuple[str, ...]]:
    """Return the rows of the report, the most urgent first."""
    urgent = sorted(lines, key=lambda line: (_URGENCY[line.state], line.workload.name, line.workload.kind))
    return [_row(line) for line in urgent[:MOST_LINES]]


def _row(line: WorkloadUpgrade) -> tuple[str, ...]:
    name = line.workload.name
    images = ", ".join(f"{image} ({number})" for image, number in line.images.items())
    kind = (line.workload.kind or "Pod").lower()
    return name.namespace, f"{kind}/{name.name}", line.state, images, line.reason[:LONGEST_REASON]


def aligned(rows: Sequence[Sequence[str]], headings: Sequence[str] = HEADINGS) -> str:
    """Return rows as text in columns.

    >>> print(aligned([("shop", "deployment/web", "current", "wigwag:2 (3)", "")]), end="")
    NAMESPACE   WORKLOAD         STATE     PODS ON        REASON
    shop        deployment/web   current   wigwag:2 (3)
    """
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = ("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"{text.rstrip()}\n" for text in texts)


def report_data(policy: UpgradePolicy, plan: UpgradePlan, trouble: str = "") -> dict[str, str]:
    """Return the data of the ConfigMap."""
    return {
        "mode": policy.mode,
        "image": policy.image,
        "summary": headline(policy, plan, trouble),
        "paused": plan.paused,
        **{state: str(plan.states.get(state, 0)) for state in STATES},
        "workloads": aligned(table(plan.workloads)),
    }


def report_object(namespace: str, data: Mapping[str, str]) -> dict[str, Any]:
    """Return the ConfigMap."""
    metadata = {"name": REPORT, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
