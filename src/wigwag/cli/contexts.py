"""Many contexts in one file: a list in JSON or YAML, an object whose only member `contexts` is one, or JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from wigwag.cli.documents import parse_context, read_file, read_standard_input
from wigwag.errors import DocumentError, UsageError
from wigwag.flags.document import format_of, reason
from wigwag.flags.model import Limits

MOST = 1_000_000
_FORM = 'must be a list of contexts, such as [{"targetingKey": "user-1"}]'


def read_contexts(name: str) -> list[dict[str, Any]]:
    """Read the contexts of a file, or of standard input."""
    text = read_standard_input() if name == "-" else read_file(Path(name), name)
    where, limits = "standard input" if name == "-" else name, Limits()
    if len(text) > limits.document_bytes:
        raise UsageError(f"{where} has more than {limits.document_bytes} bytes; take a sample of the contexts")
    try:
        return _listed(_parsed(text.removeprefix(b"\xef\xbb\xbf"), name, limits))
    except (UsageError, DocumentError) as error:
        raise UsageError(f"{where} cannot be used as contexts: {error}") from error


def _parsed(text: bytes, name: str, limits: Limits) -> Any:
    start = text.lstrip()[:1]
    if not start:
        raise UsageError(f"it is empty; it {_FORM}")
    if format_of(name) == "yaml" or start not in (b"[", b"{"):
        from wigwag.flags.yaml import parse_value  # YAML costs an import

        return parse_value(text, limits)
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


def _listed(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        wrapped = value.get("contexts")
        value = wrapped if len(value) == 1 and isinstance(wrapped, list) else [value]
    if not isinstance(value, list):
        raise UsageError(f"it {_FORM}")
    for number, context in enumerate(value, 1):
        if not isinstance(context, dict):
            raise UsageError(f"context #{number} must be an object of attributes")
    return value
