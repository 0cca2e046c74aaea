"""YAML 1.2, as JSON values.

The C library reads the text; what its events mean is decided here, because YAML 1.1 would turn the variants `on` and
`off` into booleans, and because aliases can blow up: an alias shares its value, but counts as often as it is used.
With `leaves`, each scalar is a `Leaf` that keeps its text: `1.10` is a number, and also a version. `dump` writes what
readers of YAML 1.1 and 1.2 understand alike: texts that one of them takes for something else are quoted.

Errors name the line and column. They do not name aliases and tags, because a password that begins with `*` or `!` and
is not quoted is taken for one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import yaml
from yaml import events

from wigwag.errors import DocumentError

Json: TypeAlias = Any
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"([-+]?)(?:(0b[01]+)|(0o[0-7]+)|(0x[0-9a-fA-F]+)|(0[0-7]+)|(0|[1-9][0-9]*))")
_LONGEST_NUMBER = 4000
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_CONSTANTS = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    text: value for value in (True, False) for text in (str(value).lower(), str(value), str(value).upper())
}
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MERGE = "<<"


class Bounds(NamedTuple):
    """The limits of a text."""

    document_bytes: int
    """Its size, and that once its aliases are expanded."""
    depth: int
    """Nesting of maps and lists."""
    remedy: str = ""
    """The end of the error message; `{}` is the name of the limit."""
    nodes: int | None = None
    """How many values it may have, maps and lists among them; None: as many as fit."""

    def hint(self, name: str) -> str:
        """Return the end of the error message for a limit."""
        return self.remedy.format(name)


class Leaf(NamedTuple):
    """A scalar: what a person wrote, and what it means."""

    text: str
    value: Json


def load(text: bytes, bounds: Bounds, *, leaves: bool = False) -> Json:
    """Return the one value in the text; of an empty one, an empty map. With `leaves`, each scalar is a `Leaf`.

    >>> load(b"{a: 1.10, b: [on]}", Bounds(100, 10))
    {'a': 1.1, 'b': ['on']}
    >>> load(b"a: 1.10", Bounds(100, 10), leaves=True)
    {'a': Leaf(text='1.10', value=1.1)}
    """
    with _errors(text):
        return _Builder(yaml.parse(text, Loader=LOADER), bounds, leaves).document()


def load_all(text: bytes, bounds: Bounds) -> list[tuple[int, Json]]:
    """Return the values of all documents in a text, each with the line that it begins in, counted from 1.

    >>> load_all(b"a: 1\\n---\\nb: 2\\n---\\n", Bounds(100, 10))
    [(1, {'a': 1}), (2, {'b': 2}), (4, None)]
    """
    with _errors(text):
        return list(_Builder(yaml.parse(text, Loader=LOADER), bounds, leaves=False).documents())


def dump(value: Json) -> str:
    """Return a value as a document.

    >>> print(dump({"a": ["on", "1e3", 1.5], "b": "two\\nlines\\n"}), end="")
    a:
    - 'on'
    - '1e3'
    - 1.5
    b: |
      two
      lines
    """
    written: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return written


class _Dumper(yaml.SafeDumper):
    """Writes no aliases, and quotes what YAML 1.2 would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else "'" if _meaning(text) is not text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _Dumper.represent_text)


def _meaning(text: str) -> Json:
    """Return what a plain scalar is read as; the text itself if it is text."""
    try:
        return _scalar(events.ScalarEvent(None, None, (True, False), text))
    except DocumentError:
        return None


@contextmanager
def _errors(text: bytes) -> Iterator[None]:
    """Turn what the parser raises into a `DocumentError`."""
    try:
        yield
    except yaml.YAMLError as error:
        raise _invalid(error, text) from error
    except UnicodeDecodeError as error:
        raise DocumentError("not valid YAML: text that is not UTF-8") from error
    except RecursionError as error:
        raise DocumentError("not valid YAML: nested too deeply") from error


