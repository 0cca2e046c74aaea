"""The process that runs the servers of one test run, for as long as somebody uses them.

`python -m tests.real.keeper KIND FOLDER` ends when the servers are ready, and leaves a keeper in the background. Locks
on files are the whole protocol, because the kernel gives them back however a process ends:

- `users` is locked, shared, by every process that uses the servers. The keeper waits for it alone: it gets it when the
  last user has left or was killed. Then it takes the servers and their data away.
- `alive` is locked by the keeper while it lives.
- `state.json` tells the users what they need. It is there exactly while the servers are.

The servers are tethered to the keeper, so that they do not survive it either.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.real import programs
from tests.real.consul import ConsulServer
from tests.real.controlplane import ControlPlane
from tests.real.operated import OperatedPlane

State = dict[str, Any]


@contextmanager
def kubernetes(folder: Path) -> Iterator[State]:
    """Run a control plane, and yield what `Access` and `Cluster` are made of."""
    with ControlPlane(folder, programs.kubernetes()) as plane:
        yield _described(plane)


def _described(plane: ControlPlane) -> State:
    access = plane.cluster.access
    return {
        "server": access.server,
        "authority": access.authority,
        "tokens": plane.tokens,
        "controllers": plane.cluster.controllers,
        "pids": [server.pid for server in (plane.etcd, plane.apiserver, plane.controllers) if server],
    }


@contextmanager
def operated(folder: Path) -> Iterator[State]:
    """Run a control plane with the operator at work, and yield the same."""
    with OperatedPlane(folder) as found:
        state = _described(found.plane)
        yield {**state, "pids": [*state["pids"], found.operator.process.pid]}


@contextmanager
def consul(folder: Path) -> Iterator[State]:
    """Run Consul, and yield where it is."""
    with ConsulServer(folder, programs.consul()) as server:
        yield {"address": server.consul.address, "pids": [server.server.pid]}


KINDS: dict[str, Callable[[Path], AbstractContextManager[State]]] = {
    "kubernetes": kubernetes,
    "operated": operated,
    "consul": consul,
}


def main(kind: str, folder: Path) -> None:
    """Start a keeper, and wait for its word."""
    ready, word = os.pipe()
    if os.fork():
        os.close(word)
        with os.fdopen(ready) as pipe:
            said = pipe.read()
        sys.exit(0 if said == "ready" else said or f"the keeper of {kind} died; its log is in {folder}")
    os.close(ready)
    _detach(folder / "keeper.log")
    with os.fdopen(word, "w") as pipe:
        keep(KINDS[kind], folder, pipe.write, pipe.close)


def keep(
    run: Callable[[Path], AbstractContextManager[State]],
    folder: Path,
    say: Callable[[str], object],
    said: Callable[[], object],
) -> None:
    """Run the servers until the last user has left."""
    lock(folder / "alive", fcntl.LOCK_EX)
    try:
        with run(folder / "data") as state:
            publish(folder / "state.json", {**state, "keeper": os.getpid()})
            say("ready")
            said()
            lock(folder / "users", fcntl.LOCK_EX)
            (folder / "state.json").unlink()
    except Exception as error:
        say(f"{type(error).__name__}: {error}")
        raise
    finally:
        shutil.rmtree(folder / "data", ignore_errors=True)


def lock(path: Path, how: int) -> int:
    """Lock a file and return its descriptor, which holds the lock until it is closed or the process ends."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def publish(path: Path, state: State) -> None:
    """Write the file in one step; there are tokens in it."""
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(state))
    fresh.replace(path)


def _detach(log: Path) -> None:
    """Leave the terminal, so that ^C goes to the tests only, and let go of the files of whoever waits for the start."""
    os.setsid()
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, str(log), os.O_CREAT | os.O_WRONLY | os.O_APPEND),
    ):
        os.dup2(os.open(path, flags, 0o600), descriptor)
    os.dup2(1, 2)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
