"""Many pods on nodes that run nothing: the scheduler binds them, kwok makes them ready, and all are injected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import programs
from tests.real.agents import flags
from tests.real.cluster import Namespace
from tests.real.conftest import loudly
from tests.real.operated import OperatedPlane
from tests.real.processes import until
from tests.real.workloads import App, agent_of, deployment, job, source


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    with loudly("KUBERNETES"):
        programs.kubernetes()
    with loudly("KWOK"):
        programs.kwok()
    with OperatedPlane(tmp_path / "operated", fake_nodes=2) as operated:
        yield operated.cluster.add_namespace()


def test_of_a_hundred_pods_at_once_all_have_the_agent_and_become_ready(namespace: Namespace) -> None:
    cluster, web = namespace.cluster, App(namespace, "web")
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", {"source": "flags", "provider": "kubernetes"}))
    namespace.apply(deployment("web", "source", replicas=100))
    path = namespace.path("apps/v1", "Deployment", "web")
    until(lambda: cluster.get(path).get("status", {}).get("availableReplicas") == 100, "100 available pods")
    pods = web.pods()
    assert len([agent_of(pod) for pod in pods]) == 100
    assert {pod["spec"]["nodeName"] for pod in pods} == {"fake-0", "fake-1"}
    cluster.delete(path)
    until(lambda: not web.pods(), "the end of the pods")

    namespace.apply(job("batch", "source"))
    done = namespace.path("batch/v1", "Job", "batch")
    until(lambda: cluster.get(done).get("status", {}).get("succeeded") == 1, "the end of the Job")
