"""What is kept of a pod: its agent, who creates it again, and which pods do not count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from wigwag.operator.names import (
    AGENT_UPGRADE,
    ENABLED,
    FEATURE_FLAG_SOURCE,
    IN_PROCESS_CONFIGURATION,
    MIRROR,
    REVISION,
    SIDECAR_UPGRADE,
)
from wigwag.operator.upgrades.pods import OTHER, AgentUpgrade, MissedPod, SidecarPod, read_agent_image, read_pod

OWNER = {"kind": "ReplicaSet", "name": "web-5f6", "controller": True}
AGENT = {"name": "flagd", "image": "wigwag:1"}
APP = {"name": "app", "image": "app"}


def pod(
    *, annotations: dict[str, str] | None = None, status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    about = {
        "name": "web-5f6-x",
        "namespace": "shop",
        "uid": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"pod-template-hash": "5f6"},
        "annotations": {ENABLED: "true", FEATURE_FLAG_SOURCE: "x", **(annotations or {})},
        "ownerReferences": [OWNER],
    }
    content = {"containers": [APP], "initContainers": [AGENT], **spec}
    return {"metadata": about, "spec": content, "status": {"phase": "Running", **(status or {})}}


def read(given: Any) -> Any:
    return read_pod(msgspec.json.encode(given))


def test_an_agent_and_its_state() -> None:
    statuses = [{"name": "flagd", "ready": True, "containerID": "c://1", "state": {"running": {}}}]
    status = {"conditions": [{"type": "Ready", "status": "True"}], "initContainerStatuses": statuses}
    found = read(pod(status=status))
    assert isinstance(found, SidecarPod)
    assert str(found.workload) == "Deployment shop/web"
    assert (found.image, found.path, found.container) == ("wigwag:1", "/spec/initContainers/0", "c://1")
    assert (found.agent_ready, found.ready, found.trouble, found.is_settled) == (True, True, "", True)
    assert read_agent_image(msgspec.json.encode(pod())) == "wigwag:1"


def test_an_agent_that_waits_and_one_that_the_original_has_injected() -> None:
    waiting = {"name": "flagd", "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    found = read(pod(initContainers=None, containers=[APP, AGENT], status={"containerStatuses": [waiting]}))
    assert (found.path, found.trouble, found.container) == ("/spec/containers/1", "ImagePullBackOff", "")


def test_what_annotations_and_labels_say() -> None:
    upgrade = AgentUpgrade("wigwag:2", "c://0", 5.0)
    given = pod(annotations={AGENT_UPGRADE: msgspec.json.encode(upgrade).decode(), SIDECAR_UPGRADE: "off"})
    given["metadata"]["labels"][REVISION] = "canary"
    found = read(given)
    assert (found.upgrade, found.opted_out, found.revision) == (upgrade, True, "canary")
    assert read(pod(annotations={AGENT_UPGRADE: "by hand"})).upgrade is None


@pytest.mark.parametrize(
    ("owner", "workload"),
    [
        ({"kind": "StatefulSet", "name": "db", "controller": True}, "StatefulSet shop/db"),
        ({"kind": "ReplicaSet", "name": "alone", "controller": True}, "ReplicaSet shop/alone"),
        ({"kind": "Thing", "name": "x"}, "Pod shop/web-5f6-x"),
    ],
)
def test_who_creates_a_pod_again(owner: dict[str, Any], workload: str) -> None:
    given = pod()
    given["metadata"]["ownerReferences"] = [owner]
    assert str(read(given).workload) == workload


def test_a_pod_without_an_agent_is_missed() -> None:
    found = read(pod(initContainers=None))
    assert isinstance(found, MissedPod)
    assert read_agent_image(msgspec.json.encode(pod(initContainers=None))) == ""


def other_pods() -> dict[str, Any]:
    deleted, in_process = pod(), pod()
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    in_process["metadata"]["annotations"] = {ENABLED: "true", IN_PROCESS_CONFIGURATION: "x"}
    return {
        "disabled": pod(annotations={ENABLED: "false"}),
        "in-process": in_process,
        "mirrored": pod(annotations={MIRROR: "x"}),
        "deleted": deleted,
        "ended": pod(status={"phase": "Succeeded"}),
        "of a Job": pod(restartPolicy="Never"),
        "unreadable": {"metadata": []},
    }


@pytest.mark.parametrize("why", other_pods())
def test_other_pods_do_not_count_and_are_not_none(why: str) -> None:
    """None would mean to a watch that the pod cannot be read, and stays as it was."""
    assert read(other_pods()[why]) == OTHER
    assert read(other_pods()[why]) is not None
