"""The npm packages of a folder such as `tests/clients/js`, installed once for each lock file, and a node to run them.

Where there is no node, no npm or no registry, the tests are skipped; in CI, where there must be all three, they fail.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest

TESTS = Path(__file__).parent.parent
SOURCE = TESTS / "clients" / "js"
CACHE = TESTS.parent / ".cache" / "js"
MANIFEST = ("package.json", "package-lock.json", ".npmrc")
OLDEST_NODE = (20, 18)
"""The first with an EventSource."""
INSTALL = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
PATIENCE = ("--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000")
UNREACHABLE = re.compile(
    r"^npm (?:error|ERR!) code"
    r" (E(?:NOTFOUND|AI_AGAIN|CONN\w+|TIMEDOUT|HOSTUNREACH|NETUNREACH|[45]\d\d)|ERR_SOCKET_TIMEOUT|UNABLE_TO_\w+)",
    re.MULTILINE,
)
"""What npm says of a registry that is not there, not allowed, or without these packages."""


def unavailable(why: str) -> NoReturn:
    """Skip what needs the packages; in CI, fail."""
    reason = f"NOTHING THAT NEEDS JAVASCRIPT WAS TESTED: {why}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def installed(say: Callable[[str], None], source: Path = SOURCE) -> Path:
    """Return the folder of node_modules, with the packages in it."""
    require_node()
    folder = CACHE / sha256((source / "package-lock.json").read_bytes()).hexdigest()[:16]
    complete = folder / "complete"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        if not complete.exists():
            say(f"installing what tests/{source.relative_to(TESTS)} needs with npm …")
            install(folder, source)
            complete.touch()
    return folder / "node_modules"


def require_node() -> None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            unavailable(f"{program} is not on the path")
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(part) for part in said.strip().lstrip("v").split(".")[:2])
    if version < OLDEST_NODE:
        unavailable(f"node {said.strip()} is older than {OLDEST_NODE[0]}.{OLDEST_NODE[1]}")


def install(folder: Path, source: Path) -> None:
    for name in MANIFEST:
        shutil.copy(source / name, folder / name)
    done = subprocess.run([*INSTALL, *PATIENCE], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        unreachable = UNREACHABLE.search(done.stderr)
        if unreachable:
            unavailable(f"the npm registry cannot be reached ({unreachable[1]})")
        pytest.fail(f"npm ci failed:\n{done.stderr}", pytrace=False)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds it: the workers of pytest-xdist share the folder."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def announce(config: pytest.Config) -> Callable[[str], None]:
    """Return a way to tell the person at the terminal why it takes so long."""
    capture = config.pluginmanager.getplugin("capturemanager")

    def say(message: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{message}", file=sys.stderr, flush=True)

    return say
