"""Two minutes of the soak; `scripts/bench soak` runs thirty. It waits more than it works, so others run beside it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.soak import Sample, judge

SECONDS = 120


def samples(count: int, **growth: float) -> list[Sample]:
    """Return samples in which some numbers grow by so much from each to the next."""
    usual = {"at": 0.0, "files": 20.0, "tasks": 15.0, "memory": 40.0, "cpu": 1.0, "snapshots": 5.0}
    return [Sample(**{name: usual[name] + n * growth.get(name, 0.0) for name in usual}) for n in range(count)]


@pytest.mark.timeout(4 * SECONDS)
def test_files_tasks_and_memory_stay_as_they_are_through_two_minutes_of_storms() -> None:
    command = [sys.executable, "-m", "bench.soak", f"--seconds={SECONDS}", "--rate=40"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3.5 * SECONDS)
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert "0 things amiss" in done.stdout


@pytest.mark.parametrize("name", ["files", "tasks", "memory"])
def test_what_grows_is_told(name: str) -> None:
    assert judge(samples(18)) == []
    assert judge(samples(18, **{name: 0.1})) == []  # within what a few clients more or less make
    (found,) = judge(samples(18, **{name: 0.5}))
    assert found.startswith(f"{name} grew")


def test_warming_up_is_no_growth_and_too_little_is_no_proof() -> None:
    assert judge(samples(6, memory=5.0)[:5] + samples(10)) == []
    assert judge(samples(2)) == ["too few samples to judge: run it longer"]
