"""Pleasant in a terminal, plain in a pipe."""

from __future__ import annotations

import os
import sys
from typing import TextIO

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return the text in a style, where the stream is a terminal that wants colours."""
    stream = sys.stdout if stream is None else stream
    if not stream.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def complain(message: str) -> None:
    """Say on standard error what is wrong, in one line."""
    print(f"{styled('wigwag:', 'red', sys.stderr)} {message}", file=sys.stderr)


def remark(message: str) -> None:
    """Say something on standard error that is not a failure."""
    print(styled(message, "dim", sys.stderr), file=sys.stderr)
