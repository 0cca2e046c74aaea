"""A real agent in a process of its own, on free loopback ports, for tests that talk to it as clients do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.request import Request, urlopen

TIMEOUT = 60.0


class AgentProcess:
    """`with AgentProcess("--uri", "file:flags.json") as agent:`; it is up, and ready, when the block begins."""

    program: ClassVar[tuple[str, ...]] = (sys.executable, "-m", "wigwag")
    command: ClassVar[tuple[str, ...]] = ("start",)
    ports: ClassVar[tuple[str, ...]] = ("port", "management-port", "sync-port", "ofrep-port")

    def __init__(self, *arguments: str, ready: bool = True, ports: dict[str, int] | None = None) -> None:
        self._arguments, self._ready, self._ports = arguments, ready, ports or {}
        self.lines: list[dict[str, Any]] = []
        self._news = threading.Condition()

    def spawn(self) -> subprocess.Popen[str]:
        """Start the process."""
        ports = dict.fromkeys(self.ports, 0) | self._ports
        options = [f"--{name}={number}" for name, number in ports.items()]
        command = [*self.program, *self.command, "--log-format=json", "--bind=127.0.0.1", *options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FLAGD_")}
        return subprocess.Popen(
            [*command, *self._arguments], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
        )

    def __enter__(self) -> Self:
        self.process = self.spawn()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            self.wait_for_log(lambda line: line["msg"].endswith("is serving"))
            if self._ready:
                self.wait_for_log(lambda line: line["msg"] == "snapshot published")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stderr:
            self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                told = json.loads(line)
            except ValueError:
                told = {"msg": line.rstrip()}
            with self._news:
                self.lines.append(told)
                self._news.notify_all()
        with self._news:
            self.lines.append({"msg": "(ended)"})
            self._news.notify_all()

    def wait_for_log(self, wanted: Callable[[dict[str, Any]], bool], after: int = 0) -> dict[str, Any]:
        """Return the first line of the log, after so many, that is wanted."""
        with self._news:
            found = self._news.wait_for(
                lambda: next(filter(wanted, self.lines[after:]), None) or self.lines[-1:] == [{"msg": "(ended)"}],
                TIMEOUT,
            )
            assert isinstance(found, dict), f"the agent did not say it; it said: {self.lines}"
            return found

    def address(self, name: str) -> str:
        """Return `host:port` of evaluation, management, sync or OFREP."""
        line = next(line for line in self.lines if line["msg"].endswith("is serving"))
        return str(line[name])

    def port(self, name: str) -> int:
        """Return the port of evaluation, management, sync or OFREP."""
        return int(self.address(name).rpartition(":")[2])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)

    def fetch(self, name: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        """Send an HTTP request; return status and body."""
        return fetch(self.address(name), path, body, **headers)


def fetch(address: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    """Send an HTTP request to `host:port`; return status and body."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {key.replace("_", "-"): value for key, value in headers.items()}
    request = Request(f"http://{address}{path}", data, fields)
    try:
        with urlopen(request, timeout=TIMEOUT) as answer:
            return answer.status, answer.read()
    except OSError as error:
        status = getattr(error, "code", None)
        if status is None:
            raise
        body = error.read()  # type: ignore[attr-defined]
        error.close()  # type: ignore[attr-defined]
        return status, body


def write(path: Path, document: Any) -> None:
    """Replace a file as deployments do: in one step."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(document if isinstance(document, str) else json.dumps(document))
    fresh.replace(path)
