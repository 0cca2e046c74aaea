"""Nodes that run nothing: kwok says that pods are ready as soon as the scheduler has bound them. For thousands of pods.

    with ControlPlane(folder, programs.kubernetes()) as plane, FakeNodes(plane, nodes=2):
        …

What kwok does is said in stages, and these are all that a Deployment needs: a node is ready, a pod is ready, a pod of a
Job is done, a deleted pod is gone. kwok renews the Leases of its nodes by itself. To run the agents in pods, use
`kubelet`.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import yaml

from tests.real import programs
from tests.real.controlplane import ControlPlane
from tests.real.processes import Server, claim_port

CAPACITY = {"cpu": "1000", "memory": "1Ti", "pods": "100000"}
JOBS = '.metadata.ownerReferences.[] | select( .kind == "Job" ) | .kind'
_NODE_STATUS = """
conditions:
- {type: Ready, status: "True", reason: KubeletReady, message: "", lastHeartbeatTime: {{ Now | Quote }}, lastTransitionTime: {{ Now | Quote }}}
"""  # noqa: E501
_POD_STATUS = """
{{ $now := Now | Quote }}
phase: Running
startTime: {{ $now }}
podIP: {{ PodIP | Quote }}
podIPs: [{ip: {{ PodIP | Quote }}}]
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now }}}
initContainerStatuses:
{{ range .spec.initContainers }}
- {name: {{ .name }}, image: {{ .image | Quote }}, imageID: "", ready: true, started: true, restartCount: 0, state: {running: {startedAt: {{ $now }}}}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- {name: {{ .name }}, image: {{ .image | Quote }}, imageID: "", ready: true, started: true, restartCount: 0, state: {running: {startedAt: {{ $now }}}}}
{{ end }}
"""  # noqa: E501


def stage(name: str, kind: str, selector: list[dict[str, Any]], **then: Any) -> dict[str, Any]:
    """Return a Stage: what becomes of objects that all expressions choose."""
    spec = {"resourceRef": {"apiGroup": "v1", "kind": kind}, "selector": {"matchExpressions": selector}, "next": then}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _is(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


_LIVES = _is(".metadata.deletionTimestamp", "DoesNotExist")
STAGES = (
    stage("node-ready", "Node", [_is(".status.conditions", "DoesNotExist")], statusTemplate=_NODE_STATUS),
    stage("pod-ready", "Pod", [_LIVES, _is(".status.podIP", "DoesNotExist")], statusTemplate=_POD_STATUS),
    stage(
        "pod-done",
        "Pod",
        [_LIVES, _is(".status.phase", "In", "Running"), _is(JOBS, "Exists")],
        statusTemplate="phase: Succeeded",
    ),
    stage("pod-gone", "Pod", [_is(".metadata.deletionTimestamp", "Exists")], delete=True),
)


class FakeNodes:
    """A scheduler and kwok beside a control plane, until the block ends."""

    def __init__(self, plane: ControlPlane, nodes: int = 1, addresses: str = "10.1.0.0/16") -> None:
        """`addresses` are those of pods; with some of loopback, something may listen there."""
        self._plane, self._servers, self._addresses = plane, ExitStack(), addresses
        self._names = [f"fake-{number}" for number in range(nodes)]

    def __enter__(self) -> Self:
        for name in self._names:
            about = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": about}
            self._plane.cluster.apply(node)
            path = f"{self._plane.cluster.path_of(node)}/status"
            self._plane.cluster.patch(path, {"status": {"capacity": CAPACITY, "allocatable": CAPACITY}})
        try:
            for server in (self._scheduler(), self._kwok()):
                self._servers.callback(server.kill)
                server.start()
        except BaseException:
            self._servers.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._servers.close()

    def _scheduler(self) -> Server:
        folder, program = self._plane.folder, self._plane.programs.scheduler
        if program is None:
            raise programs.UnavailableError(f"there is no kube-scheduler: {programs.BUILD}")
        access = self._plane.user("system:kube-scheduler").access
        config = access.kubeconfig(folder / "scheduler.kubeconfig")
        flags = ("--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=2000")
        return Server([program, f"--kubeconfig={config}", *flags], folder / "kube-scheduler.log", lambda: True)

    def _kwok(self) -> Server:
        folder, cluster = self._plane.folder, self._plane.cluster
        config, stages = cluster.access.kubeconfig(folder / "kwok.kubeconfig"), folder / "stages.yaml"
        stages.write_text(yaml.safe_dump_all(STAGES))
        flags = {
            "kubeconfig": config,
            "config": stages,
            "manage-all-nodes": "true",
            "cidr": self._addresses,
            "node-lease-duration-seconds": 40,
            "server-address": f"127.0.0.1:{claim_port()}",
        }
        options = [f"--{name}={value}" for name, value in flags.items()]
        return Server([programs.kwok(), *options], folder / "kwok.log", self._nodes_are_ready)

    def _nodes_are_ready(self) -> bool:
        nodes = self._plane.cluster.get("/api/v1/nodes")["items"]
        return all(each["status"].get("conditions") and not each["spec"].get("taints") for each in nodes)
