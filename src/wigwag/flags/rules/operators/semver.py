"""`sem_ver`: `[version, operator, version]`, with partial versions and an optional leading v.

A version becomes a key that sorts as Semantic Versioning says. Numbers are kept as (length, digits), which sorts like
the number itself and cannot be made slow by thousands of digits.
"""

from __future__ import annotations

import operator
import re
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from wigwag.flags.rules.coerce import json_notation
from wigwag.flags.rules.cost import LONGEST_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.flags.model import Json

Digits: TypeAlias = tuple[int, str]
Version: TypeAlias = tuple[Digits, Digits, Digits, tuple[object, ...]]
Relation: TypeAlias = "Callable[[Version, Version], bool]"

_NUMBER = r"(0|[1-9][0-9]*)"
_PRE = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_BUILD = r"[0-9A-Za-z-]+"
_VERSION = re.compile(
    rf"[vV]?{_NUMBER}(?:\.{_NUMBER}(?:\.{_NUMBER}(?:-({_PRE}(?:\.{_PRE})*))?(?:\+{_BUILD}(?:\.{_BUILD})*)?)?)?"
)
_RELEASE = (1,)
_EXPONENT_FROM = 1_000_000

RELATIONS: dict[str, Relation] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "^": lambda a, b: a[0] == b[0],
    "~": lambda a, b: a[:2] == b[:2],
}


def compare(values: Json) -> bool | None:
    """`sem_ver`: whether the relation holds; null if a version or the operator means nothing."""
    if values.__class__ is not list or len(values) != 3:
        return None
    relation = RELATIONS.get(values[1]) if values[1].__class__ is str else None
    a, b = version_of(values[0]), version_of(values[2])
    return relation(a, b) if relation and a and b else None


def version_of(value: Json) -> Version | None:
    """Return the sort key of a version given as text or number, or None."""
    if value.__class__ is str:
        return parse(value) if len(value) <= LONGEST_VERSION else None
    # From a million on, flagd writes a number with an exponent, which no version has.
    return parse(json_notation(value)) if value.__class__ in (int, float) and abs(value) < _EXPONENT_FROM else None


@lru_cache(maxsize=4096)
def parse(text: str) -> Version | None:
    """Return the sort key of a version, or None. Cached: few versions are in use at a time, and they are short."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    major, minor, patch, pre = match.groups()
    return _digits(major), _digits(minor), _digits(patch), _precedence(pre)


def _digits(number: str | None) -> Digits:
    return (len(number), number) if number else (1, "0")


def _precedence(pre: str | None) -> tuple[object, ...]:
    """A release sorts after its pre-releases; numeric identifiers sort before words, and fewer before more."""
    if pre is None:
        return _RELEASE
    return (0, tuple((0, *_digits(part)) if part.isdigit() else (1, part) for part in pre.split(".")))
