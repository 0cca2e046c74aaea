"""Objects that open-feature-operator has made: its fields become ours, before we apply the first time.

Server-side apply takes away what the applier owned and no longer intends. The fields of the original stay its own, so
they would stay for ever. The hard case is a port with another number: beside the old one of the same name, the server
refuses the object, each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from wigwag.operator.names import MANAGED_BY, OPERATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

Json: TypeAlias = Any
ORIGINAL = "manager"
"""The field manager of the original: the name of its program."""


def takeover_patch(live: Mapping[str, Json], manager: str) -> dict[str, Json] | None:
    """Return the merge patch that makes the original's fields those of a manager; None if there is nothing to do.

    `live` has to have its managed fields, which watches leave out: read an object that the manager has not applied yet.
    The patch is for this version of the object: if the server answers with a conflict, read it again.
    """
    metadata = live["metadata"]
    entries = metadata.get("managedFields") or []
    theirs = next((each for each in entries if _is_by(each, ORIGINAL, "Update")), None)
    if theirs is None or (metadata.get("labels") or {}).get(MANAGED_BY) != OPERATOR:
        return None
    if any(_is_by(each, manager, "Apply") for each in entries):
        kept = [each for each in entries if each is not theirs]
    else:
        ours = {**theirs, "manager": manager, "operation": "Apply"}
        kept = [ours if each is theirs else each for each in entries]
    return {"metadata": {"managedFields": kept, "resourceVersion": metadata["resourceVersion"]}}


def _is_by(entry: Mapping[str, Json], manager: str, operation: str) -> bool:
    return (entry.get("manager"), entry.get("operation")) == (manager, operation) and not entry.get("subresource")
