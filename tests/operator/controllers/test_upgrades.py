"""The controller of upgrades, in a cluster in memory: the test is the kubelet."""

from __future__ import annotations

from typing import Any

from tests.operator.controllers.world import Object, World
from tests.pipeline.fakes import run
from wigwag.kube.kinds import CONFIG_MAP, POD
from wigwag.operator.names import AGENT, AGENT_UPGRADE, ENABLED, FEATURE_FLAG_SOURCE
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
