"""Where a command finds flag documents: a file, `-` for standard input, `demo` for the flags that come with wigwag."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from wigwag.errors import UsageError

if TYPE_CHECKING:
    from wigwag.flags.document import Format

DEMO = "demo"


def read_document(source: str) -> tuple[bytes, Format | None]:
    """Return the text of a document, and its format if the name tells."""
    if source == "-":
        return sys.stdin.buffer.read(), None
    path = Path(source.removeprefix("file:"))
    if source == DEMO and not path.exists():
        return files("wigwag").joinpath("demo.json").read_bytes(), "json"
    try:
        return path.read_bytes(), format_of(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error


def format_of(path: Path) -> Format | None:
    """Return the format that a file's extension stands for, or None to look at the text."""
    match path.suffix.lower():
        case ".json":
            return "json"
        case ".yaml" | ".yml":
            return "yaml"
    return None
