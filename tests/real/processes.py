"""Servers in processes of their own: started, asked until they are ready, stopped, killed, paused; never left behind.

Waiting is asking again until a deadline, because a server of somebody else tells nobody when it is ready.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
TIMEOUT = 90.0
PAUSE = 0.02
PORTS = range(20_000, 30_000)
"""Below the ports that the kernel gives to clients: a server that is down for a while finds its port free again."""
TETHER = Path(__file__).with_name("tether.py")


class ServerError(Exception):
    """A server did not start, did not get ready or did not stop in time."""


def until(ask: Callable[[], T], what: str, timeout: float = TIMEOUT) -> T:
    """Ask until the answer is true, and return it."""
    deadline = time.monotonic() + timeout
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise ServerError(f"{what} did not happen within {timeout:g} s")
        time.sleep(PAUSE)
    return answer


def claim_port() -> int:
    """Return a loopback port that nobody listens on, and that no other test run claims while this process lives."""
    folder = Path(tempfile.gettempdir()) / f"wigwag-test-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return next(port for port in random.sample(PORTS, len(PORTS)) if _claimed(folder / str(port)) and _free(port))


def _claimed(path: Path) -> bool:
    """Lock the file for as long as this process lives: its descriptor stays open."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def tether() -> list[str]:
    """Return what to put before a command so that it ends with this process, however that ends."""
    return [sys.executable, "-I", "-S", str(TETHER), str(os.getpid())]


class Server:
    """One program. `ready` tells whether it serves; what it says is in `log`, all starts after each other.

    Start it in the main thread, or in a thread that outlives it: the kernel ends it with the thread that started it.
    """

    def __init__(self, command: Sequence[str | Path], log: Path, ready: Callable[[], bool]) -> None:
        self.command, self.log, self._ready = [str(word) for word in command], log, ready
        self.name = Path(self.command[0]).name
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process, which must be there."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float = TIMEOUT) -> None:
        """Start it, and wait until it is ready."""
        self.begin()
        self.wait(timeout)

    def begin(self) -> None:
        """Start it, and wait for nothing."""
        assert not self.running, f"{self.name} is running already"
        command = [*tether(), *self.command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self, timeout: float = TIMEOUT) -> None:
        """Wait until it is ready; what does not get ready in time is killed."""
        try:
            until(self._is_ready, f"{self.name} getting ready", timeout)
        except BaseException:
            self.kill()
            raise

    def _is_ready(self) -> bool:
        if not self.running:
            raise ServerError(f"{self.name} ended at once; the end of {self.log}:\n{self.last_words()}")
        return self._ready()

    def last_words(self, lines: int = 15) -> str:
        """Return the end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def kill(self) -> None:
        """End it as a power cut would."""
        self.stop(signal.SIGKILL)

    def stop(self, number: int = signal.SIGTERM, timeout: float = TIMEOUT) -> None:
        """Ask it to end, and wait; what does not listen is killed. Stopping twice is no error."""
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        """Kill it, and start it again on the same data and port."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop its clock: connections stay open, and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)  # its threads stop one after the other

    def resume(self) -> None:
        """Let it go on after `pause`."""
        os.kill(self.pid, signal.SIGCONT)
