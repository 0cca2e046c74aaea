"""Pods on nodes that run nothing: they become ready, Jobs end, and what is deleted goes."""

from __future__ import annotations

from collections.abc import Callable

from tests.real import programs
from tests.real.conftest import loudly
from tests.real.controlplane import ControlPlane
from tests.real.fakenodes import FakeNodes
from tests.real.processes import until


def test_deployments_become_available_jobs_end_and_deleted_pods_go(private_plane: Callable[..., ControlPlane]) -> None:
    with loudly("KWOK"):
        programs.kwok()
    plane = private_plane()
    cluster, labels = plane.cluster, {"app": "web"}
    with FakeNodes(plane, nodes=2):
        namespace = cluster.add_namespace()
        sidecar = {"name": "flagd", "image": "wigwag", "restartPolicy": "Always"}
        pod = {"containers": [{"name": "app", "image": "app"}], "initContainers": [sidecar]}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": 50, "selector": {"matchLabels": labels}, "template": template}
        namespace.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
        job = {"template": {"spec": {**pod, "restartPolicy": "Never"}}}
        namespace.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": job})
        deployment, pods = namespace.path("apps/v1", "Deployment", "web"), namespace.path("v1", "Pod")
        until(lambda: cluster.get(deployment).get("status", {}).get("availableReplicas") == 50, "50 available pods")
        done = namespace.path("batch/v1", "Job", "job")
        until(lambda: cluster.get(done).get("status", {}).get("succeeded") == 1, "the end of the Job")
        used = {each["spec"]["nodeName"] for each in cluster.get(pods)["items"]}
        assert used == {"fake-0", "fake-1"}
        cluster.delete(deployment)
        until(lambda: len(cluster.get(pods)["items"]) == 1, "the end of the Deployment's pods")
