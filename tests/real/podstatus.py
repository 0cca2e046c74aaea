"""What a kubelet says about a pod in its status, as a pure function of how far the pod has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SIDECAR = "Always"


@dataclass(frozen=True)
class PodProgress:
    """How far a pod has come. Equal progress is not written again."""

    phase: str = "Pending"
    started: frozenset[str] = frozenset()
    """The containers that have passed their startup probe."""
    ready: frozenset[str] = frozenset()
    restarts: tuple[tuple[str, int], ...] = ()
    trouble: str = ""
    """Why it is not further."""
    starts: tuple[tuple[str, int], ...] = ()
    """How many times each container was started."""
    waiting: tuple[tuple[str, str], ...] = ()
    """Why containers do not run, in one word."""


def sidecars(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the init containers that go on running beside the others."""
    return [each for each in pod["spec"].get("initContainers") or [] if each.get("restartPolicy") == SIDECAR]


def pod_status(pod: Mapping[str, Any], progress: PodProgress, address: str, now: str) -> dict[str, Any]:
    """Return the status of a pod at an address."""
    spec = pod["spec"]
    has_to_be_ready = {each["name"] for each in (*sidecars(pod), *spec["containers"])}
    ready = progress.phase == "Running" and has_to_be_ready <= progress.ready
    conditions = {"PodScheduled": True, "Initialized": progress.phase != "Pending"}
    conditions |= {"ContainersReady": ready, "Ready": ready}
    return {
        "phase": progress.phase,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "127.0.0.1",
        "startTime": now,
        "message": progress.trouble or None,
        "conditions": [
            {"type": name, "status": str(holds), "lastTransitionTime": now} for name, holds in conditions.items()
        ],
        "initContainerStatuses": [_container(pod, each, progress, now) for each in spec.get("initContainers") or []],
        "containerStatuses": [_container(pod, each, progress, now) for each in spec["containers"]],
    }


def _container(pod: Mapping[str, Any], container: Mapping[str, Any], progress: PodProgress, now: str) -> dict[str, Any]:
    name, reason = container["name"], dict(progress.waiting).get(container["name"], "")
    started, number = name in progress.started and not reason, dict(progress.starts).get(name, 0)
    return {
        "containerID": f"test://{pod['metadata']['uid']}-{name}-{number}" if number else "",
        "name": name,
        "image": container["image"],
        "imageID": "",
        "ready": name in progress.ready,
        "started": started,
        "restartCount": dict(progress.restarts).get(name, 0),
        "state": {"waiting": {"reason": reason}} if reason else _state(started, progress, now),
    }


def _state(started: bool, progress: PodProgress, now: str) -> dict[str, Any]:
    if progress.phase == "Succeeded":
        return {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
    if started:
        return {"running": {"startedAt": now}}
    return {"waiting": {"reason": "ContainerCreating", "message": progress.trouble}}
