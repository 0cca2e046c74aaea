"""Containers of a pod on this machine: an agent or proxy is a process of this checkout, anything else is only marked.

The command is the pod's own, with three changes, because there is no mount namespace and no cluster network here:

| in the pod | here |
|---|---|
| a path below a mount of the container | the directory that stands for the volume |
| `SERVICE.NAMESPACE.svc.cluster.local` | the loopback address of the Service (`services`), with TLS beside its name |
| all addresses of the pod | `--bind` with the pod's loopback address |

What an image does is said by its tag: `missing` cannot be pulled, `crashing` exits at once, `stuck` runs and is never
ready; any other is this checkout. A container whose image is changed is ended and started with the new one, as it is by
a kubelet; the others of its pod go on.

A token that is mounted for the API server is handed over as a kubeconfig, because agents look for it in a fixed place.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real.processes import tether

RUN = ("flagd", "flagd-proxy")
"""The names of containers whose image is wigwag's."""
GRACE = 10.0
PROBE_TIMEOUT = 10.0
RESTART_PAUSE = 0.2
MISSING = "missing"
_FAULTY = {"crashing": "raise SystemExit(1)", "stuck": "import signal; signal.pause()"}
CRASH_LOOP = 2
"""Exits in a row after which a container is in a crash loop."""
_NOT_INHERITED = ("FLAGD_", "KUBE", "PYTHONDONTWRITEBYTECODE")
_SERVICE = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)\.svc\.[a-z0-9.-]*[a-z0-9]")
_TLS = re.compile(rf'"uri":"({_SERVICE.pattern})(:\d+)"')
_VARIABLE = re.compile(r"\$\((\w+)\)")


@dataclass(frozen=True)
class Surroundings:
    """What a container finds around it."""

    address: str
    """Of the pod."""
    folder: Path
    mounts: Mapping[str, Path]
    """By the path in the container."""
    variables: Mapping[str, str]
    service: Callable[[str, str], str]
    """The address of a Service, by namespace and name."""

    def local(self, text: str) -> str:
        """Return text of the container as it has to be here."""
        for path, folder in sorted(self.mounts.items(), reverse=True):
            text = re.sub(rf"{re.escape(path)}(?=[/\"]|$)", str(folder), text)
        if '"tls":true' in text:
            return _TLS.sub(lambda at: f'"uri":"envoy://{self.service(at[3], at[2])}{at[4]}/{at[1]}"', text)
        return _SERVICE.sub(lambda found: self.service(found[2], found[1]), text)


def command(container: Mapping[str, Any], around: Surroundings) -> list[str]:
    """Return the command line of an agent or proxy."""
    variables, tag = around.variables, container["image"].rpartition(":")[2]
    if tag in _FAULTY:
        return [sys.executable, "-c", _FAULTY[tag]]
    given = [_VARIABLE.sub(lambda found: variables.get(found[1], found[0]), each) for each in container["args"]]
    return [sys.executable, "-m", "wigwag", *map(around.local, given), f"--bind={around.address}"]


@dataclass
class RunningContainer:
    """One container: `run` keeps it running; `passes` asks its probes."""

    spec: Mapping[str, Any]
    around: Surroundings
    restarts: int = 0
    process: asyncio.subprocess.Process | None = field(default=None, repr=False)
    starts: int = 0
    """How many times it was started: each time it is another container to the kubelet."""
    _exits: int = 0
    """By itself, in a row."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def waiting(self) -> str:
        """Why it does not run, in the kubelet's word; empty: it does."""
        if self.spec["image"].endswith(f":{MISSING}"):
            return "ImagePullBackOff"
        return "CrashLoopBackOff" if self._exits >= CRASH_LOOP else ""

    def change(self, spec: Mapping[str, Any]) -> None:
        """Take another image, and start again with it."""
        if spec["image"] != self.spec["image"]:
            self.spec, self._exits = spec, 0
            self._changed.set()

    async def run(self) -> None:
        """Run it, and start it again whenever it ends, until cancelled."""
        while True:
            self._changed.clear()
            if self.waiting == "ImagePullBackOff":
                await self._changed.wait()
                continue
            try:
                self.process = await self._start()
                self.starts += 1
                await self._ended(self.process)
            finally:
                await self._end()
            self.restarts += 1
            await asyncio.sleep(RESTART_PAUSE)

    async def _ended(self, process: asyncio.subprocess.Process) -> None:
        """Wait until it exits, or has to."""
        waits = [asyncio.ensure_future(each) for each in (process.wait(), self._changed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if not self._changed.is_set():
            self._exits += 1

    async def _start(self) -> asyncio.subprocess.Process:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        # The first agent compiles the modules for all of them, even where this checkout must not be written to.
        own = {"HOME": str(self.around.folder), "PYTHONPYCACHEPREFIX": str(self.around.folder.parent / "pycache")}
        environment = {**inherited, **own, **self.around.variables}
        with (self.around.folder / f"{self.name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *tether(), *command(self.spec, self.around), env=environment, stdout=log, stderr=log
            )

    async def _end(self) -> None:
        """Ask it to end, and wait; what does not listen is killed."""
        process, self.process = self.process, None
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), GRACE)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def passes(self, *probes: str) -> bool:
        """Tell whether it runs and passes these probes, those of them that it has."""
        if self.name not in RUN:
            return True
        gets = [self.spec[each]["httpGet"] for each in probes if each in self.spec]
        passes = self.process is not None and all([await self._answers(get["port"], get["path"]) for get in gets])
        self._exits = 0 if passes else self._exits
        return passes

    async def _answers(self, port: int, path: str) -> bool:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PROBE_TIMEOUT):
                reader, writer = await asyncio.open_connection(self.around.address, port)
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: kubelet\r\nConnection: close\r\n\r\n".encode())
                    return b" 200 " in await reader.readline()
                finally:  # also if the kubelet ends meanwhile
                    writer.transport.abort()
        return False
