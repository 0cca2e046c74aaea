"""Colours in a terminal that supports them, never in a pipe or a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def wanted(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a stream is a terminal with colours: not with NO_COLOR, and not if TERM is `dumb`."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def painted(text: str, style: str) -> str:
    """Return the text in a style."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"
