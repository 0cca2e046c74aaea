"""The positions of places in a YAML document, from the marks of its events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from wigwag.yaml import LOADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.flags.checks.positions import Node


def mark_yaml(text: str, root: Node) -> None:
    """Give each node the position of its place in the text."""
    try:
        stream = yaml.parse(text, Loader=LOADER)
        for event in stream:
            if isinstance(event, yaml.DocumentStartEvent):
                _value(next(stream), root, stream)
                return
    except (yaml.YAMLError, RecursionError, StopIteration):
        return  # what could be read has its place


def _value(event: yaml.Event, node: Node | None, stream: Iterator[yaml.Event]) -> None:
    """Go through one value; nobody asks for what is in it if there is no node."""
    if isinstance(event, yaml.MappingStartEvent):
        while not isinstance(key := next(stream), yaml.MappingEndEvent):
            inner = node.children.get(key.value) if node and isinstance(key, yaml.ScalarEvent) else None
            if not isinstance(key, yaml.ScalarEvent):
                _value(key, None, stream)
            _place(inner, key)
            _value(next(stream), inner, stream)
    elif isinstance(event, yaml.SequenceStartEvent):
        index = 0
        while not isinstance(item := next(stream), yaml.SequenceEndEvent):
            inner = node.children.get(index) if node else None
            _place(inner, item)
            _value(item, inner, stream)
            index += 1


def _place(node: Node | None, event: yaml.Event) -> None:
    if node is not None and event.start_mark is not None:
        node.position = event.start_mark.line + 1, event.start_mark.column + 1
