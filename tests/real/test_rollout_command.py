"""`wigwag rollout status` as a process, in a cluster without an operator: the test writes what an operator would."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.real.access import Access
from tests.real.agents import flags
from tests.real.cluster import MERGE, OPENFEATURE, Namespace
from tests.real.processes import tether
from wigwag.cli.main import main

PATIENCE = 60.0
DIGEST = "3f9c1a2b4d5e6f70"


class RolloutCommand:
    """The command, started; `line` waits for the next line that it says."""

    def __init__(self, access: Access, folder: Path, *arguments: str) -> None:
        config = access.kubeconfig(folder / "kubeconfig")
        self._process = subprocess.Popen(
            [*tether(), sys.executable, "-m", "wigwag", "rollout", "status", f"--kubeconfig={config}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))

    def line(self) -> str:
        return self._lines.get(timeout=PATIENCE)

    def end(self) -> tuple[int, str]:
        """Wait for its end; return the exit code and its complaint."""
        assert self._process.stderr is not None
        code = self._process.wait(PATIENCE)
        self._reader.join()
        with self._process.stderr as complaint:
            said = complaint.read().strip()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code, said


def run(access: Access, folder: Path, *arguments: str) -> int:
    """Run it in this process, to its end; return the exit code."""
    return main(["rollout", "status", f"--kubeconfig={access.kubeconfig(folder / 'kubeconfig')}", *arguments])


def report(namespace: Namespace, generation: int, current: int, total: int = 2, **more: Any) -> None:
    """Write a status, as the operator does."""
    path = f"{namespace.path(OPENFEATURE, 'FeatureFlag', 'flags')}/status"
    numbers = {"summary": f"{current}/{total}", "current": current, "total": total, "unknown": 0}
    agents = {**numbers, "digest": DIGEST, "observedGeneration": generation, **more}
    namespace.cluster.rest.call("PATCH", path, {"status": {"agents": agents}}, kind=MERGE)


def test_it_says_how_far_it_is_and_ends_when_all_agents_have_the_flags(namespace: Namespace, tmp_path: Path) -> None:
    namespace.feature_flag("flags", flags())
    waiting = RolloutCommand(namespace.cluster.access, tmp_path, "featureflag/flags", "-n", namespace.name)
    assert waiting.line() == 'Waiting for featureflag "flags" to be looked at by the operator...'
    report(namespace, 1, 1)
    assert waiting.line() == 'Waiting for featureflag "flags" to reach its agents: 1 of 2 agents on 3f9c1a2b...'
    namespace.feature_flag("flags", flags("off"))  # what was said is about the flags before
    assert waiting.line() == 'Waiting for featureflag "flags" to be looked at by the operator...'
    report(namespace, 2, 2)
    assert waiting.line() == 'featureflag "flags" successfully propagated: 2 of 2 agents on 3f9c1a2b'
    assert waiting.end() == (0, "")


def test_it_is_said_once_and_for_certain_flags_only(
    namespace: Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace.feature_flag("flags", flags())
    report(namespace, 1, 2)
    given = (namespace.cluster.access, tmp_path, "ff/flags", "-n", namespace.name)
    assert run(*given, "--watch=false", "-o", "json", "--digest=3f9c") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["outcome"], said["generation"], said["agents"]["summary"]) == ("done", 1, "2/2")
    assert run(*given, "--digest=aaaa") == 1
    assert capsys.readouterr().err == 'wigwag: featureflag "flags" has other flags now: 3f9c1a2b, not aaaa\n'


def test_agents_that_are_unknown_are_waited_for_unless_they_are_ignored(
    namespace: Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace.feature_flag("flags", flags())
    report(namespace, 1, 1, unknown=1, silent=[{"pod": "shop/web", "reason": "it is blocked"}])
    given = (namespace.cluster.access, tmp_path, "ff/flags", "-n", namespace.name)
    assert run(*given, "--timeout=3s") == 1
    behind = "within 3 s: 1 of 2 agents on 3f9c1a2b; unknown: shop/web (it is blocked)\n"
    assert capsys.readouterr().err.endswith(behind)
    assert run(*given, "--ignore-unknown") == 0


def test_what_cannot_be_waited_for_is_said(
    namespace: Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    access, where = namespace.cluster.access, ("-n", namespace.name)
    assert run(access, tmp_path, "ff/missing", *where) == 1
    assert f'there is no featureflag "missing" in the namespace {namespace.name}' in capsys.readouterr().err
    assert run(namespace.account("nobody"), tmp_path, "ff/flags", *where) == 1
    assert f'you may not read featureflag "flags" in the namespace {namespace.name}: ' in capsys.readouterr().err

    namespace.feature_flag("flags", flags())
    assert run(access, tmp_path, "ff/flags", *where, "--timeout=3s") == 1
    assert "nobody reports which agents have these flags; is the operator running" in capsys.readouterr().err
    waiting = RolloutCommand(access, tmp_path, "ff/flags", *where)
    waiting.line()
    namespace.cluster.delete(namespace.path(OPENFEATURE, "FeatureFlag", "flags"))
    assert waiting.end() == (1, 'wigwag: featureflag "flags" was deleted')


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("flags", "write featureflag/NAME"),
        ("featureflag/", "write featureflag/NAME"),
        ("featurflag/flags", "did you mean featureflag/flags?"),
        ("deployment/web", "only FeatureFlags reach agents"),
    ],
)
def test_what_is_no_feature_flag_is_refused(target: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", "status", target]) == 2
    assert hint in capsys.readouterr().err
