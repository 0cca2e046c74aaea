"""What the operating system knows of this process, under the names that every Prometheus client gives it.

Read when somebody looks; where there is no /proc, what needs it is left out. The number of tasks is ours: it grows with
connections and streams, and with nothing else.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from wigwag.observe import Gauge, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wigwag.observe import Instrument, Samples

_PAGE = os.sysconf("SC_PAGE_SIZE")


def vitals() -> list[Instrument]:
    """Return the instruments."""
    return [
        _Cpu(),
        Gauge("process_open_fds", "Open file descriptors.", lambda: _found(_open_files)),
        Gauge("process_resident_memory_bytes", "Memory in use.", lambda: _found(_memory)),
        Gauge("wigwag_tasks", "Tasks of the event loop.", lambda: _found(_tasks)),
    ]


class _Cpu:
    """Processor time so far."""

    def read(self) -> Reading:
        used = os.times()
        text = "User and system CPU time."
        return Reading("counter", "process_cpu_seconds", text, "", (), [((), used.user + used.system)])


def _found(read: Callable[[], float]) -> Samples:
    """Return a number as a sample, or nothing where it cannot be had."""

    def samples() -> Iterator[tuple[tuple[str, ...], float]]:
        with suppress(OSError, RuntimeError):
            yield (), read()

    return samples()


def _open_files() -> float:
    """Count them, without the one that counting takes."""
    with os.scandir("/proc/self/fd") as files:
        return sum(1 for _ in files) - 1


def _memory() -> float:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - one line, read at every look
        return int(file.read().split()[1]) * _PAGE


def _tasks() -> float:
    """Count them; there are none to be counted outside of a loop."""
    return len(asyncio.all_tasks())
