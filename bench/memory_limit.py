"""A limit on the memory of processes, as a container has it: a control group, if this machine lets us make one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_VERSIONS = ((_ROOT / "memory", "memory.limit_in_bytes", "memory.oom_control"), (_ROOT, "memory.max", "memory.events"))
"""Where groups are, the file with the limit, and the one that counts kills; of both versions of control groups."""


@dataclass(frozen=True)
class MemoryLimit:
    """A group of processes that together may have so many MiB."""

    group: Path | None
    """None if there is no limit here."""
    _events: str = ""

    def add(self, pid: int) -> None:
        """Limit a process, and those that it starts."""
        if self.group is not None:
            (self.group / "cgroup.procs").write_text(str(pid))

    def kills(self) -> int | None:
        """Return how many processes were killed because they wanted more; None if nobody counts."""
        if self.group is None:
            return None
        lines = (line.split() for line in (self.group / self._events).read_text().splitlines())
        return next((int(value) for name, value in lines if name == "oom_kill"), None)


@contextmanager
def memory_limit(mebibytes: int) -> Iterator[MemoryLimit]:
    """Make a limit, and take it away at the end, when its processes have ended."""
    for root, file, events in _VERSIONS:
        group = root / f"wigwag-bench-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            with suppress(OSError):
                (group / file).write_text(str(mebibytes << 20))
            yield MemoryLimit(group if (group / file).exists() else None, events)
        finally:
            with suppress(OSError):
                group.rmdir()
        return
    yield MemoryLimit(None)
