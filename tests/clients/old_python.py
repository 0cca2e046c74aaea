"""The flagd provider 0.2.7 for Python, with the packages of `old_python.txt`, installed once, apart from ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.clients.js_packages import CACHE, announce, locked

__all__ = ["announce", "old_provider"]
REQUIREMENTS = Path(__file__).parent / "old_python.txt"
UV = Path(__file__).parent.parent.parent / ".cache" / "uv" / "bin" / "uv"


def old_provider(say: Callable[[str], None]) -> Path:
    """Return the folder with the packages, to be put on a Python's path. Without a registry: skip, in CI fail."""
    key = sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = CACHE.parent / "old-python" / key
    complete = folder / "complete"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        if not complete.exists():
            say("installing the old Python provider …")
            command: list[str | Path] = [
                UV,
                "pip",
                "install",
                "--quiet",
                "--python",
                sys.executable,
                "--target",
                folder / "packages",
            ]
            done = subprocess.run([*command, "-r", REQUIREMENTS], capture_output=True, text=True, check=False)
            if done.returncode:
                reason = f"THE OLD PYTHON PROVIDER WAS NOT TESTED: {done.stderr[-500:]}"
                (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
            complete.touch()
    return folder / "packages"
