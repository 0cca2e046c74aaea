"""A server process that is measured: started until it is ready, its CPU time and its memory, ended."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

from tests.real.processes import claim_port


class ServerProcess:
    """A server, ours or a peer's, that says on its management port when it is ready."""

    def __init__(self, command: str, management: int) -> None:
        self._command, self._management = shlex.split(command), management
        self.ready_ms = 0.0

    def __enter__(self) -> Self:
        start = time.monotonic()
        compiled = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as it is where a package manager installed it
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=compiled
        )
        while not self._ready():
            if self.process.poll() is not None:
                sys.exit(f"could not be started: {shlex.join(self._command)}")
            time.sleep(0.005)
        self.ready_ms = (time.monotonic() - start) * 1000
        return self

    def _ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self._management}/readyz", timeout=1):
                return True
        except (URLError, OSError):
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(20)

    def cpu(self) -> float:
        """Return the seconds of CPU time used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self) -> float:
        """Return the memory in use, in MiB."""
        return rss(self.process.pid)


def rss(pid: int | str = "self") -> float:
    """Return the memory that a process uses, in MiB."""
    return _memory(pid, "VmRSS")


def peak_rss(pid: int | str = "self") -> float:
    """Return the most memory that a process has used so far, in MiB."""
    return _memory(pid, "VmHWM")


def _memory(pid: int | str, name: str) -> float:
    match = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1024 if match else 0.0


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that the threads of a process have used so far; more exact than in ticks."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def free_ports(count: int) -> list[int]:
    """Return ports that stay free for this process, also while the server that listens there is restarted."""
    return [claim_port() for _ in range(count)]


def replace(path: Path, content: str) -> None:
    """Put a new file in place of an old one, in one step."""
    fresh = path.with_suffix(".new")
    fresh.write_text(content)
    fresh.replace(path)
