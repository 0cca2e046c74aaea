"""Text or objects become a document: JSON or YAML, within limits, its parts still unparsed.

Whatever the form, a document ends up as JSON bytes, so there is one parser behind this door. A document that cannot be
read is rejected as a whole with the line and column, or the path, of the fault; flags are looked at by `parse`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from wigwag import jsontext
from wigwag.errors import DocumentError, UsageError
from wigwag.flags.model import child
from wigwag.flags.rules.coerce import kind_of
from wigwag.suggest import closest

if TYPE_CHECKING:
    from wigwag.flags.model import Json, Limits

Format: TypeAlias = Literal["json", "yaml"]
Text: TypeAlias = str | bytes
Input: TypeAlias = "str | bytes | Mapping[str, Any]"
_BOM = b"\xef\xbb\xbf"


class Definition(Struct, gc=False):
    """What a document says about a flag. Unknown members are ignored."""

    state: str | None = None
    variants: dict[str, Any] | None = None
    defaultVariant: str | None = None  # noqa: N815 - the name on the wire
    targeting: Raw | UnsetType = UNSET
    metadata: dict[str, Any] | None = None
    key: str | None = None


class FlagIdentity(Struct):
    """The members that identify a flag, whatever their types."""

    key: Any = None
    metadata: Any = None


class _Parts(Struct):
    """A document, its flags still text."""

    flags: Raw = Raw(b"")
    evaluators: Raw = field(default=Raw(b"null"), name="$evaluators")
    metadata: Raw = Raw(b"null")
    schema: Any = field(default=None, name="$schema")


class _Whole(_Parts, kw_only=True):
    """A document in which every flag has the right shape, decoded in one pass."""

    flags: dict[str, Definition] | list[Definition]  # type: ignore[assignment]


class FlagDocument:
    """A document that could be read: its parts, and its flags if they all have the right shape."""

    def __init__(self, text: Text, parts: _Parts | _Whole, *, mended: bool) -> None:
        self.text, self.mended = text, mended
        self.evaluators, self.metadata, self.schema = parts.evaluators, parts.metadata, parts.schema
        self.definitions = parts.flags if isinstance(parts, _Whole) else None
        self._flags = None if isinstance(parts, _Whole) else parts.flags

    @property
    def flags(self) -> Raw:
        """The text of all flags; empty if there are none."""
        if self._flags is None:
            self._flags = _decode_parts(self.text).flags
        return self._flags

    def texts(self) -> dict[str | int, Raw]:
        """Return the text of every flag by its place: the name in a map, the index in an array."""
        start = bytes(self.flags)[:1]
        if not start:
            raise self._without_flags()
        if start not in _texts:
            if start != b"n":
                raise DocumentError("$.flags: must be an object or an array of flags")
            return {}
        try:
            decoded = _texts[start](self.flags)
        except UNDECODABLE as error:
            raise DocumentError(f"$.flags: {reason(error)}") from error
        return decoded if start == b"{" else dict(enumerate(decoded))

    def _without_flags(self) -> DocumentError:
        similar = closest("flags", msgspec.json.decode(self.text, type=dict[str, Raw]))
        if similar:
            return DocumentError(f"{child('$', similar)}: no `flags`; did you mean `flags` instead of `{similar}`?")
        return DocumentError('$: no `flags`; a document without flags says {"flags": {}}')


_SURROGATE = re.compile("[\ud800-\udfff]")
UNDECODABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What decoding bytes from elsewhere raises."""
_decode_parts = msgspec.json.Decoder(_Parts).decode
_decode_whole, _decode = jsontext.decoder(_Whole), jsontext.decoder()
_decode_identity = jsontext.decoder(FlagIdentity)
_texts: dict[bytes, Callable[[Raw], Any]] = {
    b"{": msgspec.json.Decoder(dict[str, Raw]).decode,
    b"[": msgspec.json.Decoder(list[Raw]).decode,
}


def read(document: Input, limits: Limits, format: Format | None = None, *, whole: bool = True) -> FlagDocument:
    """Read a document; without a format, text that starts with a brace is JSON and other text is YAML.

    `whole` tries to decode the flags in the same pass: quickest, unless most of them are known already.
    """
    text = to_json(document, limits, format)
    if whole:
        try:
            return FlagDocument(text, _decode_whole(text), mended=False)
        except UNDECODABLE:
            pass  # something is wrong somewhere: find out what, part by part
    try:
        return FlagDocument(text, _decode_parts(text), mended=False)
    except UNDECODABLE as error:
        mended = without_surrogates(text)
        if mended is None:
            raise malformed(text, error) from error
        return FlagDocument(mended, _decode_parts(mended), mended=True)


def without_surrogates(text: Text) -> bytes | None:
    r"""Replace halves of surrogate pairs in a JSON object, as Go does; None if they are not all that is wrong with it.

    >>> without_surrogates(rb'{"a": "\ud800"}').decode()
    '{"a": "\ufffd"}'
    """
    try:
        value = json.loads(text, parse_constant=_no_constant)
        written = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not _SURROGATE.search(written):
        return None
    return _SURROGATE.sub("\ufffd", written).encode()


