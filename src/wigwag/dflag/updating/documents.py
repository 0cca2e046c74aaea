"""Many flags in one key: a document in YAML, JSON, TOML, or lines of `KEY=value`.

The key's ending tells which: `.json`, `.toml`, `.env`; anything else is YAML, of which JSON is a part. A document is a
tree of maps and lists, and its leaves are kept as they were written, because only the flag knows what it takes: `1.10`
may be a number or a version, `0x1F` is a number to a flag as it is in a file of its own. A document is read as a whole
or not at all.

Who can write one may not be who may stop the program. So a document is refused for what it would cost before that is
spent, where its reader does not see to that: the reader of TOML keeps, for each dot in a name, all that came before it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, count, islice
from typing import Any, NamedTuple, TypeAlias

from wigwag.errors import DocumentError
from wigwag.yaml import Bounds, Leaf, load

LARGEST = 4 << 20
"""The largest document, in bytes, and that of one in YAML once its aliases are expanded."""
DEPTH = 50
"""How deep maps and lists may be nested."""
MOST = 100_000
"""How many values a document may have, maps and lists among them."""
Node: TypeAlias = "Leaf | list[Node] | dict[str, Node]"
_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*+(.*)")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}
_QUOTES = "'\""
_UNSEEN = re.compile(
    r'"""[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*+"{0,5}'
    r"|'''[^']*+(?:'(?!'')[^']*+)*+'{0,5}"
    r'|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?'
    r"|'[^'\n]*+'?|#[^\n]*+",
    re.DOTALL,
)
"""What has no meaning to the shape of a document in TOML: texts and comments. One that does not end is a mistake, and
is taken to where it would have to end; so this never looks at anything twice."""
_BETWEEN = re.compile(r"[\n=,\[\]{}]")


class ValuesDocument(NamedTuple):
    """What a document says."""

    tree: dict[str, Node]
    variables: bool = False
    """Whether its names are those of variables: `DB_POOL_SIZE` for the flag `db.pool-size`."""


def read_document(key: str, content: bytes) -> ValuesDocument:
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
    except MemoryError:
        raise DocumentError("there is not enough memory to read it") from None
    return ValuesDocument(tree, read is _env)


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(f"not UTF-8 text (byte {error.start} of {len(content)})") from None


def _yaml(text: str) -> Any:
    return load(text.encode(), Bounds(LARGEST, DEPTH, nodes=MOST), leaves=True)


def _json(text: str) -> Any:
    numbers = count(1)

    def number(text: str, read: Callable[[str], float]) -> Leaf:
        if next(numbers) > MOST:
            raise _too_many()
        return Leaf(text, read(text))

    decoder = json.JSONDecoder(
        object_pairs_hook=_members,
        parse_int=partial(number, read=int),
        parse_float=partial(number, read=float),
        parse_constant=_no_number,
    )
    try:
        found = decoder.decode(text)
    except json.JSONDecodeError as error:
        where = f"at line {error.lineno}, column {error.colno}"
        raise DocumentError(f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]} {where}") from None
    except DocumentError:
        raise
    except ValueError as error:  # a number with thousands of digits
        raise DocumentError(f"not valid JSON: {error}") from None
    _check_size(found)
    return _leaves(found)


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
    _check_cost(text)
    try:
        found = tomllib.loads(text, parse_float=lambda text: Leaf(text.replace("_", ""), float(text)))
    except ValueError as error:
        raise DocumentError(f"not valid TOML: {error}") from None
    _check_size(found)
    return _leaves(found)


def _check_cost(text: str) -> None:
    """Refuse a document in TOML that would take too long, or too much memory, to find out that it is too large.

    Between texts and comments, no dot belongs to anything but a name, a header, a number or a time; there is a value
    for each comma and each `=`, and one for each two brackets.
    """
    shape = _UNSEEN.sub("_", text)
    if any(part.count(".") > DEPTH for part in _BETWEEN.split(shape)):
        raise DocumentError(f"nested more than {DEPTH} deep: a name has more than {DEPTH} dots")
    if shape.count(".") > 2 * MOST:
        raise DocumentError(f"more than {2 * MOST} dots in names and numbers, which is the limit for a document")
    if max(map(shape.count, ",={")) > MOST or shape.count("[") > 2 * MOST:
        raise _too_many()


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
        if len(found) == MOST:
            raise _too_many()
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


def _check_size(tree: Any) -> None:
    """Refuse what has too many values, or too deep; it looks at no more of them than it takes to know."""
    left, level = MOST + 1, [tree]
    for depth in range(DEPTH + 1):
        inner = [node for node in level if isinstance(node, dict | list)]
        if depth == DEPTH and inner:
            raise DocumentError(f"nested more than {DEPTH} deep")
        within = chain.from_iterable(node.values() if isinstance(node, dict) else node for node in inner)
        level = list(islice(within, left))
        left -= len(level)
        if left <= 0:
            raise _too_many()


def _too_many() -> DocumentError:
    return DocumentError(f"more than {MOST} values, which is the limit for a document")


_FORMATS = {"json": _json, "toml": _toml, "env": _env}
