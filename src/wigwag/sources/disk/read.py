"""Read one file whole: a regular file of limited size, and, if wanted, only inside a directory.

A file is opened without blocking (a pipe would block for ever) and checked by its handle, so that what is checked is
what is read. `open_beneath` follows symbolic links within a directory (a mounted ConfigMap is made of them: `..data`)
and refuses one that leads out. It looks the path up name by name, each beneath the handle of the one before, and
resolves links itself: there is no moment between check and opening in which somebody could redirect a link.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
MOST_LINKS = 40
OUTSIDE = "a symbolic link leads out of the directory that files must be in"


def read(path: str, most: int, directory: int | None = None, flags: int = FLAGS) -> bytes:
    """Return the content of a file; `OSError` if it cannot be read, is not a regular file, or is larger than `most`."""
    return read_handle(os.open(path, flags, dir_fd=directory), path, most)


def read_handle(handle: int, path: str, most: int) -> bytes:
    """Return the content of an open file, and close it; `path` is for errors."""
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "a directory, where a file is expected", path)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        content = b"" if status.st_size > most else _content(handle, most + 1, status.st_size + 1)
    finally:
        os.close(handle)
    if max(status.st_size, len(content)) > most:
        raise too_large(path, most)
    return content


def _content(handle: int, most: int, guess: int) -> bytes:
    """Read to the end, or to a limit; `guess` is its size, but it may grow."""
    chunks, left = [], most
    while left and (chunk := os.read(handle, min(left, max(guess, 1 << 16)))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def too_large(path: str, most: int) -> OSError:
    """Make the error for a file beyond the limit."""
    return OSError(errno.EFBIG, f"larger than the limit of {most} bytes", path)


def open_beneath(root: str, path: str) -> int:
    """Return a handle of a file; `OSError` if it is missing, or if its path leads out of the root.

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
                names += names_of(target)
        return os.dup(way[-1])


def _link(name: str, directory: int) -> str | None:
    """Return the target of a link; None for other files. If it changes before it is opened, that fails (O_NOFOLLOW)."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None


def _names(root: str, path: str) -> list[str]:
    """Return the names of an absolute path below the root, last first."""
    inside = path.removeprefix(root.rstrip("/"))
    if (inside == path and root != "/") or not inside.startswith("/"):
        raise OSError(errno.EACCES, OUTSIDE, path)
    return names_of(inside)


def names_of(path: str) -> list[str]:
    """Return the names of a path, last first."""
    return [name for name in reversed(path.split("/")) if name not in {"", "."}]
