"""Brings the libraries of the console from npm into the tree, at the versions and with the digests that stand here.

Run `python -m tools.vendor` after changing a version; the files are committed, so nobody needs npm to install wigwag.
Imports between them are by package name, which browsers cannot resolve: they become file names.
"""

from __future__ import annotations

import base64
import subprocess
import tarfile
import tempfile
from hashlib import sha512
from pathlib import Path

ASSETS = Path(__file__).parent.parent / "src/wigwag/serve/console/assets"
PACKAGES = {
    "preact@11.2.0": (
        "/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js", "LICENSE": "preact.LICENSE"},
    ),
    "htm@3.1.1": (
        "983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"dist/htm.mjs": "htm.js", "LICENSE": "htm.LICENSE"},
    ),
}
"""The digest of each package, as npm has it (sha512, base64), and the files that are taken from it."""
NAMES = {b'"preact"': b'"./preact.js"'}


def main() -> None:
    """Fetch, check and write."""
    for package, (digest, names) in PACKAGES.items():
        with tempfile.TemporaryDirectory() as directory:
            packed = _pack(package, directory)
            actual = base64.b64encode(sha512(packed.read_bytes()).digest()).decode()
            if actual != digest:
                raise SystemExit(f"{package}: the digest is {actual}, not {digest}; see whether that is meant")
            with tarfile.open(packed) as archive:
                for inside, name in names.items():
                    member = archive.extractfile(f"package/{inside}")
                    assert member is not None
                    (ASSETS / name).write_bytes(_rewritten(member.read()))
        print(f"{package}: {', '.join(names.values())}")


def _pack(package: str, directory: str) -> Path:
    command = ["npm", "pack", "--silent", package]
    done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)  # noqa: S603 - fixed
    return Path(directory) / done.stdout.split()[-1]


def _rewritten(content: bytes) -> bytes:
    lines = [line for line in content.splitlines() if not line.startswith(b"//# sourceMappingURL")]
    text = b"\n".join(lines) + b"\n"
    for name, path in NAMES.items():
        text = text.replace(b"from" + name, b"from" + path)
    return text


if __name__ == "__main__":
    main()
