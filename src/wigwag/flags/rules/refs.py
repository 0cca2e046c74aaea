"""`$ref` and `$evaluators`: shared rules by name, at any depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.flags.model import Json

REF = "$ref"
SHARED = "$.$evaluators"
"""The path of the shared rules."""
_LARGEST = 200_000


def reference(node: Json) -> str | None:
    """Return the name if this is `{"$ref": "name"}`."""
    if node.__class__ is dict and len(node) == 1 and node.get(REF).__class__ is str:
        return node[REF]  # type: ignore[no-any-return]
    return None


def reachable(rule: Json, evaluators: Mapping[str, Json]) -> dict[str, Json]:
    """Return the evaluators that a rule refers to, directly or through others."""
    reached: dict[str, Json] = {}
    pending = [rule]
    while pending and evaluators:
        node = pending.pop()
        name = reference(node)
        if name is not None:
            if name in evaluators and name not in reached:
                reached[name] = evaluators[name]
                pending.append(evaluators[name])
        elif node.__class__ is dict:
            pending.extend(node.values())
        elif node.__class__ is list:
            pending.extend(node)
    return reached


def inline(rule: Json, evaluators: Mapping[str, Json]) -> Json:
    """Return the rule with every reference replaced by what it names; an unknown or circular one stays."""
    if not evaluators:
        return rule
    nodes = 0

    def inlined(node: Json, names: tuple[str, ...]) -> Json:
        nonlocal nodes
        nodes += 1
        if nodes > _LARGEST:
            raise DocumentError("the rule grows without bound as its references are followed")
        name = reference(node)
        if name is not None:
            return inlined(evaluators[name], (*names, name)) if name in evaluators and name not in names else node
        if node.__class__ is dict:
            return {key: inlined(value, names) for key, value in node.items()}
        return [inlined(item, names) for item in node] if node.__class__ is list else node

    return inlined(rule, ())
