"""Pods with agents, and pods without, as records."""

from __future__ import annotations

from typing import Any

from tests.operator.known import NOW
from wigwag.operator.names import ObjectName
from wigwag.operator.upgrades.pods import MissedPod, SidecarPod, WorkloadName
from wigwag.operator.upgrades.policy import UpgradePolicy

OLD, NEW = "wigwag:1", "wigwag:2"
TIMEOUT = 300.0


def policy(budget: str = "100%", image: str = NEW, mode: Any = "in-place") -> UpgradePolicy:
    return UpgradePolicy(mode, image, budget, TIMEOUT, 10.0)


def web(kind: str = "Deployment", name: str = "web", namespace: str = "shop") -> WorkloadName:
    return WorkloadName(kind, ObjectName(namespace, name))


def agent(name: str = "web-a", workload: WorkloadName | None = None, **more: Any) -> SidecarPod:
    """A pod whose agent is ready, with the old image."""
    pod = SidecarPod(
        name=ObjectName("shop", name),
        uid=f"uid-{name}",
        workload=workload or web(),
        image=OLD,
        path="/spec/initContainers/0",
        container="c1",
        agent_ready=True,
        trouble="",
        ready=True,
        created=NOW,
    )
    return pod._replace(**more)


def missed(name: str = "web-a", created: float = NOW, workload: WorkloadName | None = None) -> MissedPod:
    return MissedPod(ObjectName("shop", name), f"uid-{name}", workload or web(), created)
