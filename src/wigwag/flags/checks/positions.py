"""Where a JSON path is in the text of a document: line and column, of JSON and YAML.

A document is loaded without positions, because keeping them would cost every load. When there are findings to show, the
text is read once more, and only what leads to their paths is looked at.

    `$.flags.x.targeting`   the member's name        `$.flags[0]`   the element

A path that is not there (a missing member, what an alias or `<<` stands for) has the place of what would hold it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, TypeAlias

from wigwag.flags.document import is_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.flags.document import Format

Position: TypeAlias = tuple[int, int]
"""Line and column, counted from 1; a column is a character."""
Step: TypeAlias = str | int
_STEP = re.compile(r'\.([\w$-]+)|\["((?:\\.|[^"\\])*)"\]|\[(\d+)\]')
_OUTSIDE, _NAME, _VALUE = -3, -2, -1
"""What comes next, where it is not an element of an array: nothing, the name of a member, its value."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\]:,]|[^\s{}\[\]:,"]++', re.DOTALL)
"""A string that is not closed is a token up to the end of the text, so that no place is looked at twice."""


class Node:
    """A place that somebody asks for, or that leads to one."""

    def __init__(self) -> None:
        self.children: dict[Step, Node] = {}
        self.position: Position | None = None

    def child(self, step: Step) -> Node:
        return self.children.setdefault(step, Node())


def locate(document: str | bytes, format: Format | None, paths: Iterable[str]) -> dict[str, Position]:
    """Return the position of each path, as far as the text can be read.

    >>> locate('{"flags":\\n  {"a": [1, 2]}}', None, ["$.flags.a[1]", "$.flags.b"])
    {'$.flags.a[1]': (2, 13), '$.flags.b': (1, 2)}
    """
    text = document if isinstance(document, str) else document.decode("utf-8", "replace")
    text = text.removeprefix("\ufeff")
    wanted = {path: steps(path) for path in paths}
    root = Node()
    root.position = (1, 1)
    for path in wanted.values():
        node = root
        for step in path:
            node = node.child(step)
    if is_yaml(text, format):
        from wigwag.flags.checks.yaml_positions import mark_yaml  # YAML costs an import that most processes never need

        mark_yaml(text, root)
    else:
        _mark_json(text, root)
    return {path: _nearest(root, parts) for path, parts in wanted.items()}


def steps(path: str) -> list[Step]:
    """Return the steps of a path as `child` writes it.

    >>> steps('$.flags["a.b"].targeting.if[0]')
    ['flags', 'a.b', 'targeting', 'if', 0]
    """
    found: list[Step] = []
    for name, quoted, index in _STEP.findall(path.removeprefix("$")):
        found.append(int(index) if index else name or re.sub(r"\\(.)", r"\1", quoted))
    return found


def _nearest(root: Node, path: list[Step]) -> Position:
    node, position = root, root.position or (1, 1)
    for step in path:
        node = node.children[step]
        position = node.position or position
    return position


def _mark_json(text: str, root: Node) -> None:
    """Follow the tokens; each open object or array has the node that it is, or none if nobody asks for it."""
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    stack: list[tuple[Node | None, int]] = []  # what is open around here, and how far it was read
    inside: Node | None = None
    index = _OUTSIDE
    node: Node | None = root
    for match in _TOKEN.finditer(text):
        part, start = match.group(), match.start()
        if index == _NAME and part[0] == '"':
            node, index = _inner(inside, _text(part)), _VALUE
            _place(node, lines, start)
        elif part in "}]":
            inside, index = stack.pop() if stack else (None, _OUTSIDE)
        elif part == ",":
            index = _NAME if index == _VALUE else index + 1
        elif part != ":":
            if index >= 0:
                node = _inner(inside, index)
                _place(node, lines, start)
            if part in "{[":
                stack.append((inside, index))
                inside, index = node, _NAME if part == "{" else 0


def _inner(node: Node | None, step: Step) -> Node | None:
    return node.children.get(step) if node is not None else None


def _text(token: str) -> str:
    if "\\" not in token:
        return token[1:-1]
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token


def _place(node: Node | None, lines: list[int], offset: int) -> None:
    if node is not None:
        line = bisect_right(lines, offset)
        node.position = line, offset - lines[line - 1] + 1
