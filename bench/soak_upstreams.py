"""The sources of the soak: a file, a web server and another agent, and everything that goes wrong with them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from bench.process import free_ports, replace

HOST = "127.0.0.1"
NAMES = ("port", "management", "sync", "ofrep")
SOURCES = ("file", "http", "grpc")
OUTAGE_SECONDS = 40.0
"""The other agent dies at most this often: a watch that keeps failing is tried more and more seldom."""
_GARBAGE = ("", "{", "<html>", '{"flags": 3}', "\0\xff")


def document(source: str, revision: int, luck: Random | None = None) -> str:
    """Write a document: a mark of its revision, a flag that never changes, some that do, perhaps a bad one."""
    on_off: dict[str, Any] = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}
    mark = {"state": "ENABLED", "variants": {"now": revision}, "defaultVariant": "now"}
    rule = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", "off"]}
    flags = {f"mark-{source}": mark, "steady": on_off | {"targeting": {"if": [True, "on"]}}}
    flags |= {f"{source}-{n}": on_off | {"metadata": {"revision": revision}, "targeting": rule} for n in range(20)}
    if luck is not None and luck.random() < 0.2:
        flags[luck.choice(("steady", f"{source}-0"))] = {"state": "ENABLED", "variants": []}
    return json.dumps({"metadata": {"flagSetId": "" if source == "http" else source}, "flags": flags})


class Web:
    """A web server that has its moods."""

    def __init__(self) -> None:
        self.mode, self.text = "well", document("http", 0)
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (await reader.readuntil(b"\r\n\r\n")) and self.mode != "cut":
                if self.mode == "hang":
                    await asyncio.sleep(3)
                status = "500 No" if self.mode == "fail" else "200 OK"
                body = (self.text if self.mode != "garbage" else "<html>").encode()
                told = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(told.encode() + (body[: len(body) // 2] if self.mode == "truncate" else body))
                if self.mode == "truncate":
                    break
        except (OSError, EOFError):
            pass
        finally:
            writer.close()


class Agent:
    """An agent in a process of its own, on ports that stay the same."""

    def __init__(self, name: str, folder: Path, *arguments: str) -> None:
        self.ports = dict(zip(NAMES, free_ports(4), strict=True))
        self._log = folder / f"{name}.log"
        short = zip(("-p", "-m", "-g", "-r"), self.ports.values(), strict=True)
        options = [f"{option}{port}" for option, port in short]
        self._command = [sys.executable, "-m", "wigwag", "start", f"--bind={HOST}", *options, *arguments]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FLAGD_")}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it; return its exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        try:
            return self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


class Upstreams:
    """All three, with what they say now."""

    def __init__(self, folder: Path, random: Random) -> None:
        self._random, self.revision, self._died = random, 0, time.monotonic()
        self.file, self._behind = folder / "flags.json", folder / "upstream.json"
        self.web, self.other = Web(), Agent("upstream", folder, f"--uri=file:{self._behind}")
        self.changes = self.outages = 0

    async def start(self) -> str:
        """Start them; return the `--sources` of the agent under test."""
        self.say()
        await self.web.start()
        self.other.start()
        sources = [
            {"uri": f"{HOST}:{self.other.ports['sync']}", "provider": "grpc"},
            {"uri": f"http://{HOST}:{self.web.port}/flags.json", "provider": "http", "interval": 1, "timeoutS": 2},
            {"uri": str(self.file), "provider": "file"},
        ]
        return json.dumps(sources)

    async def stop(self) -> None:
        self.other.end()
        await self.web.stop()

    def say(self) -> None:
        """Say something new, everywhere, and nothing wrong."""
        self.revision += 1
        self.web.mode, self.web.text = "well", document("http", self.revision)
        replace(self.file, document("file", self.revision))
        replace(self._behind, document("grpc", self.revision))

    async def disturb(self, resting: asyncio.Event) -> None:
        """Change things and break things until told to rest; what broke stays so."""
        while not resting.is_set():
            self.revision += 1
            self.changes += 1
            await self._one()
            await asyncio.sleep(self._random.uniform(0.05, 0.6))

    async def _one(self) -> None:
        random = self._random
        chance = random.random()
        if chance < 0.35:
            replace(self.file, document("file", self.revision, random))
        elif chance < 0.6:
            self.web.text = document("http", self.revision, random)
        elif chance < 0.8:
            replace(self._behind, document("grpc", self.revision, random))
        elif chance < 0.88:
            replace(self.file, random.choice(_GARBAGE))
        elif chance < 0.91:
            self.file.unlink(missing_ok=True)
        elif chance < 0.99:
            self.web.mode = random.choice(("well", "fail", "hang", "garbage", "truncate", "cut"))
            self.outages += self.web.mode != "well"
        elif time.monotonic() - self._died > OUTAGE_SECONDS:
            self._died = time.monotonic()
            self.outages += 1
            await asyncio.to_thread(self.other.end, random.choice((signal.SIGKILL, signal.SIGTERM)))
            self.other.start()
