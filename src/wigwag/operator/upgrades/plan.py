"""Which agents are upgraded next, as a function of the pods that there are.

| state of a pod | its agent |
|---|---|
| `current` | has the operator's image, and is ready or was never upgraded in place |
| `upgrading` | was given the image, and is not ready yet |
| `failed` | was ready before, was given the image, and crashes, cannot be pulled or is not ready in time |
| `behind` | has another image |
| `excluded` | has another image, and its pod or namespace wants it so |

One failed agent pauses everything: nothing more is touched until it is ready, or the operator's image changes. Then
its pod is `behind` like others, and goes first, since it has nothing to lose.

At most one pod of a workload is taken out of service at a time, whatever the budget says, and none while another one is
not ready for any reason: the operator does not see disruption budgets, and stays below all but the strictest of them.

All of it follows from the pods, so a restart of the operator changes nothing. The hard case is a patch that the watch
does not show yet: `sent` has the uids of those pods, and they count as upgrading.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from wigwag.operator.names import AGENT, AGENT_UPGRADE
from wigwag.operator.reconcile.status import listed
from wigwag.operator.upgrades.pods import AgentUpgrade

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from wigwag.operator.injection.patch import Patch
    from wigwag.operator.reconcile.rollout import Rollout
    from wigwag.operator.upgrades.pods import SidecarPod, WorkloadName
    from wigwag.operator.upgrades.policy import UpgradePolicy

UpgradeState: TypeAlias = Literal["current", "upgrading", "failed", "behind", "excluded"]
STATES: tuple[UpgradeState, ...] = ("current", "upgrading", "failed", "behind", "excluded")
FAILURES = frozenset(
    (
        *("CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("CreateContainerError", "RunContainerError"),
    )
)
"""Why a container waits, where waiting does not help."""
FRESH = 60.0
"""Seconds: longer than it takes until another replica leads."""
PER_WORKLOAD = 1
"""The most pods of a workload that may be out of service because of us."""


class PodUpgrade(NamedTuple):
    """A pod whose agent is to be upgraded in place."""

    pod: SidecarPod
    patch: Patch
    """A JSON patch. It tests the container and the image that the plan is based on, so that no agent is upgraded twice,
    and one that somebody else has changed is left alone."""
    after: float
    """Seconds from now."""


class WorkloadUpgrade(NamedTuple):
    """How far a workload is: a line of the report."""

    workload: WorkloadName
    images: Mapping[str, int]
    """How many pods have which image."""
    state: UpgradeState
    reason: str = ""
    """Why it does not go on."""


@dataclass(frozen=True)
class UpgradePlan:
    """What is to be done now, and how far everything is."""

    pods: tuple[PodUpgrade, ...] = ()
    rollouts: tuple[Rollout, ...] = ()
    failed: tuple[SidecarPod, ...] = ()
    states: Mapping[UpgradeState, int] = field(default_factory=Counter)
    """Pods by state."""
    workloads: tuple[WorkloadUpgrade, ...] = ()

    @property
    def paused(self) -> str:
        """Why nothing more is upgraded; empty: it goes on."""
        return listed([failure(pod) for pod in self.failed])

    @property
    def is_busy(self) -> bool:
        """Whether something may change with time, and not only with a pod."""
        return bool(self.states.get("upgrading") or self.states.get("behind"))


def pod_state(pod: SidecarPod, policy: UpgradePolicy, sent: Collection[str], now: float) -> UpgradeState:
    """Return how far the agent of a pod is."""
    if pod.image != policy.image:
        if pod.uid in sent:
            return "upgrading"
        return "excluded" if pod.opted_out else "behind"
    if pod.upgrade is None or pod.upgrade.image != policy.image or pod.is_settled:
        return "current"
    late = now - pod.upgrade.at > policy.timeout
    if pod.upgrade.ready:
        return "failed" if late or pod.trouble in FAILURES else "upgrading"
    return "current" if late else "upgrading"  # it was not ready before either: it holds up nobody


def plan_in_place(
    pods: Iterable[SidecarPod],
    policy: UpgradePolicy,
    sent: Collection[str],
    now: float,
    leading_since: float = math.inf,
) -> UpgradePlan:
    """Return the pods whose agents are upgraded now."""
    grouped: dict[WorkloadName, list[tuple[SidecarPod, UpgradeState]]] = {}
    for pod in pods:
        grouped.setdefault(pod.workload, []).append((pod, pod_state(pod, policy, sent, now)))
    states = Counter(state for members in grouped.values() for _, state in members)
    failed = sorted(pod for members in grouped.values() for pod, state in members if state == "failed")
    lines: list[WorkloadUpgrade] = []
    candidates: list[SidecarPod] = []
    for workload, members in sorted(grouped.items()):
        chosen, reason = _next_pods(members)
        candidates += [pod for pod in chosen if not is_fresh(pod, leading_since, now)]
        lines.append(_line(workload, members, reason))
    total = sum(states.values()) - states["excluded"]
    room = 0 if failed else max(0, policy.at_once(total) - states["upgrading"])
    turn = sorted(candidates, key=lambda pod: (pod.ready, pod.name))[:room]
    upgrades = tuple(PodUpgrade(pod, upgrade_patch(pod, policy, now), at / policy.rate) for at, pod in enumerate(turn))
    return UpgradePlan(upgrades, failed=tuple(failed), states=states, workloads=tuple(lines))


def is_fresh(pod: SidecarPod, leading_since: float, now: float) -> bool:
    """Tell whether a pod was created a moment ago with another image than that of this leader.

    While the operator itself is upgraded, replicas of two versions answer. The newer one has injected this pod, and
    will lead soon: to give the pod the older image would restart its agent twice.
    """
    return pod.upgrade is None and leading_since < pod.created and now - pod.created < FRESH


def _next_pods(members: Sequence[tuple[SidecarPod, UpgradeState]]) -> tuple[list[SidecarPod], str]:
    """Return the pods of a workload that may be upgraded now, and why others have to wait."""
    busy = sum(state in ("upgrading", "failed") for _, state in members)
    out_of_service = sum(not pod.ready or state in ("upgrading", "failed") for pod, state in members)
    behind = sorted((pod for pod, state in members if state == "behind"), key=lambda pod: (pod.ready, pod.name))
    chosen: list[SidecarPod] = [pod for pod in behind if not pod.ready]
    for pod in behind[len(chosen) :]:
        if out_of_service >= PER_WORKLOAD:
            others = out_of_service - busy - len(chosen)
            return chosen, f"{others} of its pods are not ready" if others > 0 and not busy else ""
        out_of_service += 1
        chosen.append(pod)
    return chosen, ""


def _line(workload: WorkloadName, members: Sequence[tuple[SidecarPod, UpgradeState]], reason: str) -> WorkloadUpgrade:
    """Return how far a workload is: as far as the pod that needs most attention."""
    present = {state for _, state in members}
    state = next(each for each in ("failed", "upgrading", "behind", "excluded", "current") if each in present)
    failures = [failure(pod) for pod, each in members if each == "failed"]
    return WorkloadUpgrade(workload, images_of(pod for pod, _ in members), state, listed(failures) or reason)


def images_of(pods: Iterable[SidecarPod]) -> dict[str, int]:
    """Return how many pods have which image."""
    return dict(sorted(Counter(pod.image for pod in pods).items()))


def upgrade_patch(pod: SidecarPod, policy: UpgradePolicy, now: float) -> Patch:
    """Return the JSON patch that gives a pod's agent the image, and records what ran before."""
    ready = pod.agent_ready if pod.is_settled or pod.upgrade is None else pod.upgrade.ready
    record = AgentUpgrade(policy.image, pod.container, now, ready)
    return (
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
        {"op": "test", "path": f"{pod.path}/name", "value": AGENT},
        {"op": "test", "path": f"{pod.path}/image", "value": pod.image},
        {"op": "replace", "path": f"{pod.path}/image", "value": policy.image},
        {
            "op": "add",
            "path": f"/metadata/annotations/{AGENT_UPGRADE.replace('/', '~1')}",
            "value": msgspec.json.encode(record).decode(),
        },
    )


def failure(pod: SidecarPod) -> str:
    """Return what is wrong with an agent."""
    return f"pod {pod.name}: the agent {pod.image} is not ready" + f": {pod.trouble}" * bool(pod.trouble)
