"""Text or objects become a document: JSON or YAML, within limits, its parts still unparsed.

Whatever the form, a document ends up as JSON bytes, so there is one parser behind this door. A document that cannot be
read is rejected as a whole with the line and column, or the path, of the fault; flags are looked at by `parse`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct, field

from wigwag.errors import DocumentError, UsageError
from wigwag.flags.model import child

if TYPE_CHECKING:
    from wigwag.flags.model import Json, Limits

Format: TypeAlias = Literal["json", "yaml"]
Input: TypeAlias = "str | bytes | Mapping[str, Any]"
_BOM = b"\xef\xbb\xbf"


class Document(Struct):
    """The parts of a flag document, unparsed."""

    flags: Raw = Raw(b"")
    evaluators: Raw = field(default=Raw(b"null"), name="$evaluators")
    metadata: Raw = Raw(b"null")
    schema: Any = field(default=None, name="$schema")
    text: bytes = b""
    mended: bool = False
    """Whether half characters in the text had to be replaced."""


_SURROGATE = re.compile("[\ud800-\udfff]")
_decode = msgspec.json.Decoder(Document).decode


def read(document: Input, limits: Limits, format: Format | None = None) -> Document:
    """Read a document; without a format, text that starts with a brace is JSON and other text is YAML."""
    text = to_json(document, limits, format)
    try:
        parts = _decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        text = _mended(text, error)
        parts = _decode(text)
        parts.mended = True
    parts.text = text
    return parts


def _mended(text: bytes, error: Exception) -> bytes:
    """Replace halves of surrogate pairs, as Go does, if they are all that is wrong with the text."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
        mended = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        raise malformed(text, error) from error
    if not isinstance(value, dict) or not _SURROGATE.search(mended):
        raise malformed(text, error) from error
    return _SURROGATE.sub("\ufffd", mended).encode()


def _no_constant(name: str) -> Json:
    raise ValueError(name)


def format_of(name: str) -> Format | None:
    """Return the format that a file's extension stands for, or None to look at the text.

    >>> format_of("a/flags.YML"), format_of("flags")
    ('yaml', None)
    """
    formats: dict[str, Format] = {"json": "json", "yaml": "yaml", "yml": "yaml"}
    return formats.get(name.rpartition(".")[2].lower())


def to_json(document: Input, limits: Limits, format: Format | None = None) -> bytes:
    """Return the document as JSON text, in UTF-8."""
    if format not in (None, "json", "yaml"):
        raise UsageError(f"unknown format {format!r}: use json or yaml, or None to look at the text")
    if isinstance(document, Mapping):
        return _encode(dict(document), limits)
    if not isinstance(document, str | bytes):
        raise UsageError(f"a document is text, bytes or a mapping, not {type(document).__name__}")
    text = _utf8(document).removeprefix(_BOM)
    _check_size(text, limits)
    start = text.lstrip()[:1]
    if format == "yaml" or (format is None and start not in (b"{", b"")):
        from wigwag.flags.yaml import parse_yaml  # YAML costs an import that most processes never need

        return _encode(parse_yaml(text, limits), limits)
    if not start:
        raise DocumentError('the document is empty; the smallest one is {"flags": {}}')
    return text


def decode(raw: Raw | bytes, path: str) -> Json:
    """Decode a part of a document that `read` let through; what it could not see yet is reported with the path."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise DocumentError(f"{path}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Say in words what a decoder complained about."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "text that is not UTF-8"
    message, _, where = str(error).removeprefix("JSON is malformed: ").partition(" - at `$")
    return f"{message[:1].lower()}{message[1:]}" + (f" at {where.rstrip('`').lstrip('.')}" if where else "")


def malformed(text: bytes, error: Exception) -> DocumentError:
    """Explain why a text is not a document. Broken text is rare, so a second, slower look at it is affordable."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as better:
        return DocumentError(f"not valid JSON: {better.msg.lower()} at line {better.lineno}, column {better.colno}")
    except (RecursionError, ValueError):
        return DocumentError(f"not valid JSON: {reason(error)}")
    if not isinstance(value, dict):
        return DocumentError(f"$: the document must be an object with `flags`, not {type(value).__name__}")
    return DocumentError(f"not valid JSON: {reason(error)}")


def duplicates(text: bytes) -> list[str]:
    """Return the paths of members that appear twice in one object; JSON parsers silently keep the last."""
    seen = False

    def collect(pairs: list[tuple[str, Json]]) -> Json:
        nonlocal seen
        members = _Members(pairs)
        if len(members) < len(pairs):
            seen = True
            counts = Counter(key for key, _ in pairs)
            members.repeated = sorted(key for key, count in counts.items() if count > 1)
        return members

    try:
        value = json.loads(text, object_pairs_hook=collect)
    except (RecursionError, ValueError):
        return []
    return list(_repeated(value, "$")) if seen else []


class _Members(dict[str, Any]):
    repeated: list[str] = []  # noqa: RUF012 - replaced, never changed


def _repeated(value: Json, path: str) -> Any:
    if isinstance(value, _Members):
        yield from (child(path, key) for key in value.repeated)
        for key, item in value.items():
            yield from _repeated(item, child(path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _repeated(item, child(path, index))


def _utf8(document: str | bytes) -> bytes:
    try:
        return document.encode() if isinstance(document, str) else document
    except UnicodeEncodeError as error:
        raise DocumentError("the document has half a surrogate pair in it, which is no character") from error


def _check_size(text: bytes, limits: Limits) -> None:
    if len(text) > limits.document_bytes:
        raise DocumentError(
            f"the document has {len(text)} bytes, more than the limit of {limits.document_bytes} "
            "(raise Limits.document_bytes)"
        )


def _encode(document: Mapping[str, Any], limits: Limits) -> bytes:
    try:
        text = json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        what = "half a surrogate pair" if isinstance(error, UnicodeEncodeError) else str(error)
        raise DocumentError(f"the document cannot be written as JSON: {what}") from error
    _check_size(text, limits)
    return text
