"""Mounts that never change: a ConfigMap that is mounted with `subPath`.

The kubelet binds such a mount to a file, or directory, of the generation at the start of the container, and never
replaces it. Only the table of mounts shows it: the root of a mount, at or beneath the watched directory, is within a
generation.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

_GENERATION = re.compile(r"\.\.[0-9]{4}_[0-9]{2}_[0-9]{2}_")
_ESCAPE = re.compile(r"\\([0-7]{3})")
_TABLE = Path("/proc/self/mountinfo")


def frozen_keys(table: str, directory: str) -> list[str]:
    """Return the paths beneath a directory that can never change; an empty path is the directory itself.

    >>> frozen_keys("36 35 98:0 /pods/7/volumes/config/..2026_01_01_00_00_00.1/rate /etc/dflag/rate ro - ext4 d rw", "/etc/dflag")
    ['rate']
    """  # noqa: E501 - a line of the table
    here = PurePosixPath(directory)
    frozen = (point for root, point in map(_fields, table.splitlines()) if any(map(_GENERATION.match, root.parts)))
    paths = {point.relative_to(here) for point in frozen if point.is_relative_to(here)}
    return sorted("" if path == PurePosixPath() else str(path) for path in paths)


def _fields(line: str) -> tuple[PurePosixPath, PurePosixPath]:
    """Return the root of a mount in its file system, and its mount point."""
    fields = (*line.split(" "), "", "", "", "", "")
    return PurePosixPath(_plain(fields[3])), PurePosixPath(_plain(fields[4]))


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def frozen_here(directory: str) -> list[str]:
    """Return the same for this process; nothing if there is no table of mounts."""
    try:
        return frozen_keys(_TABLE.read_text(errors="surrogateescape"), str(Path(directory).resolve()))
    except OSError:
        return []
