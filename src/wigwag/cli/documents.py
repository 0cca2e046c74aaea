"""What a command reads: flag documents, one context, or many of them.

A flag document is a file, `-` for standard input, or `demo` for the flags that come with wigwag. A file of contexts
is a list in JSON or YAML, an object whose only member `contexts` is one, or JSON lines.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.errors import DocumentError, UsageError
from wigwag.flags.document import format_of, parse_yaml, reason
from wigwag.flags.model import Limits

if TYPE_CHECKING:
    from wigwag.flags.document import Format

DEMO = "demo"
MOST_CONTEXTS = 1_000_000
_BYTES = Limits().document_bytes
_CONTEXTS = 'must be a list of contexts, such as [{"targetingKey": "user-1"}]'


def read_document(source: str) -> tuple[bytes, Format | None]:
    """Return the text of a document, and its format if the name says it."""
    if is_demo(source):
        return files("wigwag").joinpath("demo.json").read_bytes(), "json"
    path = str(Path(source.removeprefix("file:")))
    return read_file(path, standard_input=source == "-"), format_of(path)


def title(source: str) -> str:
    """Return the name of a document for people.

    >>> title("-"), title("file:flags.json")
    ('standard input', 'flags.json')
    """
    return "standard input" if source == "-" else source.removeprefix("file:")


def is_demo(source: str) -> bool:
    """Tell whether a name stands for the flags that come with wigwag: not if there is a file of that name."""
    return source == DEMO and not Path(source).exists()


def read_file(path: str, what: str = "", *, standard_input: bool = False) -> bytes:
    """Read a file or standard input, up to one byte more than the largest document: some never end."""
    try:
        if standard_input:
            return sys.stdin.buffer.read(_BYTES + 1)
        with Path(path).open("rb") as file:
            return file.read(_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {what or title(path)}: {reason.lower()}") from error


def parse_context(text: str) -> dict[str, Any]:
    """Read a context; the error says what it is or must be, without a subject."""
    try:
        context = json.loads(text)
    except RecursionError as error:
        raise UsageError("is nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"is not valid JSON: {str(error).partition('; use sys.')[0]}") from error
    if not isinstance(context, dict):
        raise UsageError('must be a JSON object, such as {"targetingKey": "user-1"}')
    return context


def read_contexts(name: str) -> list[dict[str, Any]]:
    """Read the contexts of a file, or of standard input."""
    text = read_file(name, standard_input=name == "-")
    if len(text) > _BYTES:
        raise UsageError(f"{title(name)} has more than {_BYTES} bytes; take a sample of the contexts")
    try:
        return _contexts(_parsed(text.removeprefix(b"\xef\xbb\xbf"), name))
    except (UsageError, DocumentError) as error:
        raise UsageError(f"{title(name)} cannot be used as contexts: {error}") from error


def _parsed(text: bytes, name: str) -> Any:
    start = text.lstrip()[:1]
    if not start:
        raise UsageError(f"it is empty; it {_CONTEXTS}")
    if format_of(name) == "yaml" or start not in (b"[", b"{"):
        return parse_yaml(text, Limits())
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        if start == b"[":
            raise UsageError(f"not valid JSON: {reason(error)}") from error
        return [_line(line, number) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _line(line: bytes, number: int) -> dict[str, Any]:
    try:
        return parse_context(line.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"line {number} is not UTF-8") from error
    except UsageError as error:
        raise UsageError(f"line {number} {error}") from error


def _contexts(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        wrapped = value.get("contexts")
        value = wrapped if len(value) == 1 and isinstance(wrapped, list) else [value]
    if not isinstance(value, list):
        raise UsageError(f"it {_CONTEXTS}")
    for number, context in enumerate(value, 1):
        if not isinstance(context, dict):
            raise UsageError(f"context #{number} must be an object of attributes")
    return value
