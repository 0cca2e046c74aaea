"""The watchdog, in a cluster in memory: whom it evicts, whom not, how fast, and that it stops."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.controllers.world import World, refusal
from tests.pipeline.fakes import run
from wigwag.kube.kinds import POD
from wigwag.operator.names import ENABLED, FEATURE_FLAG_SOURCE


class Kennel(World):
    """Pods that ask for agents, most of which have none."""

    def __init__(self, watchdog: str = "10s", **options: Any) -> None:
        super().__init__(watchdog=watchdog, **options)
        self.source({"source": "http://flags.test", "provider": "http"})

    def pod(self, name: str, *, agent: bool = False, second: int = 0, source: str = "flags", **more: Any) -> None:
        app = name.partition("-")[0]
        owner = {"kind": "ReplicaSet", "name": f"{app}-5f6", "controller": True, "uid": "1"}
        spec = {"containers": [{"name": "app"}], **({"initContainers": [{"name": "flagd"}]} if agent else {})}
        about = {
            "annotations": {ENABLED: "true", FEATURE_FLAG_SOURCE: source},
            "labels": {"pod-template-hash": "5f6"},
            "ownerReferences": [owner],
            "creationTimestamp": f"2026-01-01T00:00:{second:02}Z",
        }
        self.put(POD, name, spec, **{**about, **more})

    async def pass_time(self, seconds: float = 1.0) -> None:
        for _ in range(int(seconds)):
            await self.settle()
            await self.clock.advance(1.0)
        await self.settle()

    async def evicted(self) -> list[str]:
        return [each.rpartition("/")[2] for each in await self.since("eviction")]


@pytest.mark.parametrize("mode", ["once", "10s"])
def test_missed_pods_are_evicted_at_the_rate_if_the_webhook_is_called(mode: str) -> None:
    async def body() -> None:
        kennel = Kennel(mode, watchdog_rate=12)
        kennel.workload("web")
        for name in ("web-a", "web-b", "web-c"):
            kennel.pod(name)
        kennel.pod("new-a", agent=True, second=1)
        async with kennel.running():
            assert await kennel.evicted() == ["web-a"]
            await kennel.pass_time(4)
            assert await kennel.evicted() == []
            await kennel.pass_time(8)
            assert await kennel.evicted() == ["web-b", "web-c"]
            assert ("Deployment", "team-a/web", "Normal", "AgentMissing") in {e[:4] for e in kennel.recorder.events}
            kennel.pod("later-a")
            await kennel.pass_time(20)
            assert await kennel.evicted() == ([] if mode == "once" else ["later-a"])

    run(body)


def test_a_webhook_that_is_not_called_costs_one_pod() -> None:
    async def body() -> None:
        kennel = Kennel(watchdog_rate=600)
        for name in ("web-a", "web-b"):
            kennel.pod(name)
        async with kennel.running():
            assert await kennel.evicted() == ["web-a"]
            await kennel.pass_time(30)
            assert await kennel.evicted() == [], "the next pod is not there yet"
            kennel.pod("web-c", second=1)
            await kennel.pass_time(60)
            assert await kennel.evicted() == []
            assert "the webhook is not called" in kennel.recorder.events[-1][-1]
            assert kennel.context.sidecars.missed == 2
            kennel.pod("new-a", agent=True, second=2)
            await kennel.pass_time(12)
            assert await kennel.evicted() == ["web-b", "web-c"]

    run(body)


def test_pods_that_would_not_come_back_with_an_agent_are_left_alone() -> None:
    async def body() -> None:
        kennel = Kennel(watchdog_rate=600)
        kennel.pod("new-a", agent=True, second=1)
        kennel.pod("bare", ownerReferences=[])
        kennel.pod("lost-a", source="missing")
        kennel.pod("system-a", namespace="kube-system")
        kennel.pod("own-a", namespace="open-feature-operator-system")
        async with kennel.running():
            await kennel.pass_time(25)
            assert await kennel.evicted() == []
            messages = {event[1]: event[-1] for event in kennel.recorder.events}
            assert "nobody would create it again" in messages["team-a/bare"]
            assert "would be refused" in messages["team-a/lost-a"]
            assert len(kennel.recorder.events) == 2, "each is said once"

    run(body)


def test_a_pod_that_a_budget_protects_is_tried_again_and_holds_up_no_other() -> None:
    async def body() -> None:
        kennel = Kennel("once", watchdog_rate=600)
        kennel.pod("new-a", agent=True, second=1)
        kennel.pod("guarded-a")
        kennel.pod("web-a")
        kennel.server.refusals += [("eviction Pod team-a/guarded-a", refusal(429, "TooManyRequests"))] * 2
        async with kennel.running():
            await kennel.pass_time(1)
            assert "web-a" in await kennel.evicted()
            await kennel.pass_time(60)
            assert await kennel.evicted() == ["guarded-a", "guarded-a"]
            assert kennel.context.sidecars.evictions.values == {("evicted",): 2, ("blocked",): 2}

    run(body)
