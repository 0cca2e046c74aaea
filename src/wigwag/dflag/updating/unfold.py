"""Which flags a document sets, and to what.

Maps within maps are names with dots: `db: {size: 3}` is the flag `db.size`, and so is `db.size: 3`. A map that a flag
takes as its value ends that. A leaf is handed to the flag as text, as if it stood in a file of its own; a list or map
goes to one that takes such, item by item, or as JSON. `null` says nothing: the flag has no value here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from wigwag.dflag.naming import variable
from wigwag.errors import FlagError
from wigwag.yaml import Leaf

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.updating.documents import Node, ValuesDocument
    from wigwag.dflag.updating.places import Names


class DocumentValue(NamedTuple):
    """A value in a document."""

    name: str
    """What the document calls it."""
    flag: DynFlag[Any] | None
    """Whose it is, if there is such a flag."""
    node: Node


def unfold(document: ValuesDocument, names: Names, flags: FlagSet) -> Iterator[DocumentValue]:
    """Yield the values of a document that may be ours."""
    if document.variables:
        yield from _assigned(document, names, flags)
    else:
        yield from _named(document.tree, "", names, flags)


def _named(tree: Mapping[str, Node], above: str, names: Names, flags: FlagSet) -> Iterator[DocumentValue]:
    for part, node in tree.items():
        name = above + part
        own = names.flag(name)
        flag = None if own is None else flags.find(own)
        if isinstance(node, dict) and (flag is None or not _takes_maps(flag)):
            yield from _named(node, f"{name}.", names, flags)
        elif own is not None and not _says_nothing(node):
            yield DocumentValue(name, flag, node)


def _assigned(document: ValuesDocument, names: Names, flags: FlagSet) -> Iterator[DocumentValue]:
    """Find flags by the names of their variables, or by their own. What is the variable of two flags sets both."""
    known: dict[str, dict[str, DynFlag[Any]]] = {}
    for flag in flags:
        for key in map(names.key, flag.names):
            if key is not None:
                known.setdefault(variable(key), {})[flag.name] = flag
    for name, node in document.tree.items():
        found, own = known.get(name, {}), names.flag(name)
        for each, flag in found.items():
            yield DocumentValue(f"{name} ({each})" if len(found) > 1 else name, flag, node)
        if not found and own is not None:
            yield DocumentValue(name, flags.find(own), node)


def _takes_maps(flag: DynFlag[Any]) -> bool:
    return flag.kind.is_json or isinstance(flag.default, Mapping)


def _says_nothing(node: Node) -> bool:
    return isinstance(node, Leaf) and node.value is None


def value_of(flag: DynFlag[Any], node: Node) -> Any:
    """Read a value for a flag, without swapping it in; `FlagError` if it refuses.

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> value_of(flags.list("ports", [80], item=int), [Leaf("0x50", 80), Leaf("443", 443)])
    [80, 443]
    """
    if isinstance(node, Leaf):
        return flag.parse(node.text)
    if not flag.kind.is_json:
        return flag.compose(_texts(node))
    try:
        return flag.parse(json.dumps(_plain(node), allow_nan=False, ensure_ascii=False))
    except ValueError as error:
        if isinstance(error, FlagError):
            raise
        raise FlagError(flag.name, "it has a number in it that JSON cannot hold: infinite, or none at all") from None


def _texts(node: Node) -> Any:
    """Return a node with its leaves as they were written."""
    if isinstance(node, Leaf):
        return node.text
    return {name: _texts(each) for name, each in node.items()} if isinstance(node, dict) else [*map(_texts, node)]


def _plain(node: Node) -> Any:
    """Return a node with its leaves as what they mean."""
    if isinstance(node, Leaf):
        return node.value
    return {name: _plain(each) for name, each in node.items()} if isinstance(node, dict) else [*map(_plain, node)]
