"""The controller of upgrades, in a cluster in memory: the test is the kubelet."""

from __future__ import annotations

from typing import Any

from tests.operator.controllers.world import Object, World, refusal
from tests.pipeline.fakes import run
from wigwag.kube.kinds import CONFIG_MAP, NAMESPACE, POD
from wigwag.operator.names import AGENT, AGENT_UPGRADE, ENABLED, FEATURE_FLAG_SOURCE, SIDECAR_UPGRADE
from wigwag.operator.upgrades.report import REPORT

SYSTEM = "open-feature-operator-system"


class Fleet(World):
    """Pods with agents."""

    def __init__(self, tag: str, mode: str = "in-place", **options: Any) -> None:
        super().__init__({"SIDECAR_TAG": tag}, sidecar_upgrade=mode, **options)

    def pod(
        self, name: str, image: str = "wigwag:1", *, container: str = "c1", ready: bool = True, **more: Any
    ) -> Object:
        owner = {"kind": "ReplicaSet", "name": f"{name.rpartition('-')[0]}-5f6", "controller": True, "uid": "1"}
        made = self.put(
            POD,
            name,
            {"initContainers": [{"name": AGENT, "image": image}], "containers": [{"name": "app"}]},
            annotations={ENABLED: "true", FEATURE_FLAG_SOURCE: "flags", **more.pop("annotations", {})},
            labels={"pod-template-hash": "5f6"},
            ownerReferences=[owner],
            creationTimestamp="2026-01-01T00:00:00Z",
            **more,
        )
        return self.status(made, container=container, ready=ready)

    def status(self, pod: Object, *, container: str, ready: bool, reason: str = "") -> Object:
        """Say about a pod what its kubelet would."""
        state: Object = {"waiting": {"reason": reason}} if reason else {"running": {}}
        agent = {"name": AGENT, "ready": ready, "containerID": container, "state": state}
        conditions = [{"type": "Ready", "status": str(ready)}]
        status = {"phase": "Running", "conditions": conditions, "initContainerStatuses": [agent]}
        return self.server.put(POD, {**pod, "status": status})

    def images(self) -> dict[str, str]:
        return {key[1]: pod["spec"]["initContainers"][0]["image"] for key, pod in self.server.objects[POD].items()}

    def finish(self, name: str, container: str = "c2", **state: Any) -> None:
        """Have the kubelet start a pod's agent again."""
        self.status(self.get(POD, name), container=container, **{"ready": True, **state})

    def report(self) -> dict[str, str]:
        return dict(self.server.objects[CONFIG_MAP][SYSTEM, REPORT]["data"])

    async def pass_time(self, seconds: float = 0.3) -> None:
        for _ in range(2):
            await self.settle()
            await self.clock.advance(seconds)
        await self.settle()


def test_one_pod_of_a_workload_is_upgraded_and_the_next_when_it_is_ready() -> None:
    async def body() -> None:
        fleet = Fleet("2", sidecar_upgrade_budget="100%")
        for name in ("web-a", "web-b", "api-a"):
            fleet.pod(name)
        async with fleet.running():
            await fleet.pass_time()
            assert fleet.images() == {"web-a": "wigwag:2", "web-b": "wigwag:1", "api-a": "wigwag:2"}
            fleet.finish("web-a")
            await fleet.pass_time()
            assert fleet.images()["web-b"] == "wigwag:2"
            fleet.finish("web-b")
            fleet.finish("api-a")
            await fleet.pass_time(2.0)
        assert fleet.report()["summary"] == "3 of 3 agents have the image wigwag:2"
        assert len([each for each in fleet.server.asked if each.startswith("patch Pod")]) == 3
        assert AGENT_UPGRADE in fleet.get(POD, "web-a")["metadata"]["annotations"]

    run(body)


def test_the_report_says_that_a_change_is_not_allowed_until_it_is() -> None:
    async def body() -> None:
        fleet = Fleet("2")
        fleet.pod("web-a")
        fleet.server.refusals.append(("patch Pod", refusal(403, "Forbidden")))
        async with fleet.running():
            await fleet.settle()
            summary = fleet.report()["summary"]
            assert summary.startswith("0 of 1 agents have the image wigwag:2; 1 behind; a change failed, and is tried")
            assert str(refusal(403, "Forbidden")) in summary
            await fleet.pass_time(2.0)
            fleet.finish("web-a")
            await fleet.pass_time(2.0)
        assert fleet.report()["summary"] == "1 of 1 agents have the image wigwag:2"

    run(body)


