"""Names for hints: the closest known one, or the first few of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_MOST_CANDIDATES, _LONGEST_NAME = 200, 100
_MOST_LISTED = 8


def closest(name: str, known: Collection[str], most: int = _MOST_CANDIDATES) -> str | None:
    """Return the known name that is most like this one, if any is; among very many, searching would take too long.

    >>> closest("Flag", ["flags", "metadata"]), closest("x", ["flags"])
    ('flags', None)
    """
    if len(known) > most or len(name) > _LONGEST_NAME:
        return None
    from difflib import get_close_matches

    same = next((right for right in known if right.lower() == name.lower()), None)
    return same or next(iter(get_close_matches(name, list(known), n=1)), None)


def suggest(name: str, known: Collection[str]) -> str:
    """Return a hint with the closest known name, or none."""
    close = closest(name, known)
    return f"did you mean `{close}`?" if close else ""


def listed(names: Collection[str]) -> str:
    """Return names for a hint: a few of them, and how many more there are.

    >>> listed("abc"), listed("abcdefghijkl"), listed([])
    ('a, b, c', 'a, b, c, d, e, f, g, h, and 4 more', 'none')
    """
    more = len(names) - _MOST_LISTED
    few = ", ".join(list(names)[:_MOST_LISTED]) or "none"
    return f"{few}, and {more} more" if more > 0 else few
