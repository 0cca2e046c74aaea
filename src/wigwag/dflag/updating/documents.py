"""Many flags in one key: a document in YAML, JSON, TOML, or lines of `KEY=value`.

The key's ending tells which: `.json`, `.toml`, `.env`; anything else is YAML, of which JSON is a part. A document is a
tree of maps and lists, and its leaves are kept as they were written, because only the flag knows what it takes: `1.10`
may be a number or a version, `0x1F` is a number to a flag as it is in a file of its own. A document is read as a whole
or not at all.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from wigwag.errors import DocumentError
from wigwag.yaml import Bounds, Leaf, load

LARGEST = 4 << 20
"""The largest document, in bytes, and that of one in YAML once its aliases are expanded."""
DEPTH = 50
"""How deep maps and lists may be nested."""
MOST = 100_000
"""How many leaves a document may have."""
Node: TypeAlias = "Leaf | list[Node] | dict[str, Node]"
_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}
_QUOTES = "'\""


class Document(NamedTuple):
    """What a document says."""

    tree: dict[str, Node]
    variables: bool = False
    """Whether its names are those of variables: `DB_POOL_SIZE` for the flag `db.pool-size`."""


def read_document(key: str, content: bytes) -> Document:
    """Read a document; `DocumentError`, with the line and column, if it is none.

    >>> read_document("app.yaml", b"db: {size: 0x1F}").tree
    {'db': {'size': Leaf(text='0x1F', value=31)}}
    >>> read_document("app.json", b'{"rate": 1,}')
    Traceback (most recent call last):
    wigwag.errors.DocumentError: not valid JSON: expecting property name enclosed in double quotes at line 1, column 12
    """
    if len(content) > LARGEST:
        raise DocumentError(f"larger than the limit of {LARGEST} bytes; give large values keys of their own")
    read = _FORMATS.get(key.rpartition(".")[2].lower(), _yaml)
    try:
        tree = read(_text(content))
        if not isinstance(tree, dict):
            raise DocumentError("the document must be a map from names to values")
        _check_size(tree)
    except RecursionError:
        raise DocumentError("nested too deeply") from None
    return Document(tree, read is _env)


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(f"not UTF-8 text (byte {error.start} of {len(content)})") from None


def _yaml(text: str) -> Any:
    return load(text.encode(), Bounds(LARGEST, DEPTH), leaves=True)


def _json(text: str) -> Any:
    decoder = json.JSONDecoder(
        object_pairs_hook=_members,
        parse_int=lambda text: Leaf(text, int(text)),
        parse_float=lambda text: Leaf(text, float(text)),
        parse_constant=_no_number,
    )
    try:
        return _leaves(decoder.decode(text))
    except json.JSONDecodeError as error:
        where = f"at line {error.lineno}, column {error.colno}"
        raise DocumentError(f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]} {where}") from None
    except DocumentError:
        raise
    except ValueError as error:  # a number with thousands of digits
        raise DocumentError(f"not valid JSON: {error}") from None


def _no_number(name: str) -> Any:
    raise DocumentError(f"not valid JSON: {name} is no number")


def _members(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Make a map; a name that comes twice is a mistake that JSON would hide."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise DocumentError(f"the name {name!r} appears twice in one map")
        found[name] = value
    return found


def _toml(text: str) -> Any:
    try:
        return _leaves(tomllib.loads(text, parse_float=lambda text: Leaf(text.replace("_", ""), float(text))))
    except ValueError as error:
        raise DocumentError(f"not valid TOML: {error}") from None


def _leaves(value: Any) -> Node:
    """Make leaves of plain values; a text for those that were none: dates of TOML are written as in ISO 8601."""
    if isinstance(value, Leaf):
        return value
    if isinstance(value, dict):
        return {name: _leaves(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_leaves(each) for each in value]
    if value is None or isinstance(value, bool):
        return Leaf(json.dumps(value), value)
    if isinstance(value, int | str):
        return Leaf(str(value), value)
    return Leaf(value.isoformat(), value.isoformat())


def _env(text: str) -> dict[str, Node]:
    """Read lines of `KEY=value`. Quotes around a value are taken off; a `#` begins a comment at the start of a line."""
    found: dict[str, Node] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, value = _assignment(line.strip(), number)
        if name in found:
            raise DocumentError(f"the name {name!r} appears twice at line {number}, column 1")
        found[name] = Leaf(value, value)
    return found


def _assignment(line: str, number: int) -> tuple[str, str]:
    match = _ASSIGNMENT.fullmatch(line)
    if match is None:
        raise DocumentError(f"not of the form KEY=value at line {number}, column 1")
    name, value = match.groups()
    if value[:1] not in _QUOTES or not value:
        return name, value
    if len(value) < 2 or value[-1] != value[0]:
        raise DocumentError(f"a quote is not closed at line {number}, column {line.index(value) + 1}")
    inner = value[1:-1]
    return name, inner if value[0] == "'" else _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[0]), inner)


def _check_size(tree: dict[str, Node]) -> None:
    if next(islice(_walk(tree, 1), MOST, None), None) is not None:
        raise DocumentError(f"more than {MOST} values")


def _walk(node: Node, depth: int) -> Iterator[Leaf]:
    if isinstance(node, Leaf):
        yield node
        return
    if depth > DEPTH:
        raise DocumentError(f"nested more than {DEPTH} deep")
    for each in node.values() if isinstance(node, dict) else node:
        yield from _walk(each, depth + 1)


_FORMATS = {"json": _json, "toml": _toml, "env": _env}