def test_a_workload_is_restarted_and_the_next_when_all_its_pods_are_replaced() -> None:
    async def body() -> None:
        fleet = Fleet("2", "restart", sidecar_upgrade_budget="1")
        fleet.source({"source": "http://flags.test", "provider": "http"})
        for name in ("api", "web"):
            fleet.workload(name)
            fleet.pod(f"{name}-a")
        async with fleet.running():
            await fleet.pass_time()
            assert await fleet.since("patch") == ["patch Deployment team-a/api"]
            fleet.pod("api-b", "wigwag:2", container="new")
            await fleet.pass_time()
            assert await fleet.since("patch") == []
            old = fleet.get(POD, "api-a")
            fleet.server.put(POD, {**old, "metadata": {**old["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
            await fleet.pass_time()
            assert await fleet.since("patch") == ["patch Deployment team-a/web"]

    run(body)


def test_a_failure_pauses_and_is_reported_once_and_goes_on_when_it_is_mended() -> None:
    async def body() -> None:
        fleet = Fleet("2", sidecar_upgrade_budget="1")
        for name in ("api-a", "web-a"):
            fleet.pod(name)
        async with fleet.running():
            await fleet.pass_time()
            fleet.finish("api-a", ready=False, reason="CrashLoopBackOff")
            for _ in range(5):
                await fleet.pass_time(2.0)
            assert fleet.images() == {"api-a": "wigwag:2", "web-a": "wigwag:1"}
            assert "CrashLoopBackOff" in fleet.report()["paused"]
            assert fleet.context.sidecars.paused
            assert [event[3] for event in fleet.recorder.events].count("AgentUpgradeFailed") == 1
            fleet.finish("api-a", "c3")
            await fleet.pass_time()
            assert fleet.images()["web-a"] == "wigwag:2"
            assert not fleet.context.sidecars.paused

    run(body)


def test_an_agent_that_takes_too_long_has_failed() -> None:
    async def body() -> None:
        fleet = Fleet("2", sidecar_upgrade_timeout=10.0)
        fleet.pod("web-a")
        async with fleet.running():
            await fleet.pass_time()
            fleet.finish("web-a", ready=False)
            await fleet.pass_time(4.0)
            assert fleet.report()["paused"] == ""
            await fleet.pass_time(4.0)
            assert "web-a" in fleet.report()["paused"]

    run(body)


def test_another_leader_goes_on_and_upgrades_nobody_twice() -> None:
    async def body() -> None:
        fleet = Fleet("2", sidecar_upgrade_budget="1")
        for name in ("api-a", "web-a"):
            fleet.pod(name)
        async with fleet.running():
            await fleet.pass_time()
        assert await fleet.since("patch Pod") == ["patch Pod team-a/api-a"]
        async with fleet.running():
            await fleet.pass_time()
            assert await fleet.since("patch Pod") == [], "the first one is on its way"
            fleet.finish("api-a")
            await fleet.pass_time()
            assert await fleet.since("patch Pod") == ["patch Pod team-a/web-a"]

    run(body)


def test_a_namespace_keeps_its_agents_if_it_says_so() -> None:
    async def body() -> None:
        fleet = Fleet("2")
        fleet.pod("web-a")
        fleet.put(NAMESPACE, "team-a", namespace="", annotations={SIDECAR_UPGRADE: "off"})
        async with fleet.running():
            await fleet.pass_time()
            assert fleet.images() == {"web-a": "wigwag:1"}
            assert fleet.report()["excluded"] == "1"
            fleet.put(NAMESPACE, "team-a", namespace="")
            await fleet.pass_time()
            assert fleet.images() == {"web-a": "wigwag:2"}

    run(body)


def test_without_upgrades_nothing_is_written_and_the_metric_says_how_many_are_behind() -> None:
    async def body() -> None:
        fleet = Fleet("2", "off")
        for name, image in (("web-a", "wigwag:1"), ("web-b", "wigwag:2"), ("api-a", "wigwag:1")):
            fleet.pod(name, image)
        async with fleet.running():
            await fleet.pass_time(5.0)
            assert await fleet.since("patch", "apply") == []
            assert fleet.context.sidecars.states == {"current": 1, "behind": 2}
            fleet.server.put(POD, {**fleet.get(POD, "api-a"), "status": {"phase": "Succeeded"}})
            await fleet.pass_time()
            assert fleet.context.sidecars.states == {"current": 1, "behind": 1}

    run(body)
