"""What documents tell people to type: shell blocks taken apart, and a place to run them in.

A block of `sh` is a list of steps: a server (`wigwag start …`) that runs on while what follows talks to it, or a piece
of script. In a block of `console`, `$ ` begins a command, and the lines after it are what it prints.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NamedTuple, Self

from tests.agent.process import AgentProcess
from tests.clients.certificates import make_certificates

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```(sh|bash|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SERVER = re.compile(r"wigwag (?:start|proxy start|watt)\b(?! --(?:help|version))")
_PORTS = {"agent": {8013: "evaluation", 8014: "management", 8015: "sync", 8016: "OFREP"}}
_PORTS["proxy"] = {8015: "sync", 8016: "management"}
_PORTS["watt"] = {7000: "snapshots"}
_FREE_PORTS = {
    "agent": "",  # by the environment
    "proxy": " --port=0 --management-port=0 --bind=127.0.0.1 --log-format=json",
    "watt": " --port=0 --log-format=json",
}
CURL = """#!/usr/bin/env bash
# a refusal is a failure, and a stream is looked at for a second only
[ "$1" = -sN ] || exec {curl} --fail "$@"
{curl} --fail --max-time 1 "$@" || [ $? = 28 ]
"""


class Block(NamedTuple):
    """A block of commands of a document."""

    language: str
    text: str

    def commands(self) -> list[str]:
        """Return what is typed, one command after the other, without comments."""
        if self.language == "console":
            return [command for command, _ in self.session()]
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in (re.sub(r"\s+#.*$", "", line).strip() for line in lines) if line]

    def session(self) -> list[tuple[str, str]]:
        """Return the commands of a console, each with what it prints."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]
        return [(command, printed) for command, _, printed in (part.partition("\n") for part in parts)]


def blocks(text: str) -> list[Block]:
    """Return all blocks of commands."""
    return [Block(*found) for found in _BLOCK.findall(text)]


def contents(text: str, language: str) -> list[str]:
    """Return the blocks of another language: the files that commands are about."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def is_server(command: str) -> bool:
    """Tell whether a command goes on until it is stopped."""
    return _SERVER.match(command) is not None


class Typed(AgentProcess):
    """A server, started by a command as it stands in a document, on free ports."""

    program: ClassVar[tuple[str, ...]] = ()

    def __init__(self, command: str, place: Place, *, ready: bool) -> None:
        self.text, self._place, self.kind = command, place, _kind(command)
        super().__init__(ready=ready and self.kind == "agent")
        self._has_snapshots = ready and self.kind == "watt"

    def __enter__(self) -> Self:
        super().__enter__()
        if self._has_snapshots:
            self.wait_for_log(lambda line: line["msg"].startswith("snapshot 1:"))
        return self

    def spawn(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", f"exec {self.text}{_FREE_PORTS[self.kind]}"],
            cwd=self._place.folder,
            env=self._place.environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )


class Place:
    """A directory with the files that commands are about, and the programs that they call."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        programs = folder / ".programs"
        programs.mkdir()
        (programs / "curl").write_text(CURL.format(curl=shutil.which("curl")))
        (programs / "curl").chmod(0o755)
        path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        ports = {f"FLAGD_{name}": "0" for name in ("PORT", "MANAGEMENT_PORT", "SYNC_PORT", "OFREP_PORT")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGD_")}
        quiet = {"FLAGD_BIND": "127.0.0.1", "FLAGD_LOG_FORMAT": "json", "HOME": str(folder)}
        self.environment = kept | {"PATH": path} | ports | quiet | variables
        (folder / "src").symlink_to(ROOT / "src")

    def write(self, **files: str) -> None:
        """Write files; in a name, `_` stands for the dot."""
        for name, text in files.items():
            (self.folder / name.replace("_", ".")).write_text(text)

    def certificates(self) -> None:
        """Make the files of TLS that documents speak of."""
        made = make_certificates(self.folder)
        pairs = {"ca.pem": made.authority, "clients.pem": made.authority, "server.pem": made.certificate}
        for name, path in (pairs | {"server.key": made.key}).items():
            if path != self.folder / name:
                shutil.copy(path, self.folder / name)

    def here(self, command: str) -> str:
        """Move the absolute paths of a command into this directory."""
        for root in ("/run", "/etc", "/var"):
            for path in re.findall(rf"(?<![\w.])({root}/[\w./-]+)", command):
                (self.folder / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            command = re.sub(rf"(?<![\w.]){root}/", f"{self.folder}{root}/", command)
        return command


class Session:
    """Runs the blocks of a document, one after the other. `server` is what commands talk to by default."""

    def __init__(self, place: Place, server: str, unready: re.Pattern[str], codes: dict[str, int]) -> None:
        """`unready` are servers that never have flags; `codes` has commands that end with another code than 0."""
        self._place, self._server, self._unready, self._exits = place, server, unready, codes
        self._stack = ExitStack()
        self._default: Typed | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def default(self) -> Typed | None:
        """Return the server of the document, started when somebody needs it."""
        if self._default is None and self._server:
            self._default = self._stack.enter_context(self.serve(self._server))
        return self._default

    def published(self) -> int:
        """Return how many lines of log the server of the document has written, if it was started."""
        return len(self._default.lines) if self._default else 0

    def wait_for_snapshot(self, after: int) -> None:
        """Wait until the server of the document has published a snapshot, after so many lines of log."""
        running = self.default()
        assert running is not None
        running.wait_for_log(lambda line: line["msg"] == "snapshot published", after)

    def serve(self, command: str) -> Typed:
        """Return a server, not started yet."""
        return Typed(self._place.here(command), self._place, ready=not self._unready.search(command))

    def run(self, block: Block) -> list[str]:
        """Run a block; return what its commands print."""
        printed: list[str] = []
        current: Typed | None = None
        with ExitStack() as stack:
            for step in _steps(block.commands()):
                text = self._addressed(step, current)
                if is_server(step):
                    stack.close()
                    current = stack.enter_context(self.serve(text))
                    stack.callback(self._stopped, current)
                else:
                    printed.append(self.script(text))
        return printed

    def script(self, text: str) -> str:
        """Run a piece of script; return what it prints."""
        lines = [f"{line} || [ $? = {code} ]" if (code := self._code(line)) else line for line in text.splitlines()]
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._place.here("\n".join(lines))],
            cwd=self._place.folder,
            env=self._place.environment,
            capture_output=True,
            text=True,
            timeout=170,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _code(self, command: str) -> int:
        return next((code for pattern, code in self._exits.items() if re.search(pattern, command)), 0)

    def _stopped(self, server: AgentProcess) -> None:
        """A server that is told to stop ends in peace."""
        assert server.stop() == 0

    def _addressed(self, text: str, current: Typed | None) -> str:
        """Put the ports of a server in the place of those that the documents name."""
        named = sorted({int(port) for port in re.findall(r"localhost:(80\d\d|7000)", text)})
        server = (current or self.default()) if named else None
        if server is not None:
            ports = _PORTS[server.kind]
            for port in named:
                if port in ports:
                    text = text.replace(f"localhost:{port}", server.address(ports[port]))
        return text


def _kind(command: str) -> str:
    """Return the face that a command starts."""
    return next((kind for kind in ("proxy", "watt") if f"wigwag {kind}" in command), "agent")


def _steps(commands: list[str]) -> Iterator[str]:
    """Yield servers by themselves, and the commands between them as one script each."""
    script: list[str] = []
    for command in commands:
        if is_server(command):
            if script:
                yield "\n".join(script)
            script = []
            yield command
        else:
            script.append(command)
    if script:
        yield "\n".join(script)
