"""How far a change of flags has come, on a real control plane: agents with every provider, frozen, deleted and new."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.process import AgentProcess
from tests.real import programs
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.operated import SYSTEM
from tests.real.processes import tether, until
from tests.real.workloads import App, deployment, source
from wigwag.operator.names import PROXY

EXAMPLE = Path(__file__).parents[2] / "deploy/examples/rollout.yaml"
OTHERS = ("file", "flagd-proxy")
PATIENCE = 90.0


@pytest.fixture(scope="session")
def cluster(operated: Cluster) -> Cluster:
    return operated


def flag(namespace: Namespace) -> dict[str, Any]:
    return dict(namespace.cluster.get(namespace.path(OPENFEATURE, "FeatureFlag", "checkout")))


def condition(status: dict[str, Any]) -> dict[str, Any]:
    return next((each for each in status.get("conditions", []) if each["type"] == "Propagated"), {})


def reaches(namespace: Namespace, summary: str, *words: str) -> dict[str, Any]:
    """Wait until the status of the present generation says this, with these words in the message; return it."""

    def found() -> dict[str, Any] | None:
        live = flag(namespace)
        status = live.get("status", {})
        agents = status.get("agents") or {}
        is_present = agents.get("observedGeneration") == live["metadata"]["generation"]
        message = condition(status).get("message", "")
        return status if is_present and agents["summary"] == summary and all(map(message.__contains__, words)) else None

    status = until(found, f"{summary} with {words}", PATIENCE)
    assert status is not None
    return status


def change(namespace: Namespace, default: str, **metadata: str) -> None:
    """Change the flag, as somebody does who applies another manifest."""
    member = {"defaultVariant": default, "metadata": metadata}
    patch = {"spec": {"flagSpec": {"flags": {"new-checkout": member}}}}
    namespace.cluster.patch(namespace.path(OPENFEATURE, "FeatureFlag", "checkout"), patch)


@contextmanager
def frozen(pod: dict[str, Any]) -> Iterator[None]:
    """Stop the agent of a pod, without an end to it."""
    wanted = f"--bind={pod['status']['podIP']}".encode()
    found = [path for path in Path("/proc").glob("[0-9]*/cmdline") if wanted in _read(path).split(b"\0")]
    processes = [int(path.parent.name) for path in found]
    assert processes
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class Waiting:
    """`wigwag rollout status` as a process."""

    def __init__(self, namespace: Namespace, folder: Path, *options: str) -> None:
        config = namespace.cluster.access.kubeconfig(folder / "kubeconfig")
        arguments = ["status", "ff/checkout", "-n", namespace.name, f"--kubeconfig={config}", *options]
        self._process = subprocess.Popen(
            [*tether(), sys.executable, "-m", "wigwag", "rollout", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, list[str], str]:
        """Wait for its end; return the exit code, the lines that it said, and its complaint."""
        said, complaint = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, said.splitlines(), complaint


def test_the_guide_shows_the_example() -> None:
    guide = (EXAMPLE.parents[2] / "docs/guides/rollouts.md").read_text()
    assert EXAMPLE.read_text() in guide


@pytest.mark.timeout(300)  # five agents start one after the other
def test_a_change_is_followed_to_every_agent_whatever_its_provider(namespace: Namespace, tmp_path: Path) -> None:
    for manifest in yaml.safe_load_all(EXAMPLE.read_text()):
        if manifest["kind"] != "Namespace":  # it has one of its own
            namespace.apply(manifest)
    for provider in OTHERS:
        namespace.apply(source(provider, {"source": "checkout", "provider": provider}))
        namespace.apply(deployment(provider, provider))
    slow = App(namespace, "checkout").ready()
    status = reaches(namespace, "3/3", "3/3 agents on ")
    first = status["agents"]["digest"]
    assert (condition(status)["status"], first) == ("True", status["digest"])

    name = f"{namespace.name}/{slow['metadata']['name']}"
    with frozen(slow):
        change(namespace, "on")
        behind = reaches(namespace, "2/3", f"lagging: {name} (on {first[:8]}")
        second = behind["agents"]["digest"]
        assert [each["pod"] for each in behind["agents"]["lagging"]] == [name]
        assert condition(behind)["status"] == "False"
        code, _, complaint = Waiting(namespace, tmp_path, "--timeout=1s").end()
        assert (code, f"2 of 3 agents on {second[:8]}; lagging: {name} (" in complaint) == (1, True)
        change(namespace, "off", again="yes")  # while the one before is on its way
        third = reaches(namespace, "2/3", name)["agents"]["digest"]
        waiting = Waiting(namespace, tmp_path, f"--digest={third}", "--timeout=90s")
    code, said, complaint = waiting.end()
    assert (code, complaint) == (0, "")
    assert said[-1] == f'featureflag "checkout" successfully propagated: 3 of 3 agents on {third[:8]}'
    if kubectl := programs.kubernetes().kubectl:  # it compares the generation of a condition, too
        config = namespace.cluster.access.kubeconfig(tmp_path / "kubeconfig")
        condition_met = ("wait", "--for=condition=Propagated", "featureflag/checkout", "--timeout=90s")
        subprocess.run([kubectl, f"--kubeconfig={config}", "-n", namespace.name, *condition_met], check=True)
    agents = reaches(namespace, "3/3")["agents"]
    assert (agents["lagging"], agents["silent"], len({first, second, third})) == ([], [], 3)

    namespace.apply(deployment("file", "file", replicas=0))
    reaches(namespace, "2/2")
    with client_of_the_proxy(namespace):
        change(namespace, "on", again="twice")
        assert reaches(namespace, "2/2", "1/1 in-process clients")["agents"]["clientsCurrent"] == 1
    namespace.apply(deployment("file", "file"))
    reaches(namespace, "3/3")


@contextmanager
def client_of_the_proxy(namespace: Namespace) -> Iterator[None]:
    """Subscribe to the flag as somebody who is no pod with an agent."""
    pods = namespace.cluster.get(namespace.cluster.path("v1", "Pod", SYSTEM))["items"]
    proxies = [each for each in pods if each["spec"]["containers"][0]["name"] == PROXY]
    address = next(filter(None, (each["status"].get("podIP") for each in proxies)))
    selector = f"core.openfeature.dev/{namespace.name}/checkout"
    sources = [{"uri": f"{address}:8015", "provider": "grpc", "selector": selector}]
    with AgentProcess("--sources", json.dumps(sources)):
        yield
