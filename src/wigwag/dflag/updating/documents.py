"""Many flags in one key: a document in YAML, JSON, TOML, or lines of `KEY=value`, and which flags it sets.

The ending of the key is the format: `.json`, `.toml`, `.env`; anything else is YAML, of which JSON is a part. A
document is a tree of maps and lists. Its leaves are kept as they were written, because only the flag knows its type:
`1.10` may be a number or a version, and `0x1F` is a number for a flag as in a file of its own. A document is read as a
whole or not at all.

The author of a document may not be allowed to stop the program. So a document that would cost too much is rejected
before it is parsed, where the parser has no limits of its own: that of TOML keeps, for each dot in a name, all that
came before it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from wigwag.dflag.naming import variable
from wigwag.errors import DocumentError, FlagError
from wigwag.yaml import Bounds, Leaf, load

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.updating.places import Names

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
"""Strings and comments of TOML, which do not matter for the shape of a document. An unclosed one is matched up to where
it would have to end, so nothing is matched twice."""
_BETWEEN = re.compile(r"[\n=,\[\]{}]")


class ValuesDocument(NamedTuple):
    """A parsed document."""

    tree: dict[str, Node]
    variables: bool = False
    """Whether its names are those of variables: `DB_POOL_SIZE` for the flag `db.pool-size`."""


def read_document(key: str, content: bytes) -> ValuesDocument:
    """Parse a document; `DocumentError`, with the line and column, if it is not valid.

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
        return ValuesDocument({name: _leaves(each) for name, each in tree.items()}, read is _env)
    except RecursionError:
        raise DocumentError("nested too deeply") from None
    except MemoryError:
        raise DocumentError("there is not enough memory to read it") from None


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
        return decoder.decode(text)
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
    """Make a map; `DocumentError` for a repeated name, which Python's parser would accept."""
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise DocumentError(f"the name {name!r} appears twice in one map")
        members[name] = value
    return members


def _toml(text: str) -> Any:
    _check_cost(text)
    try:
        return tomllib.loads(text, parse_float=lambda text: Leaf(text.replace("_", ""), float(text)))
    except ValueError as error:
        raise DocumentError(f"not valid TOML: {error}") from None


def _check_cost(text: str) -> None:
    """Reject a document in TOML for which the parser would take too much time or memory.

    Outside strings and comments, a dot is part of a name, a header, a number or a time; there is at most one value for
    each comma and each `=`, and for two brackets.
    """
    shape = _UNSEEN.sub("_", text)
    if any(part.count(".") > DEPTH for part in _BETWEEN.split(shape)):
        raise DocumentError(f"nested more than {DEPTH} deep: a name has more than {DEPTH} dots")
    if shape.count(".") > 2 * MOST:
        raise DocumentError(f"more than {2 * MOST} dots in names and numbers, which is the limit for a document")
    if max(map(shape.count, ",={")) > MOST or shape.count("[") > 2 * MOST:
        raise _too_many()


def _leaves(value: Any) -> Node:
    """Make leaves of plain values; dates of TOML become texts in ISO 8601."""
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
    """Parse lines of `KEY=value`. Quotes around a value are removed; a line that begins with `#` is a comment."""
    values: dict[str, Node] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, value = _assignment(line.strip(), number)
        if name in values:
            raise DocumentError(f"the name {name!r} appears twice at line {number}, column 1")
        if len(values) == MOST:
            raise _too_many()
        values[name] = Leaf(value, value)
    return values


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
    return name, inner if value[0] == "'" else _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[0]), inner)


def _check_size(tree: Any) -> None:
    """Raise if there are too many values or levels; stop counting at the limit."""
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


class DocumentValue(NamedTuple):
    """A value in a document, with its flag."""

    name: str
    """Its name in the document."""
    flag: DynFlag[Any] | None
    """The flag that it sets, if there is one."""
    node: Node


def unfold(document: ValuesDocument, names: Names, flags: FlagSet) -> Iterator[DocumentValue]:
    """Yield the values of a document that may set flags of ours.

    Maps within maps are names with dots: `db: {size: 3}` sets the flag `db.size`, and so does `db.size: 3`. A flag
    whose value is a map gets the map. A leaf is parsed by the flag as text, as if it were in a file of its own; a list
    or map is passed item by item, or as JSON. `null` sets nothing.
    """
    if document.variables:
        yield from _assigned(document, names, flags)
    else:
        yield from _named(document.tree, "", names, flags)


def _named(tree: Mapping[str, Node], above: str, names: Names, flags: FlagSet) -> Iterator[DocumentValue]:
    for part, node in tree.items():
        name = above + part
        own = names.flag(name)
        flag = None if own is None else flags.find(own)
        takes_maps = flag is not None and (flag.kind.is_json or isinstance(flag.default, Mapping))
        if isinstance(node, dict) and not takes_maps:
            yield from _named(node, f"{name}.", names, flags)
        elif own is not None and not (isinstance(node, Leaf) and node.value is None):
            yield DocumentValue(name, flag, node)


def _assigned(document: ValuesDocument, names: Names, flags: FlagSet) -> Iterator[DocumentValue]:
    """Find flags by their variables, or by their names. A variable of two flags sets both."""
    known: dict[str, dict[str, DynFlag[Any]]] = {}
    for flag in flags:
        for key in map(names.key, flag.names):
            if key is not None:
                known.setdefault(variable(key), {})[flag.name] = flag
    for name, node in document.tree.items():
        by_variable, own = known.get(name, {}), names.flag(name)
        for each, flag in by_variable.items():
            yield DocumentValue(f"{name} ({each})" if len(by_variable) > 1 else name, flag, node)
        if not by_variable and own is not None:
            yield DocumentValue(name, flags.find(own), node)


def value_of(flag: DynFlag[Any], node: Node) -> Any:
    """Return the value of a node for a flag; `FlagError` if it is not valid.

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> value_of(flags.list("ports", [80], item=int), [Leaf("0x50", 80), Leaf("443", 443)])
    [80, 443]
    """
    if isinstance(node, Leaf):
        return flag.parse(node.text)
    if not flag.kind.is_json:
        return flag.compose(_mapped(node, lambda leaf: leaf.text))
    try:
        return flag.parse(json.dumps(_mapped(node, lambda leaf: leaf.value), allow_nan=False, ensure_ascii=False))
    except ValueError as error:
        if isinstance(error, FlagError):
            raise
        raise FlagError(flag.name, "it contains a number that JSON does not have: infinity or NaN") from None


def _mapped(node: Node, leaf: Callable[[Leaf], Any]) -> Any:
    """Return a node with its leaves replaced."""
    if isinstance(node, Leaf):
        return leaf(node)
    if isinstance(node, dict):
        return {name: _mapped(each, leaf) for name, each in node.items()}
    return [_mapped(each, leaf) for each in node]
