"""Whether a pod that was created without an agent may be evicted, so that it is created again with one.

A pod is missed if the webhook was not called for it: no operator answered and the failure policy is `Ignore`, or the
operator was installed later. To evict it is right only if the webhook is called *now*. Otherwise the next pod is
missed, too, and would be evicted, for ever. The API server tells nobody whether it calls a webhook, so pods have to:

| the youngest pod that asks for an agent | then |
|---|---|
| has one | the webhook is called: evict |
| has none, and nothing was tried | try: evict one pod, and wait for the next one |
| has none, and it is the next one after a try | the webhook is not called: evict nobody until a pod gets an agent |

So a webhook that is down costs one pod, and another one each time that the operator is restarted meanwhile.

The hard case is a webhook that is called, but not for these pods: a selector of the installation leaves them out. Then
the pods that come after an eviction are missed although others get agents, and their workload is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from wigwag.operator.upgrades.pods import MissedPod, SidecarPod, WorkloadName

NOT_CALLED = "new pods are still created without an agent, so the webhook is not called; look at its configuration"
NOT_FOR_IT = "its pod was evicted and came back without an agent, so the webhook is not called for it"


class EvictionFinding(NamedTuple):
    """What becomes of a missed pod now."""

    action: Literal["evict", "wait", "leave"]
    reason: str = ""


def is_called(agents: Iterable[SidecarPod], missed: Iterable[MissedPod]) -> bool:
    """Tell whether the webhook is called, as far as pods show: the youngest of them has an agent."""
    return max((pod.created for pod in agents), default=0.0) > max((pod.created for pod in missed), default=0.0)


@dataclass(frozen=True)
class EvictionGuard:
    """What the evictions so far have shown."""

    tried: frozenset[str] = frozenset()
    """The pods that there were when one was evicted without knowing that the webhook is called, by uid."""
    replaced: Mapping[WorkloadName, frozenset[str]] = field(default_factory=dict)
    """Of workloads with pods that were evicted, knowing it: their missed pods at that time."""

    def finding(self, pod: MissedPod, agents: Sequence[SidecarPod], missed: Sequence[MissedPod]) -> EvictionFinding:
        """Return what becomes of a pod; `agents` and `missed` are all pods that ask for an agent."""
        if pod.uid not in self.replaced.get(pod.workload, (pod.uid,)):
            return EvictionFinding("leave", NOT_FOR_IT)
        if not self.tried or is_called(agents, missed):
            return EvictionFinding("evict")
        if any(each.uid not in self.tried for each in missed):
            return EvictionFinding("leave", NOT_CALLED)
        return EvictionFinding("wait" if self.tried.issuperset(each.uid for each in agents) else "evict")

    def after(self, pod: MissedPod, agents: Sequence[SidecarPod], missed: Sequence[MissedPod]) -> EvictionGuard:
        """Return the guard after a pod was evicted."""
        if not is_called(agents, missed):
            known = {each.uid for each in agents} | {each.uid for each in missed}
            return EvictionGuard(frozenset(known), self.replaced)
        others = frozenset(each.uid for each in missed if each.workload == pod.workload)
        return EvictionGuard(frozenset(), {**self.replaced, pod.workload: others})
