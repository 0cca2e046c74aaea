"""The benchmarks of the operator run, with little of everything. What takes how long is not judged here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real import programs
from tests.real.conftest import loudly

COUNTED = {"refused", "pods without an agent", "not rolled", "requests that write", "workloads that were rolled"}
"""Rows whose figure is no time: they are 0 on a busy machine, too."""
SHARED = "a flag that all agents use"


@pytest.mark.timeout(240)
def test_the_operators_benchmark_measures_and_nothing_is_refused_lost_or_rolled_in_vain() -> None:
    with loudly("KWOK"):
        programs.kubernetes()
        programs.kwok()
    command = [sys.executable, "-m", "bench.operator", "--quick", "--only=restart,injection,rollout"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=220)
    figures = re.findall(r"^  (\S.*?)\s{2,}([\d.,]+) ", done.stdout, re.MULTILINE)
    counts = {name: float(figure) for name, figure in figures if name in COUNTED}
    assert counts == dict.fromkeys(COUNTED, 0.0), f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


@pytest.mark.timeout(240)
def test_the_fleets_benchmark_follows_changes_to_every_agent(tmp_path: Path) -> None:
    with loudly("KWOK"):
        programs.kubernetes()
        programs.kwok()
    few = ["--agents=6", "--flags=5", "--namespaces=2", "--changes=1", "--idle=0.5"]
    command = [sys.executable, "-m", "bench.fleet", *few, "--providers=flagd-proxy", f"--json={tmp_path / 'json'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=220)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    figures = json.loads((tmp_path / "json").read_text())
    (asked,) = (each["value"] for each in figures if each["part"] == SHARED and each["name"].startswith("questions"))
    assert asked >= 6, "each agent was asked whether it has the change"
