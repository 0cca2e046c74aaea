"""Which workloads are rolled next, so that their new pods get agents with the operator's image.

A rollout is that of `reconcile.rollout`, which also writes the image into the pod template: so each workload is rolled
once for an image, whoever leads. From then on it is its own controller that replaces pods, in its own way, and the
workload counts as upgrading until all of them have the image and are ready. A new pod whose agent fails, or takes too
long, pauses everything, as in `plan`.

The hard case is a workload that would get no new pods: they would be refused, it is paused, or it replaces pods only
when somebody deletes them. It is left alone, and the report says why.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from wigwag.operator.reconcile.rollout import HeldRollout
from wigwag.operator.reconcile.status import listed
from wigwag.operator.upgrades.plan import (
    FAILURES,
    UpgradePlan,
    UpgradeState,
    WorkloadUpgrade,
    failure,
    images_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from wigwag.operator.reconcile.rollout import Rollout, RolloutPlanner
    from wigwag.operator.reconcile.workloads import Workload
    from wigwag.operator.upgrades.pods import SidecarPod, WorkloadName
    from wigwag.operator.upgrades.policy import UpgradePolicy


def plan_restarts(
    pods: Iterable[SidecarPod],
    workload: Callable[[WorkloadName], Workload | None],
    policy: UpgradePolicy,
    sent: Collection[str],
    planner: RolloutPlanner,
) -> UpgradePlan:
    """Return the workloads that are rolled now. `workload` finds one by its name."""
    grouped: dict[WorkloadName, list[SidecarPod]] = {}
    for pod in pods:
        grouped.setdefault(pod.workload, []).append(pod)
    lines: list[WorkloadUpgrade] = []
    failed: list[SidecarPod] = []
    due: list[Rollout] = []
    states, busy = Counter[UpgradeState](), 0
    for name, members in sorted(grouped.items()):
        live = workload(name)
        state = _state(live, members, policy, sent, planner.now)
        broken = [pod for pod in members if _is_failing(pod, policy, planner.now)] if state == "failed" else []
        reason = listed([failure(pod) for pod in broken])
        busy += state in ("upgrading", "failed")
        if state == "behind":
            rollout = live and planner.for_agent(live, policy.image, len(due) / policy.rate)
            if isinstance(rollout, HeldRollout):
                reason = rollout.reason
            elif rollout is None:
                reason = "the operator does not restart workloads of this kind"
            else:
                due.append(rollout)
        failed += broken
        states.update(_pod_states(members, state, policy))
        lines.append(WorkloadUpgrade(name, images_of(members), state, reason))
    total = sum(line.state != "excluded" for line in lines)
    room = 0 if failed else max(0, policy.at_once(total) - busy)
    return UpgradePlan(rollouts=tuple(due[:room]), failed=tuple(failed), states=states, workloads=tuple(lines))


def _state(
    live: Workload | None, pods: Sequence[SidecarPod], policy: UpgradePolicy, sent: Collection[str], now: float
) -> UpgradeState:
    """Return how far a workload is."""
    old = [pod for pod in pods if pod.image != policy.image]
    if live is not None and (live.agent_image == policy.image or live.uid in sent):
        if any(_is_failing(pod, policy, now) for pod in pods):
            return "failed"
        is_waiting = any(not pod.ready and now - pod.created <= policy.timeout for pod in pods)
        return "upgrading" if old or is_waiting else "current"
    if not old:
        return "current"
    return "excluded" if all(pod.opted_out for pod in old) else "behind"


def _is_failing(pod: SidecarPod, policy: UpgradePolicy, now: float) -> bool:
    late = now - pod.created > policy.timeout
    return pod.image == policy.image and not pod.agent_ready and (late or pod.trouble in FAILURES)


def _pod_states(pods: Sequence[SidecarPod], state: UpgradeState, policy: UpgradePolicy) -> Iterable[UpgradeState]:
    """Yield the state of each pod: one with the image is current, whatever its workload is, unless that has failed."""
    for pod in pods:
        yield "current" if pod.image == policy.image and state != "failed" else state
