"""What a command reads: flag documents (a file, `-` for standard input, `demo` for the flags that come with wigwag),
and contexts.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wigwag.errors import UsageError
from wigwag.flags.document import format_of
from wigwag.flags.model import Limits

if TYPE_CHECKING:
    from wigwag.flags.document import Format

DEMO = "demo"


def read_document(source: str) -> tuple[bytes, Format | None]:
    """Return the text of a document, and its format if the name tells."""
    if source == "-":
        return read_standard_input(), None
    if is_demo(source):
        return files("wigwag").joinpath("demo.json").read_bytes(), "json"
    path = Path(source.removeprefix("file:"))
    return read_file(path, str(path)), format_of(path.name)


def title(source: str) -> str:
    """Return the name of a document for people.

    >>> title("-"), title("file:flags.json")
    ('standard input', 'flags.json')
    """
    return "standard input" if source == "-" else source.removeprefix("file:")


def is_demo(source: str) -> bool:
    """Tell whether the flags that come with wigwag are meant; a file of that name is meant first."""
    return source == DEMO and not Path(source).exists()


def read_file(path: Path, what: str) -> bytes:
    """Read a file, but not much more than the largest document: some files never end."""
    try:
        with path.open("rb") as file:
            return file.read(_most())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {what}: {reason.lower()}") from error


def parse_context(text: str) -> dict[str, Any]:
    """Read a context; the error says what it is or must be, without a subject."""
    try:
        context = json.loads(text)
    except RecursionError as error:
        raise UsageError("is nested too deeply") from error
    except ValueError as error:
        reason = str(error).partition("; use sys.")[0]
        raise UsageError(f"is not valid JSON: {reason}") from error
    if not isinstance(context, dict):
        raise UsageError('must be a JSON object, such as {"targetingKey": "user-1"}')
    return context


def read_standard_input() -> bytes:
    """Read standard input, but not much more than the largest document."""
    try:
        return sys.stdin.buffer.read(_most())
    except OSError as error:
        raise UsageError(f"cannot read standard input: {(error.strerror or str(error)).lower()}") from error


def _most() -> int:
    return Limits().document_bytes + 1  # one byte more, and the document is refused for its size
