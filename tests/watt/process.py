"""A real watt in a process of its own, on a free loopback port."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, ClassVar

from tests.agent.process import AgentProcess
from tests.real.processes import until

PORT = "snapshots"


class WattProcess(AgentProcess):
    """`with WattProcess("-s", "services") as watt:`; it listens when the block begins."""

    command: ClassVar[tuple[str, ...]] = ("watt",)

    def __init__(self, *arguments: str, **environment: str) -> None:
        super().__init__(*arguments, ready=False)
        self._environment = environment

    def spawn(self) -> subprocess.Popen[str]:
        """Start the process."""
        port = [] if any("--listen-address" in each for each in self._arguments) else ["--port=0"]
        return subprocess.Popen(
            [*self.program, *self.command, "--log-format=json", *port, *self._arguments],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **self._environment},
        )

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        """Fetch a page."""
        return self.fetch(PORT, path, **headers)

    def snapshot(self, number: int | str = "latest", query: str = "") -> Any:
        """Return a snapshot; None if there is none."""
        status, body = self.get(f"/snapshots/{number}{query}")
        return json.loads(body) if status == 200 else None

    def watches(self) -> dict[str, Any]:
        """Return how each watch is doing, by its name."""
        page = json.loads(self.get("/debug/watches")[1])
        return {each["watch"]: each for each in page["watches"]}

    def debug(self) -> Any:
        """Return everything that can be said about it."""
        return json.loads(self.get("/debug/watches")[1])

    def until(self, wanted: Any, what: str) -> Any:
        """Wait until the latest snapshot is as wanted, and return it."""

        def matching() -> Any:
            latest = self.snapshot()
            return latest if latest is not None and wanted(latest) else None

        return until(matching, what)


class Notified:
    """A notify hook that writes the URL of each snapshot into a file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "notified"
        self.command = f"printf '%s\\n' >> {self._path}"

    def urls(self) -> list[str]:
        """Return what it was called with."""
        return self._path.read_text().splitlines() if self._path.exists() else []

    def ids(self) -> list[int]:
        """Return the numbers of the snapshots."""
        return [int(url.partition("?")[0].rpartition("/")[2]) for url in self.urls()]