class _Builder:
    """Builds values from events, one level of Python's stack per level of the document, within limits."""

    def __init__(self, stream: Iterator[yaml.Event], bounds: Bounds, leaves: bool) -> None:
        self._next = stream.__next__
        self._bounds, self._leaves = bounds, leaves
        self._size = self._nodes = 0
        self._anchors: dict[str, tuple[Json, int]] = {}

    def document(self) -> Json:
        while not isinstance(event := self._next(), events.DocumentStartEvent):
            if isinstance(event, events.StreamEndEvent):
                return {}
        value = self._value(self._next(), 0)
        self._next()
        if isinstance(event := self._next(), events.DocumentStartEvent):
            raise _fault(event, "a second document; there must be one")
        return value

    def documents(self) -> Iterator[tuple[int, Json]]:
        while not isinstance(event := self._next(), events.StreamEndEvent):
            if isinstance(event, events.DocumentStartEvent):
                self._anchors = {}
                line, _ = _position(event.start_mark) or (1, 1)
                yield line, self._value(self._next(), 0)

    def _value(self, event: yaml.Event, depth: int) -> Json:
        bounds = self._bounds
        if depth > bounds.depth:
            raise _fault(event, f"nested more than {bounds.depth} deep{bounds.hint('depth')}")
        before = self._size
        self._count(event, 1 + len(getattr(event, "value", "")))
        if isinstance(event, events.AliasEvent):
            return self._alias(event)
        if isinstance(event, events.ScalarEvent):
            value = Leaf(event.value, _scalar(event)) if self._leaves else _scalar(event)
        elif isinstance(event, events.SequenceStartEvent):
            _check_tag(event, "seq")
            value = self._sequence(depth)
        else:
            _check_tag(event, "map")
            value = self._mapping(depth)
        if event.anchor:  # type: ignore[attr-defined]
            self._anchors[event.anchor] = value, self._size - before  # type: ignore[attr-defined]
        return value

    def _alias(self, event: events.AliasEvent) -> Json:
        if event.anchor not in self._anchors:
            raise _fault(event, "an alias without an anchor before it (a text that begins with * needs quotes)")
        value, size = self._anchors[event.anchor]
        self._count(event, size)
        return value

    def _member(self, event: yaml.Event, depth: int) -> Json:
        """Return a value that is in a map or list."""
        self._nodes += 1
        most = self._bounds.nodes
        if most is not None and self._nodes > most:
            raise _fault(event, f"more than {most} values{self._bounds.hint('nodes')}")
        return self._value(event, depth)

    def _sequence(self, depth: int) -> list[Json]:
        items = []
        while not isinstance(event := self._next(), events.SequenceEndEvent):
            items.append(self._member(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, Json]:
        members: dict[str, Json] = {}
        merged: dict[str, Json] | None = None
        while not isinstance(event := self._next(), events.MappingEndEvent):
            key = self._value(event, depth + 1)
            key = key.value if isinstance(key, Leaf) else key
            value = self._member(self._next(), depth + 1)
            merging = key == _MERGE and getattr(event, "implicit", (False,))[0]
            name = _MERGE if merging else _name(event, key)
            if name in members or (merging and merged is not None):
                raise _fault(event, f"the key {name!r} appears twice")
            if merging:
                merged = _merge(event, value)
            else:
                members[name] = value
        return merged | members if merged is not None else members

    def _count(self, event: yaml.Event, size: int) -> None:
        self._size += size
        if self._size > (limit := self._bounds.document_bytes):
            hint = self._bounds.hint("document_bytes")
            raise _fault(event, f"more than {limit} bytes once aliases are expanded{hint}")


def _scalar(event: events.ScalarEvent) -> Json:
    text, tag = event.value, event.tag
    if tag is not None and tag != "!":
        return _tagged(event, tag)
    if not event.implicit[0]:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    number = _number(event, text)
    if number is not None:
        return number
    if _NOT_FINITE.fullmatch(text):
        raise _fault(event, f"{text} is not a JSON number")
    return text


def _number(event: yaml.Event, text: str) -> int | float | None:
    """Read a number as the YAML reader of flagd does: with 0b, 0o, 0x, a leading 0 for octal, and underscores."""
    plain = text.replace("_", "") if text[:1].isdigit() or text[:1] in "+-." else text
    if len(plain) > _LONGEST_NUMBER:
        return None
    match = _INTEGER.fullmatch(plain)
    if match:
        sign, binary, octal, hexadecimal, old_octal, decimal = match.groups()
        prefixed = binary or octal or hexadecimal
        size = int(prefixed, 0) if prefixed else int(old_octal, 8) if old_octal else int(decimal)
        return -size if sign == "-" else size
    number = float(plain) if _FLOAT.fullmatch(plain) else None
    if number is not None and not math.isfinite(number):
        raise _fault(event, "a number out of range")
    return number


def _tagged(event: events.ScalarEvent, tag: str) -> Json:
    kind = tag.removeprefix("tag:yaml.org,2002:")
    if kind == "str":
        return event.value
    plain = _scalar(events.ScalarEvent(None, None, (True, False), event.value, event.start_mark, event.end_mark))
    kinds = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
    if kind not in kinds or not isinstance(plain, kinds[kind]):  # type: ignore[arg-type]
        raise _wrong_tag(event)
    return plain


def _check_tag(event: yaml.Event, kind: str) -> None:
    tag = getattr(event, "tag", None)
    if tag not in (None, "!", f"tag:yaml.org,2002:{kind}"):
        raise _wrong_tag(event)


def _wrong_tag(event: yaml.Event) -> DocumentError:
    return _fault(event, "a tag that cannot be applied here (a text that begins with ! needs quotes)")


def _name(event: yaml.Event, key: Json) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, list | dict):
        raise _fault(event, "a key must be text")
    return str(getattr(event, "value", key))


def _merge(event: yaml.Event, value: Json) -> dict[str, Json]:
    parts = value if isinstance(value, list) else [value]
    merged: dict[str, Json] = {}
    for part in reversed(parts):
        if not isinstance(part, dict):
            raise _fault(event, "`<<` merges mappings only")
        merged |= part
    return merged


def _fault(event: yaml.Event, message: str) -> DocumentError:
    mark = event.start_mark
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return DocumentError(f"not valid YAML: {message}{where}", position=_position(mark))


def _invalid(error: yaml.YAMLError, text: bytes) -> DocumentError:
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if not problem or not mark:
        return DocumentError(f"not valid YAML: {' '.join(str(error).split())}")
    where = f"line {mark.line + 1}, column {mark.column + 1}"
    if "cannot start any token" in problem:
        problem = _strange_start(text, mark)
    return DocumentError(f"not valid YAML: {problem} at {where}", position=_position(mark))


def _strange_start(text: bytes, mark: Any) -> str:
    """Return an error for a character that cannot start a value; a tab, which is invisible, is named."""
    lines = text.decode("utf-8", "replace").splitlines()
    rest = lines[mark.line][mark.column :] if mark.line < len(lines) else ""
    if rest.startswith("\t"):
        return "a tab; YAML is indented with spaces, so replace it by spaces"
    return f"a value cannot start with {rest[:1]!r}; put it in quotes"


def _position(mark: Any) -> tuple[int, int] | None:
    return (mark.line + 1, mark.column + 1) if mark else None
