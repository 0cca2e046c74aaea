"""The tree of errors in the documentation of `wigwag.errors` is the one of the code."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import wigwag.errors
from wigwag.errors import WigwagError

SOURCE = Path(wigwag.errors.__file__).parent
LINE = re.compile(r"^ {4}((?:│   |    )*(?:├── |└── ))?(\w+Error)(?: +(?:([a-z0-9_.]+): )?.*)?$", re.MULTILINE)


def drawn(text: str) -> set[tuple[str, str, str]]:
    """The edges of a drawing: parent, class and the module of the class."""
    above: list[str] = []
    edges = set()
    for prefix, name, module in LINE.findall(text):
        depth = len(prefix) // 4
        del above[depth:]
        edges.add((above[-1] if above else "", name, module or "errors"))
        above.append(name)
    return edges


def defined() -> set[tuple[str, str, str]]:
    """The edges of the class tree, whatever module a class is in."""
    for path in SOURCE.rglob("*.py"):
        if any(
            isinstance(node, ast.ClassDef) and node.name.endswith("Error") for node in ast.parse(path.read_text()).body
        ):
            import_module(".".join(("wigwag", *path.relative_to(SOURCE).with_suffix("").parts)))
    edges = {("", "WigwagError", "errors")}
    left = [WigwagError]
    while left:
        parent = left.pop()
        for each in parent.__subclasses__():
            if each.__module__.startswith("wigwag."):  # tests may have classes of their own
                edges.add((parent.__name__, each.__name__, each.__module__.removeprefix("wigwag.")))
                left.append(each)
    return edges


def test_the_drawing_is_complete_and_right() -> None:
    assert drawn(wigwag.errors.__doc__ or "") == defined()


def test_a_drawing_with_a_class_in_the_wrong_place_is_another_tree() -> None:
    text = wigwag.errors.__doc__ or ""
    assert drawn(text.replace("│   └── StaticFlagError", "├── StaticFlagError")) != drawn(text)
