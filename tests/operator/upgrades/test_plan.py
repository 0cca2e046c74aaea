"""Which agents are upgraded next: the budget, one pod of a workload at a time, a pause, and that it always ends."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.known import NOW
from tests.operator.upgrades.fleets import NEW, OLD, TIMEOUT, agent, policy, web
from wigwag.operator.names import AGENT_UPGRADE
from wigwag.operator.upgrades.plan import UpgradePlan, plan_in_place, pod_state
from wigwag.operator.upgrades.pods import AgentUpgrade, SidecarPod

BEGUN = AgentUpgrade(NEW, "c1", NOW)


def names(plan: UpgradePlan) -> list[str]:
    return [each.pod.name.name for each in plan.pods]


def begun(name: str = "web-a", **more: Any) -> SidecarPod:
    """A pod whose agent was given the new image, and has not restarted yet."""
    return agent(name, image=NEW, upgrade=BEGUN)._replace(**more)


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        (agent(), "behind"),
        (agent(opted_out=True), "excluded"),
        (agent(image=NEW), "current"),
        (agent(image=NEW, agent_ready=False), "current"),  # it was created so
        (begun(), "upgrading"),
        (begun(container="c2", agent_ready=False), "upgrading"),
        (begun(container="c2"), "current"),
        (begun(trouble="CrashLoopBackOff", agent_ready=False), "failed"),
        (begun(trouble="ContainerCreating", agent_ready=False), "upgrading"),
        (begun(upgrade=AgentUpgrade(NEW, "c1", NOW - TIMEOUT - 1), agent_ready=False), "failed"),
        (begun(upgrade=AgentUpgrade(NEW, "c1", NOW - TIMEOUT - 1, ready=False), agent_ready=False), "current"),
        (begun(upgrade=AgentUpgrade(NEW, "c1", NOW, ready=False), trouble="CrashLoopBackOff"), "upgrading"),
        (begun(upgrade=AgentUpgrade("wigwag:0", "c0", NOW - 1e6)), "current"),  # of an earlier upgrade
    ],
)
def test_the_state_of_an_agent(pod: SidecarPod, state: str) -> None:
    assert pod_state(pod, policy(), (), NOW) == state


def test_a_pod_that_a_newer_replica_has_just_injected_is_left_to_it_for_a_while() -> None:
    fresh = agent(created=NOW + 10)
    assert names(plan_in_place([fresh], policy(), (), NOW + 20, leading_since=NOW)) == []
    assert names(plan_in_place([fresh], policy(), (), NOW + 80, leading_since=NOW)) == ["web-a"]
    assert names(plan_in_place([fresh], policy(), (), NOW + 20, leading_since=NOW + 15)) == ["web-a"]


def test_a_patch_that_the_watch_has_not_shown_counts() -> None:
    pods = [agent("web-a"), agent("web-b")]
    assert names(plan_in_place(pods, policy(), {"uid-web-a"}, NOW)) == []


def test_one_pod_of_a_workload_at_a_time_and_none_while_another_is_not_ready() -> None:
    pods = [agent("web-a"), agent("web-b"), agent("api-a", web(name="api")), agent("api-b", web(name="api"))]
    assert names(plan_in_place(pods, policy(), (), NOW)) == ["api-a", "web-a"]
    pods[3] = agent("api-b", web(name="api"), image=NEW, ready=False)
    plan = plan_in_place(pods, policy(), (), NOW)
    assert names(plan) == ["web-a"]
    assert {line.reason for line in plan.workloads} == {"", "1 of its pods are not ready"}


def test_a_pod_that_is_not_ready_has_nothing_to_lose_and_goes_first() -> None:
    pods = [agent("web-a"), agent("web-b", ready=False)]
    assert names(plan_in_place(pods, policy("1"), (), NOW)) == ["web-b"]


def test_the_budget_is_over_all_workloads_and_counts_what_is_on_its_way() -> None:
    pods = [agent(f"web-{at}", web(name=f"w{at}")) for at in range(20)]
    assert len(plan_in_place(pods, policy("10%"), (), NOW).pods) == 2
    pods[0] = begun("web-0", workload=web(name="w0"))
    plan = plan_in_place(pods, policy("10%"), (), NOW)
    assert names(plan) == ["web-1"]
    assert [each.after for each in plan_in_place(pods, policy("4"), (), NOW).pods] == [0.0, 0.1, 0.2]


def test_a_failure_pauses_everything_until_it_is_mended_or_the_image_changes() -> None:
    failed = begun(trouble="ImagePullBackOff", agent_ready=False, ready=False)
    other = agent("api-a", web(name="api"))
    plan = plan_in_place([failed, other], policy(), (), NOW)
    assert (names(plan), plan.states["failed"]) == ([], 1)
    assert plan.paused == "pod shop/web-a: the agent wigwag:2 is not ready: ImagePullBackOff"
    assert names(plan_in_place([begun(container="c2"), other], policy(), (), NOW)) == ["api-a"]
    plan = plan_in_place([failed, other], policy("1", image="wigwag:3"), (), NOW)
    assert names(plan) == ["web-a"], "the failed one first"
    record = next(each["value"] for each in plan.pods[0].patch if AGENT_UPGRADE.replace("/", "~1") in each["path"])
    assert '"ready":true' in record, "it was ready before the first attempt"


def test_the_patch_is_for_this_pod_and_this_image_only() -> None:
    (upgrade,) = plan_in_place([agent()], policy(), (), NOW).pods
    tests = {each["path"]: each["value"] for each in upgrade.patch if each["op"] == "test"}
    assert tests == {
        "/metadata/uid": "uid-web-a",
        "/spec/initContainers/0/name": "flagd",
        "/spec/initContainers/0/image": OLD,
    }


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    budget=st.sampled_from(["1", "3", "10%", "50%", "100%"]),
    order=st.randoms(use_true_random=False),
)
def test_every_agent_is_upgraded_once_within_the_budget_whenever_the_kubelet_gets_to_it(
    sizes: list[int], budget: str, order: Any
) -> None:
    given_policy, patched = policy(budget), Counter[str]()
    pods = {
        f"w{workload}-{at}": agent(f"w{workload}-{at}", web(name=f"w{workload}"))
        for workload, size in enumerate(sizes)
        for at in range(size)
    }
    for _ in range(2 * len(pods) + 1):
        for each in plan_in_place(pods.values(), given_policy, (), NOW).pods:
            name = each.pod.name.name
            patched[name] += 1
            pods[name] = each.pod._replace(image=NEW, upgrade=AgentUpgrade(NEW, each.pod.container, NOW))
        busy = [name for name, pod in pods.items() if pod_state(pod, given_policy, (), NOW) == "upgrading"]
        assert len(busy) <= given_policy.at_once(len(pods))
        assert max(Counter(pods[name].workload for name in busy).values(), default=0) <= 1
        if busy:
            restarted = order.choice(busy)
            pods[restarted] = pods[restarted]._replace(container="c2")
    assert patched == dict.fromkeys(pods, 1)
    assert all(pod.image == NEW for pod in pods.values())
