"""Read one file whole: a regular one, and not too large a one.

It is opened without waiting (a pipe would wait for ever) and judged by its handle, so that what is judged is what is
read.
"""

from __future__ import annotations

import errno
import os
import stat

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def read(path: str, most: int, directory: int | None = None, flags: int = FLAGS) -> bytes:
    """Return the content of a file; `OSError` if it cannot be read, is no regular file, or holds more than `most`."""
    return read_handle(os.open(path, flags, dir_fd=directory), path, most)


def read_handle(handle: int, path: str, most: int) -> bytes:
    """Return the content of a file by its handle, and close that; `path` is for errors."""
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
    """Read to the end, or to a limit; the size is only a guess, as the file may grow."""
    chunks, left = [], most
    while left and (chunk := os.read(handle, min(left, max(guess, 1 << 16)))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def too_large(path: str, most: int) -> OSError:
    """Make the error that tells that there is more than is allowed."""
    return OSError(errno.EFBIG, f"larger than the limit of {most} bytes", path)