def _no_constant(name: str) -> Json:
    raise ValueError(name)


def format_of(name: str) -> Format | None:
    """Return the format that a file's extension stands for, or None to look at the text.

    >>> format_of("a/flags.YML"), format_of("flags")
    ('yaml', None)
    """
    formats: dict[str, Format] = {"json": "json", "yaml": "yaml", "yml": "yaml"}
    return formats.get(name.rpartition(".")[2].lower())


def to_json(document: Input, limits: Limits, format: Format | None = None) -> Text:
    """Return the document as JSON text, in UTF-8 or ASCII."""
    if format not in (None, "json", "yaml"):
        raise UsageError(f"unknown format {format!r}: use json or yaml, or None to look at the text")
    if isinstance(document, Mapping):
        return _encode(dict(document), limits)
    if not isinstance(document, str | bytes):
        raise UsageError(f"a document is text, bytes or a mapping, not {type(document).__name__}")
    if isinstance(document, str) and document.isascii():
        text: Text = document  # the decoder reads it as it is: a copy of a large document is not free
    else:
        text = _utf8(document).removeprefix(_BOM)
    _check_size(text, limits)
    if not text or text.isspace():
        raise DocumentError('the document is empty; the smallest one is {"flags": {}}', (), (1, 1))
    if is_yaml(text, format):
        return _encode(_yaml_document(_utf8(text), limits), limits)
    return text


def parse_yaml(text: bytes, limits: Limits) -> Json:
    """Return whatever value a text is; how YAML is read is in `wigwag.yaml`."""
    from wigwag.yaml import Bounds, load  # costs an import that most processes never need

    return load(text, Bounds(limits.document_bytes, limits.depth, " (raise Limits.{})"))


def _yaml_document(text: bytes, limits: Limits) -> dict[str, Json]:
    value = parse_yaml(text, limits)
    if not isinstance(value, dict):
        is_path = isinstance(value, str) and "\n" not in value and format_of(value) is not None
        hint = "; this looks like the name of a file, but the text of the file is needed" if is_path else ""
        raise DocumentError(f"$: the document must be a mapping with `flags`, not {kind_of(value)}{hint}")
    return value


def is_yaml(text: Text, format: Format | None) -> bool:
    """Tell whether a text is read as YAML: by its format, or because it does not start with a brace.

    >>> is_yaml("flags: {}", None), is_yaml(" {}", None), is_yaml("{}", "yaml")
    (True, False, True)
    """
    return format == "yaml" or (format is None and text.lstrip()[:1] not in ("{", b"{"))


def decode(raw: Raw | bytes, path: str) -> Json:
    """Decode a part of a document that `read` let through; what it could not see yet is reported with the path."""
    try:
        return _decode(raw)
    except UNDECODABLE as error:
        raise DocumentError(f"{path}: {reason(error)}") from error


def decode_object(raw: Raw, path: str) -> dict[str, Any]:
    """Decode a part of a document that must be an object; null is an empty one."""
    value = decode(raw, path)
    if value is not None and value.__class__ is not dict:
        raise DocumentError(f"{path}: must be an object")
    return value or {}


def key_of(place: str | int, text: bytes | Raw) -> str:
    """Return the key of a flag, whatever else is wrong with it: its name in a map, its member `key` in an array."""
    key = place if place.__class__ is str else identity_of(text).key
    return key if key.__class__ is str else ""


def identity_of(text: bytes | Raw) -> FlagIdentity:
    """Return the identity of a flag; empty if its text is not an object."""
    try:
        return _decode_identity(text)  # type: ignore[no-any-return]
    except UNDECODABLE:
        return FlagIdentity()


def reason(error: Exception) -> str:
    """Describe an error of the decoder."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "text that is not UTF-8"
    message, _, where = str(error).removeprefix("JSON is malformed: ").partition(" - at `$")
    return f"{message[:1].lower()}{message[1:]}" + (f" at {where.rstrip('`').lstrip('.')}" if where else "")


def malformed(text: Text, error: Exception) -> DocumentError:
    """Explain why a text is not a document. Broken text is rare, so a second, slower look at it is affordable."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as better:
        where = better.lineno, better.colno
        return DocumentError(f"not valid JSON: {better.msg.lower()} at line {where[0]}, column {where[1]}", (), where)
    except (RecursionError, ValueError):
        return DocumentError(f"not valid JSON: {reason(error)}")
    if not isinstance(value, dict):
        return DocumentError(f"$: the document must be an object with `flags`, not {type(value).__name__}")
    return DocumentError(f"not valid JSON: {reason(error)}")


def duplicates(text: Text) -> list[str]:
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
        raise DocumentError("the document contains half a surrogate pair, which is not a character") from error


def _check_size(text: Text, limits: Limits) -> None:
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
