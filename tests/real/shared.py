"""Servers that all workers of a test run share: the first that needs them starts them, the last that leaves ends them.

`keeper` tells how; this is the side of the users.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real.keeper import lock
from tests.real.processes import ServerError, until

ROOT = Path(__file__).parent.parent.parent
START_TIMEOUT = 120.0


@contextmanager
def shared(kind: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Use the servers of a kind, and yield what their keeper tells about them."""
    folder.mkdir(parents=True, exist_ok=True)
    users, state = join(kind, folder)
    try:
        yield state
    finally:
        leave(folder, users)


def join(kind: str, folder: Path) -> tuple[int, dict[str, Any]]:
    """Become a user, one process after the other; start what does not run."""
    starting = lock(folder / "starting", fcntl.LOCK_EX)
    try:
        users = lock(folder / "users", fcntl.LOCK_SH)  # a keeper that is about to end ends first
        try:
            if not runs(folder):
                start(kind, folder)
            return users, json.loads((folder / "state.json").read_text())
        except BaseException:
            os.close(users)
            raise
    finally:
        os.close(starting)


def runs(folder: Path) -> bool:
    """Tell whether there is a keeper with its servers; what a killed one left behind does not count."""
    return (folder / "state.json").exists() and not _lockable(folder / "alive", fcntl.LOCK_SH)


def start(kind: str, folder: Path) -> None:
    """Start a keeper, which is the parent of the servers, and wait until they are ready."""
    command = [sys.executable, "-m", "tests.real.keeper", kind, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=START_TIMEOUT)
    if done.returncode:
        raise ServerError(f"{kind} did not start: {done.stderr.strip()}")


def leave(folder: Path, users: int) -> None:
    """Stop being a user. The last one waits until the servers are gone, so that no run leaves anything behind."""
    os.close(users)
    until(lambda: _used(folder) or _lockable(folder / "alive", fcntl.LOCK_SH), f"the end of the servers in {folder}")


def _used(folder: Path) -> bool:
    """Tell whether somebody else is a user: then only, what cannot be locked alone can be locked together."""
    users = folder / "users"
    return not _lockable(users, fcntl.LOCK_EX) and _lockable(users, fcntl.LOCK_SH)


def _lockable(path: Path, how: int) -> bool:
    try:
        os.close(lock(path, how | fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
