"""Grants: an object says, by an annotation, which other namespaces may use it. Only its owner can write that."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ALLOW_FROM = "openfeature.dev/allow-from"
"""On an object: the namespaces whose pods may refer to it, separated by commas; `*` for all."""


def is_granted(annotations: Mapping[str, str], namespace: str) -> bool:
    """Tell whether an object allows pods of another namespace to refer to it.

    >>> is_granted({ALLOW_FROM: "team-a, team-b"}, "team-b"), is_granted({ALLOW_FROM: "*"}, "x"), is_granted({}, "x")
    (True, True, False)
    """
    allowed = {each.strip() for each in annotations.get(ALLOW_FROM, "").split(",")} - {""}
    return namespace in allowed or "*" in allowed
