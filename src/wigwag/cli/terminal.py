"""Output of commands: colours in a terminal, plain text in a pipe, and no traceback if a stream is closed."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from wigwag.colour import painted, wanted


class _Closed(io.TextIOBase):
    """Standard output where the caller closed it: fails when something is written, and not before."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "standard output is closed")


def prepare_streams() -> None:
    """Make the standard streams usable, whatever the caller did to them; what cannot be encoded is escaped."""
    sys.stdin = sys.stdin or Path(os.devnull).open()  # noqa: SIM115 - lives as long as the process
    sys.stdout = sys.stdout or _Closed()
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def abandon_output() -> None:
    """Discard what was not written, so that the interpreter does not try again at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return the text in a style, where the stream is a terminal that wants colours."""
    return painted(text, style) if wanted(sys.stdout if stream is None else stream) else text


def complain(message: str, subject: str = "wigwag") -> None:
    """Print an error on standard error, in one line."""
    _say(f"{styled(f'{subject}:', 'red', sys.stderr)} {message}")


def remark(message: str) -> None:
    """Print a note on standard error that is not an error."""
    _say(styled(message, "dim", sys.stderr))


def _say(line: str) -> None:
    with suppress(OSError):  # there is nowhere to report it
        print(line, file=sys.stderr, flush=True)
