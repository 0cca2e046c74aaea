"""What a process tells about itself."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from wigwag.observe import Registry
from wigwag.serve.management.process_metrics import vitals


def told() -> dict[str, float]:
    lines = Registry(vitals()).render().splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}


def test_files_memory_and_processor_time_are_those_of_this_process() -> None:
    before = told()
    handles = [os.open(os.devnull, os.O_RDONLY) for _ in range(7)]
    after = told()
    for handle in handles:
        os.close(handle)
    assert after["process_open_fds"] - before["process_open_fds"] == 7
    assert 1 << 20 < after["process_resident_memory_bytes"] < 1 << 40
    assert after["process_cpu_seconds_total"] >= before["process_cpu_seconds_total"] > 0


def test_tasks_are_counted_in_a_loop_and_left_out_elsewhere() -> None:
    async def main() -> dict[str, float]:
        async with asyncio.TaskGroup() as group:
            sleeping = [group.create_task(asyncio.Event().wait()) for _ in range(4)]
            found = told()
            for task in sleeping:
                task.cancel()
        return found

    assert asyncio.run(main())["wigwag_tasks"] == 5
    assert "wigwag_tasks" not in told()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc on this system")
def test_the_count_of_files_is_the_one_of_proc() -> None:
    assert told()["process_open_fds"] == len(list(Path("/proc/self/fd").iterdir())) - 1
