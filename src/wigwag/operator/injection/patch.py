"""The difference of two objects as a JSON patch that adds and replaces, and never removes.

`covers` tells whether an object already has what it should have. The API server adds defaults to what was injected,
writes quantities its own way, and mounts service account tokens. None of that is a difference.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypedDict

from wigwag.operator.resources.quantity import quantity

Json: TypeAlias = Any


class PatchOperation(TypedDict):
    """One operation of a JSON patch (RFC 6902)."""

    op: str
    path: str
    value: Json


Patch: TypeAlias = tuple[PatchOperation, ...]


def difference(before: Json, after: Json, path: str = "") -> list[PatchOperation]:
    """Return the operations that make `after` from `before`. What has fewer members is replaced as a whole.

    >>> difference({"a": [1], "b": {}}, {"a": [1, 2], "b": {"x/y": 3}})
    [{'op': 'add', 'path': '/a/-', 'value': 2}, {'op': 'add', 'path': '/b/x~1y', 'value': 3}]
    """
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() <= after.keys():
        changes = []
        for key, value in after.items():
            place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            changes += difference(before[key], value, place) if key in before else [_operation("add", place, value)]
        return changes
    if isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        pairs = enumerate(zip(before, after[: len(before)], strict=True))
        changed = [each for index, (old, new) in pairs for each in difference(old, new, f"{path}/{index}")]
        return changed + [_operation("add", f"{path}/-", value) for value in after[len(before) :]]
    return [_operation("replace", path, after)]


def _operation(op: str, path: str, value: Json) -> PatchOperation:
    return {"op": op, "path": path, "value": value}


def covers(present: Json, wanted: Json, *, quantities: bool = False) -> bool:
    """Tell whether an object has everything that is wanted; it may have more members, and lists more objects.

    >>> covers({"name": "a", "resources": {"limits": {"cpu": "500m"}}}, {"resources": {"limits": {"cpu": "0.5"}}})
    True
    >>> covers({"args": ["start", "--debug"]}, {"args": ["start"]})
    False
    """
    if isinstance(wanted, dict):
        return isinstance(present, dict) and all(
            key in present and covers(present[key], value, quantities=quantities or key == "resources")
            for key, value in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(present, list) and wanted and isinstance(wanted[0], dict):
        return all(any(covers(each, one) for each in present) for one in wanted)
    return bool(present == wanted) or (quantities and _same_quantity(present, wanted))


def _same_quantity(present: Json, wanted: Json) -> bool:
    try:
        return quantity(present) == quantity(wanted)
    except ValueError:
        return False
