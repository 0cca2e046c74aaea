"""Who owns the fields of an object (`metadata.managedFields`), and how items of a list become ours.

Server-side apply takes away what its manager owned and no longer intends, never what others own. The hard case is an
item whose key is its number, and whose name must be unique: somebody edits port 80 to 81. Then 80 is gone, 81 is
theirs, and to apply 80 again would leave two ports of one name, which the server refuses, each time. So the items that
others own in such a list become ours, and the next apply takes those away that are not intended.

Field sets are trees: `f:NAME` is a member, `k:{…}` an item of a list by its key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wigwag.kube.errors import ApiError

Fields: TypeAlias = "Mapping[str, Any]"
FieldPath: TypeAlias = tuple[str, ...]
"""The names of members on the way, without the positions in lists."""
_INDEX = re.compile(r"\[\d+\]")


def lists_with_duplicates(error: ApiError) -> list[FieldPath]:
    """Return the lists in which a server has found two items with the same name."""
    fields = (cause.field for cause in error.status.causes if cause.reason == "FieldValueDuplicate")
    lists = (field.rpartition("[")[0] for field in fields)
    return [tuple(_INDEX.sub("", each).split(".")) for each in lists if each]


def claim(entries: Sequence[Fields], lists: Sequence[FieldPath], manager: str, version: str) -> list[Fields] | None:
    """Return managed fields in which a manager owns the items that others own in lists; None if there are none.

    `version` is the API version of the manager's own entry: field sets of other versions cannot be compared.
    """
    ours: Fields = {}
    kept: list[Fields] = []
    claimed: Fields = {}
    for entry in entries:
        is_main = not entry.get("subresource") and entry.get("apiVersion") == version
        if is_main and (entry.get("manager"), entry.get("operation")) == (manager, "Apply"):
            ours = entry
            continue
        fields = entry.get("fieldsV1") or {}
        part: Fields = {}
        for each in lists if is_main else ():
            part = _union(part, _below(fields, each))
        claimed = _union(claimed, part)
        if left := _without(fields, part):
            kept.append({**entry, "fieldsV1": left})
    if not claimed:
        return None
    about = {"manager": manager, "operation": "Apply", "apiVersion": version, "fieldsType": "FieldsV1"}
    return [*kept, {**about, **ours, "fieldsV1": _union(ours.get("fieldsV1") or {}, claimed)}]


def _below(fields: Fields, path: FieldPath) -> Fields:
    """Return the part of a field set that is below a path, in all items of the lists on the way.

    >>> _below({"f:spec": {"f:ports": {'k:{"port":80}': {"f:name": {}}}, "f:type": {}}}, ("spec", "ports"))
    {'f:spec': {'f:ports': {'k:{"port":80}': {'f:name': {}}}}}
    """
    if not path:
        return fields
    part = {}
    for key, value in fields.items():
        rest = path[1:] if key == f"f:{path[0]}" else path if key.startswith("k:") else None
        if rest is not None and (found := _below(value, rest)):
            part[key] = found
    return part


def _union(one: Fields, other: Fields) -> Fields:
    """Return the fields of both.

    >>> _union({"f:a": {"f:b": {}}}, {"f:a": {"f:c": {}}})
    {'f:a': {'f:b': {}, 'f:c': {}}}
    """
    return {**one, **{key: _union(one[key], value) if key in one else value for key, value in other.items()}}


def _without(fields: Fields, part: Fields) -> Fields:
    """Return the fields that are no part of another set.

    >>> _without({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}}, {"f:a": {"f:b": {}}})
    {'f:a': {'f:c': {}}, 'f:d': {}}
    """
    left = ((key, _without(value, part[key]) if key in part else value) for key, value in fields.items())
    return {key: value for key, value in left if value or key not in part}
