"""Hints for a name that is not known: the one that was probably meant, or the first few of those that there are.

Names come from outside, and comparing takes time: long names are not compared, and of many known names only those of
about the same length are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_MOST_CANDIDATES, _LONGEST_NAME = 200, 100


def closest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that is most like this one, if any is.

    >>> closest("Flag", ["flags", "metadata"]), closest("x", ["flags"])
    ('flags', None)
    """
    return next(iter(close_names(name, known, 1)), None)


def close_names(name: str, known: Collection[str], most: int) -> list[str]:
    """Return the known names that are most like this one, the best first; one that differs only in case is the best.

    >>> close_names("rate", ["rates", "Rate", "gate", "x"], 3)
    ['Rate', 'rates', 'gate']
    """
    if len(name) > _LONGEST_NAME:
        return []
    from difflib import get_close_matches

    same = [each for each in known if each.lower() == name.lower()]
    if len(known) > _MOST_CANDIDATES:
        known = [each for each in known if abs(len(each) - len(name)) <= 3][:_MOST_CANDIDATES]
    return list(dict.fromkeys([*same, *get_close_matches(name, list(known), most)]))[:most]


def suggest(name: str, known: Collection[str]) -> str:
    """Return a hint with the closest known name; an empty text if none is close, or among very many.

    >>> suggest("ratee", ["name", "rate"]), suggest("zebra", ["rate"])
    ('did you mean `rate`?', '')
    """
    close = closest(name, known) if len(known) <= _MOST_CANDIDATES else None
    return f"did you mean `{close}`?" if close else ""
