"""Which workloads are rolled for another image of their agents, and which wait, or are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.known import NOW, Laid, settings, source_object
from tests.operator.upgrades.fleets import NEW, TIMEOUT, agent, policy, web
from wigwag.kube.kinds import DEPLOYMENT
from wigwag.operator.names import ObjectName
from wigwag.operator.reconcile.rollout import RolloutPlanner
from wigwag.operator.reconcile.workloads import Workload
from wigwag.operator.upgrades.plan import UpgradePlan
from wigwag.operator.upgrades.pods import SidecarPod, WorkloadName
from wigwag.operator.upgrades.restarts import plan_restarts

SOURCE = {"source": "http://flags.test", "provider": "http"}


def workload(name: str, **more: Any) -> Workload:
    key = ObjectName("shop", name)
    named = (ObjectName("shop", "flags"),)
    made = Workload(DEPLOYMENT, key, f"uid-{name}", ObjectName("shop", "default"), "sidecar", named, None)
    return made._replace(**more)


def plan(
    pods: list[SidecarPod], *workloads: Workload, budget: str = "1", sent: tuple[str, ...] = (), sources: Any = None
) -> UpgradePlan:
    known = Laid(sources={"shop/flags": source_object(SOURCE)} if sources is None else sources)
    planner = RolloutPlanner(known=known, settings=settings(), now=NOW, rate=10.0)
    live = {WorkloadName("Deployment", each.name): each for each in workloads}
    return plan_restarts(pods, live.get, policy(budget, mode="restart"), sent, planner)


def rolled(made: UpgradePlan) -> list[str]:
    return [each.workload.name.name for each in made.rollouts]


def test_workloads_are_rolled_within_the_budget_and_the_next_when_one_is_done() -> None:
    api, both = agent("api-a", web(name="api")), (workload("api"), workload("web"))
    assert rolled(plan([api, agent()], *both)) == ["api"]
    assert rolled(plan([api, agent()], *both, budget="100%")) == ["api", "web"]
    assert rolled(plan([api, agent()], *both, sent=("uid-api",))) == [], "the watch has not shown it yet"
    begun = workload("api", agent_image=NEW)
    assert rolled(plan([api, agent()], begun, both[1])) == [], "its old pod is there"
    new = api._replace(image=NEW, ready=False)
    assert rolled(plan([new, agent()], begun, both[1])) == [], "its new pod is not ready"
    assert rolled(plan([new._replace(ready=True), agent()], begun, both[1])) == ["web"]


def test_a_new_pod_whose_agent_fails_pauses_everything() -> None:
    failed = agent("api-a", web(name="api"), image=NEW, agent_ready=False, ready=False, trouble="CrashLoopBackOff")
    both = workload("api", agent_image=NEW), workload("web")
    made = plan([failed, agent()], *both, budget="100%")
    assert (rolled(made), made.paused) == ([], "pod shop/api-a: the agent wigwag:2 is not ready: CrashLoopBackOff")
    late = failed._replace(trouble="", created=NOW - TIMEOUT - 1)
    assert plan([late, agent()], *both, budget="100%").paused
    assert not plan([failed, agent()], workload("api"), both[1]).paused, "it was not rolled by us"


@pytest.mark.parametrize(
    ("pod", "live", "sources", "reason"),
    [
        (agent(), workload("web", not_rolled="it is paused"), None, "it is paused"),
        (agent(), workload("web"), {}, "it names sources that do not exist"),
        (agent("x", web("ReplicaSet", "x")), workload("web"), None, "does not restart workloads of this kind"),
    ],
)
def test_a_workload_that_would_get_no_new_pods_is_left_alone(
    pod: SidecarPod, live: Workload, sources: Any, reason: str
) -> None:
    made = plan([pod], live, sources=sources)
    assert rolled(made) == []
    assert reason in made.workloads[0].reason


def test_a_workload_that_keeps_its_agents_takes_no_budget() -> None:
    pods = [agent("api-a", web(name="api"), opted_out=True), agent()]
    made = plan(pods, workload("api"), workload("web"))
    assert rolled(made) == ["web"]
    assert made.states == {"excluded": 1, "behind": 1}


def test_a_rollout_is_for_one_image_and_happens_once() -> None:
    (rollout,) = plan([agent()], workload("web", agent_image="wigwag:0")).rollouts
    path = "/spec/template/metadata/annotations/openfeature.dev~1agent-image"
    assert {"op": "test", "path": path, "value": "wigwag:0"} in rollout.patch
    assert {"op": "add", "path": path, "value": NEW} in rollout.patch
