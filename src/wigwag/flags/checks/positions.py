"""Where a JSON path is in the text of a document: line and column, of JSON and YAML.

A document is loaded without positions, because keeping them would cost every load. When there are findings to show, the
text is read once more, and only what leads to their paths is looked at.

    `$.flags.x.targeting`   the member's name        `$.flags[0]`   the element

Both formats become one stream of tokens: `{ } [ ]` and scalars, each with its position. A path that is not there (a
missing member, what an alias or `<<` stands for) has the position of what would hold it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from wigwag.flags.document import is_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from wigwag.flags.document import Format

Position: TypeAlias = tuple[int, int]
"""Line and column, counted from 1; a column is a character."""
PathStep: TypeAlias = str | int
_STEP = re.compile(r'\.([\w$-]+)|\["((?:\\.|[^"\\])*)"\]|\[(\d+)\]')
_OUTSIDE, _NAME, _VALUE = -3, -2, -1
"""What comes next, where it is not an element of an array: nothing, the name of a member, its value."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\]:,]|[^\s{}\[\]:,"]++', re.DOTALL)
"""A string that is not closed is a token up to the end of the text, so that no place is looked at twice."""


class _Node:
    """A place that a path leads to or through."""

    def __init__(self) -> None:
        self.children: dict[PathStep, _Node] = {}
        self.position: Position | None = None


class _Token(NamedTuple):
    kind: str
    """A bracket or brace; empty for a scalar."""
    position: Position
    name: str | None = None
    """The text of a scalar, which may be the name of a member."""


def locate(document: str | bytes, format: Format | None, paths: Iterable[str]) -> dict[str, Position]:
    """Return the position of each path, as far as the text can be read.

    >>> locate('{"flags":\\n  {"a": [1, 2]}}', None, ["$.flags.a[1]", "$.flags.b"])
    {'$.flags.a[1]': (2, 13), '$.flags.b': (1, 2)}
    """
    text = document if isinstance(document, str) else document.decode("utf-8", "replace")
    text = text.removeprefix("\ufeff")
    wanted = {path: steps(path) for path in paths}
    root = _Node()
    for path in wanted.values():
        node = root
        for step in path:
            node = node.children.setdefault(step, _Node())
    _mark(_yaml_tokens(text) if is_yaml(text, format) else _json_tokens(text), root)
    return {path: _nearest(root, parts) for path, parts in wanted.items()}


def steps(path: str) -> list[PathStep]:
    """Return the steps of a path as `child` writes it.

    >>> steps('$.flags["a.b"].targeting.if[0]')
    ['flags', 'a.b', 'targeting', 'if', 0]
    """
    return [
        int(index) if index else name or re.sub(r"\\(.)", r"\1", quoted)
        for name, quoted, index in _STEP.findall(path.removeprefix("$"))
    ]


def _nearest(root: _Node, path: list[PathStep]) -> Position:
    node, position = root, (1, 1)
    for step in path:
        node = node.children[step]
        position = node.position or position
    return position


def _mark(tokens: Iterable[_Token], root: _Node) -> None:
    """Give each node the position of its place. A value that no path leads through has no node."""
    stack: list[tuple[_Node | None, int]] = []  # the objects and arrays around, and what comes next in each
    inside: _Node | None = None
    node: _Node | None = root
    following = _OUTSIDE
    for kind, position, name in tokens:
        if kind and kind in "}]":
            inside, following = stack.pop() if stack else (None, _OUTSIDE)
            continue
        if following == _VALUE:
            following = _NAME  # the node is that of the name
        elif following != _OUTSIDE:
            step = name if following == _NAME else following
            node = inside.children.get(step) if inside is not None and step is not None else None
            if node is not None:
                node.position = position
            following = _VALUE if following == _NAME else following + 1
        if kind:
            stack.append((inside, following))
            inside, following = node, _NAME if kind == "{" else 0


def _json_tokens(text: str) -> Iterator[_Token]:
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    for match in _TOKEN.finditer(text):
        part, start = match.group(), match.start()
        if part not in ":,":
            line = bisect_right(lines, start)
            position = line, start - lines[line - 1] + 1
            yield _Token(part, position) if part in "{}[]" else _Token("", position, _name(part))


def _name(part: str) -> str:
    if "\\" not in part:
        return part[1:-1]
    try:
        return str(json.loads(part, strict=False))
    except ValueError:
        return part


def _yaml_tokens(text: str) -> Iterator[_Token]:
    import yaml  # costs an import that most processes never need

    from wigwag.yaml import LOADER

    kinds: dict[type[yaml.Event], str] = {yaml.MappingStartEvent: "{", yaml.MappingEndEvent: "}"}
    kinds |= {yaml.SequenceStartEvent: "[", yaml.SequenceEndEvent: "]", yaml.ScalarEvent: "", yaml.AliasEvent: ""}
    try:
        for event in yaml.parse(text, Loader=LOADER):
            if isinstance(event, yaml.DocumentEndEvent):
                return
            if event.start_mark is not None and event.__class__ in kinds:
                position = event.start_mark.line + 1, event.start_mark.column + 1
                yield _Token(kinds[event.__class__], position, getattr(event, "value", None))
    except (yaml.YAMLError, RecursionError):
        return  # what could be read has its position
