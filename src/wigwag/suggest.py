"""Suggestions for hints: the known name that is closest to an unknown one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_MOST_CANDIDATES, _LONGEST_NAME = 200, 100


def closest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that is most like this one, if any is; among very many, searching would take too long.

    >>> closest("Flag", ["flags", "metadata"]), closest("x", ["flags"])
    ('flags', None)
    """
    if len(known) > _MOST_CANDIDATES or len(name) > _LONGEST_NAME:
        return None
    from difflib import get_close_matches

    same = next((right for right in known if right.lower() == name.lower()), None)
    return same or next(iter(get_close_matches(name, list(known), n=1)), None)


def suggest(name: str, known: Collection[str]) -> str:
    """Return a hint with the closest known name, or none."""
    close = closest(name, known)
    return f"did you mean `{close}`?" if close else ""
