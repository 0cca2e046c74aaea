"""Type checkers, both strict, over programs that use dynamic flags: one made for them, and the examples."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyright

from tests.clients.js_packages import unavailable

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = (Path(__file__).with_name("typed.py"), *sorted(ROOT.glob("examples/**/*.py")))
CHECKER = Path(pyright.__file__).parent / "dist" / "index.js"
STRICT = {
    "include": ["."],
    "typeCheckingMode": "strict",
    "enableTypeIgnoreComments": False,
    "reportUnnecessaryTypeIgnoreComment": "error",
    "extraPaths": [str(ROOT / "src")],
}


def test_mypy_is_content(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={tmp_path}"]
    done = subprocess.run([*command, *map(str, PROGRAMS)], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_pyright_is_content(tmp_path: Path) -> None:
    """The package brings pyright itself; started through its own command, it would look for a newer one on the net."""
    node = shutil.which("node") or unavailable("node is not on the path")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(STRICT))
    for number, program in enumerate(PROGRAMS):
        shutil.copy(program, tmp_path / f"program_{number}.py")
    command = [node, str(CHECKER), "--project", str(tmp_path), "--pythonpath", sys.executable, "--outputjson"]
    told = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    assert told["summary"]["filesAnalyzed"] == len(PROGRAMS) >= 2
    assert [(fault["range"]["start"]["line"] + 1, fault["message"]) for fault in told["generalDiagnostics"]] == []
