"""Open a file that must be in a directory, whatever symbolic links there are on the way.

Links within the directory are followed: a mounted ConfigMap is made of them (`..data`). One that leads out is refused.
The path is looked up name by name, each beneath the handle of the one before, and links are taken apart here and not by
the kernel. So there is no moment between the check and the opening in which somebody could turn a link elsewhere.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack

from wigwag.sources.disk.read import FLAGS

MOST_LINKS = 40
OUTSIDE = "a symbolic link leads out of the directory that files must be in"


def open_beneath(root: str, path: str) -> int:
    """Return a handle of a file; `OSError` if there is none, or if its path leads out of the root.

    Both paths are absolute, and the root is without links.
    """
    with ExitStack() as handles:

        def opened(name: str, directory: int | None, flags: int) -> int:
            handle = os.open(name, FLAGS | os.O_NOFOLLOW | flags, dir_fd=directory)
            handles.callback(os.close, handle)
            return handle

        way = [opened(root, None, os.O_DIRECTORY)]
        names, links = _names(root, path), 0
        while names:
            name = names.pop()
            if name == "..":
                if len(way) == 1:
                    raise OSError(errno.EACCES, OUTSIDE, path)
                way.pop()
                continue
            target = _link(name, way[-1])
            if target is None:
                way.append(opened(name, way[-1], os.O_DIRECTORY if names else 0))
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                del way[1:]
                names += _names(root, target)
            else:
                names += _reversed(target)
        return os.dup(way[-1])


def _link(name: str, directory: int) -> str | None:
    """Return where a link leads; None if it is none. If it changes before it is opened, opening fails (O_NOFOLLOW)."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None


def _names(root: str, path: str) -> list[str]:
    """Return the names of an absolute path below the root, last first."""
    inside = path.removeprefix(root.rstrip("/"))
    if inside == path and root != "/":
        raise OSError(errno.EACCES, OUTSIDE, path)
    if not inside.startswith("/"):
        raise OSError(errno.EACCES, OUTSIDE, path)
    return _reversed(inside)


def _reversed(path: str) -> list[str]:
    return [name for name in reversed(path.split("/")) if name not in {"", "."}]
