"""How far a change of flags has come, on a real control plane: agents with every provider, frozen, deleted and new."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.real.agents import flags
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.processes import tether, until
from tests.real.workloads import App, deployment, source

PROVIDERS = ("kubernetes", "file", "flagd-proxy")
PATIENCE = 90.0


@pytest.fixture(scope="session")
def cluster(operated: Cluster) -> Cluster:
    return operated


def status(namespace: Namespace) -> dict[str, Any]:
    found: dict[str, Any] = namespace.cluster.get(namespace.path(OPENFEATURE, "FeatureFlag", "flags"))
    return dict(found.get("status", {}))


def condition(namespace: Namespace) -> dict[str, Any]:
    found = [each for each in status(namespace).get("conditions", []) if each["type"] == "Propagated"]
    return found[0] if found else {}


def reaches(namespace: Namespace, summary: str, *words: str) -> dict[str, Any]:
    """Wait until the status of the present generation says this, with these words in the message."""
    path = namespace.path(OPENFEATURE, "FeatureFlag", "flags")

    def found() -> dict[str, Any] | None:
        flag = namespace.cluster.get(path)
        agents = flag.get("status", {}).get("agents") or {}
        is_present = agents.get("observedGeneration") == flag["metadata"]["generation"]
        message = condition(namespace).get("message", "")
        said = is_present and agents["summary"] == summary and all(word in message for word in words)
        return agents if said else None

    agents = until(found, f"{summary} with {words}", PATIENCE)
    assert agents is not None
    return agents


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
        arguments = ["status", "ff/flags", "-n", namespace.name, f"--kubeconfig={config}", *options]
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


def test_a_change_is_followed_to_every_agent_whatever_its_provider(namespace: Namespace, tmp_path: Path) -> None:
    namespace.feature_flag("flags", flags("on"))
    for provider in PROVIDERS:
        namespace.apply(source(provider, {"source": "flags", "provider": provider}))
        namespace.apply(deployment(provider, provider))
    pods = {provider: App(namespace, provider).ready() for provider in PROVIDERS}
    first = reaches(namespace, "3/3", "3/3 agents on ")
    assert (condition(namespace)["status"], first["digest"]) == ("True", status(namespace)["digest"])

    slow = pods["kubernetes"]
    name = f"{namespace.name}/{slow['metadata']['name']}"
    with frozen(slow):
        namespace.feature_flag("flags", flags("off"))
        behind = reaches(namespace, "2/3", f"lagging: {name} (on {first['digest'][:8]}")
        assert [each["pod"] for each in behind["lagging"]] == [name]
        assert condition(namespace)["status"] == "False"
        code, _, complaint = Waiting(namespace, tmp_path, "--timeout=1s").end()
        assert (code, f"2 of 3 agents on {behind['digest'][:8]}; lagging: {name} (" in complaint) == (1, True)
        namespace.feature_flag("flags", flags("on", metadata={"again": True}))  # while the one before is on its way
        now = reaches(namespace, "2/3", name)["digest"]
        waiting = Waiting(namespace, tmp_path, f"--digest={now}", "--timeout=90s")
    code, said, complaint = waiting.end()
    assert (code, complaint) == (0, "")
    assert said[-1] == f'featureflag "flags" successfully propagated: 3 of 3 agents on {now[:8]}'
    last = reaches(namespace, "3/3")
    assert last["digest"] not in (first["digest"], behind["digest"])
    assert (last["lagging"], last["silent"]) == ([], [])

    namespace.apply(deployment("file", "file", replicas=0))
    reaches(namespace, "2/2")
    namespace.apply(deployment("kubernetes", "kubernetes", replicas=2))
    reaches(namespace, "3/3")
